//! `fxc explain`: explains a finding.

use super::{Outcome, output};
use crate::diag::{Code, Diagnostic, nearest};

/// Explain an error code: its meaning, an example and the correction
#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, such as E0201; without it, fxc lists all codes
    code: Option<String>,
    /// Print all explanations
    #[arg(long, conflicts_with = "code")]
    all: bool,
}

/// `fxc explain`.
pub(super) fn main(args: &Args) -> Outcome {
    let Some(name) = &args.code else {
        return output::write_stdout(if args.all { all_pages() } else { code_table() }.as_bytes());
    };
    match Code::from_name(name) {
        Some(c) => output::write_stdout(c.explanation().as_bytes()),
        None => {
            let d = Diagnostic::new(Code::E0703, format!("unknown code `{name}`"));
            let names = Code::ALL.iter().map(|c| c.name());
            Err(match nearest(&name.to_uppercase(), names) {
                Some(n) => d.help(format!("there is a code with a similar name: `{n}`")),
                None => d.help("run `fxc explain` to list all codes"),
            }
            .into())
        }
    }
}

fn code_table() -> String {
    Code::ALL.iter().map(|c| format!("{c}  {}\n", c.title())).collect()
}

fn all_pages() -> String {
    Code::ALL.iter().map(|c| c.explanation()).collect::<Vec<_>>().join("\n")
}
