//! `fxc passes`: lists every pass with its purpose.

use super::{Outcome, Stop, output};
use crate::diag::{Code, Diagnostic, nearest};
use crate::pass::{self, Pass};

/// List the passes in execution order with their descriptions, or show an example of one
#[derive(clap::Args)]
pub(super) struct Args {
    /// A pass to show, with a graph before and after it
    name: Option<String>,
}

/// `fxc passes`.
pub(super) fn main(args: &Args) -> Outcome {
    match &args.name {
        Some(name) => show_pass(name),
        None => output::write_stdout(list_passes().as_bytes()),
    }
}

fn list_passes() -> String {
    let names = pass::all_passes()
        .map(|p| p.name)
        .chain(pass::LIBRARY.iter().map(|t| t.0));
    let width = names.map(str::len).max().unwrap_or(0);
    let line = |mark: &str, name: &str, reason: &str| format!("{mark:>2}  {name:width$}  {reason}\n");
    let numbered = pass::PIPELINE.iter().enumerate();
    let numbered = numbered.map(|(i, p)| line(&(i + 1).to_string(), p.name, p.reason));
    let extra = pass::EXTRA.iter().map(|p| line("-", p.name, p.reason));
    let library = pass::LIBRARY
        .iter()
        .map(|(name, module, reason)| line("*", name, &format!("{reason} ({module})")));
    numbered.chain(extra).chain(library).collect()
}

fn show_pass(name: &str) -> Outcome {
    let Some(Pass {
        name, reason, example, ..
    }) = pass::by_name(name)
    else {
        return Err(unknown_pass(name));
    };
    output::write_stdout(format!("{name}: {reason}\n\n{example}").as_bytes())
}

fn unknown_pass(name: &str) -> Stop {
    let d = Diagnostic::new(Code::E0807, format!("unknown pass `{name}`"));
    let names: Vec<&str> = pass::all_passes().map(|p| p.name).collect();
    let library = pass::LIBRARY.iter().find(|t| t.0 == name);
    match (library, nearest(name, names)) {
        (Some((_, module, _)), _) => d.help(format!("this pass takes arguments; see {module}")).into(),
        (None, Some(near)) => d.help(format!("there is a pass with a similar name: `{near}`")).into(),
        (None, None) => d.help("run `fxc passes` to list all passes").into(),
    }
}
