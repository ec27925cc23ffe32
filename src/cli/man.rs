//! `fxc man`: the manual page.

use super::{Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::files;
use std::path::Path;

/// Generate the manual pages
#[derive(clap::Args)]
pub(super) struct Args {
    /// Directory for one page per command; without it, the main page is printed
    #[arg(short, long, value_name = "DIR")]
    output: Option<String>,
}

/// `fxc man`.
pub(super) fn main(args: &Args, command: clap::Command) -> Outcome {
    let page = |c: clap::Command| {
        let mut text = vec![];
        let written = clap_mangen::Man::new(c).render(&mut text);
        written
            .map(|()| text)
            .map_err(|e| Stop::from(Diagnostic::new(Code::E0702, files::plain_io_error(&e))))
    };
    let Some(dir) = &args.output else {
        return output::write_stdout(&page(command)?);
    };
    for sub in command.get_subcommands() {
        let name = format!("fxc-{}", sub.get_name());
        // clap_mangen needs a name with a static lifetime. There is one per command.
        let named = sub.clone().name(&*Box::leak(name.clone().into_boxed_str()));
        files::write(&Path::new(dir).join(format!("{name}.1")), &page(named)?)?;
    }
    Ok(files::write(&Path::new(dir).join("fxc.1"), &page(command)?)?)
}
