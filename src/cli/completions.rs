//! `fxc completions`: shell completion scripts.

use super::{Outcome, output};

/// Generate a shell completion script
#[derive(clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// `fxc completions`.
pub(super) fn main(args: &Args, command: &mut clap::Command) -> Outcome {
    let mut script = vec![];
    clap_complete::generate(args.shell, command, "fxc", &mut script);
    output::write_stdout(&script)
}
