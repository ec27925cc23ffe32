use super::{Outcome, output};
use crate::pass;

/// List the passes in the order they run, each with its reason
#[derive(clap::Args)]
pub struct Args {}

/// `fxc passes`.
pub fn main(_args: &Args) -> Outcome {
    let width = pass::all().map(|p| p.name.len()).max().unwrap_or(0);
    let extra = |p: &pass::Pass| format!(" -  {:width$}  {}\n", p.name, p.reason);
    let line = |(i, p): (usize, &pass::Pass)| format!("{:>2}  {:width$}  {}\n", i + 1, p.name, p.reason);
    output::stdout(
        pass::PIPELINE
            .iter()
            .enumerate()
            .map(line)
            .chain(pass::EXTRA.iter().map(extra))
            .collect::<String>()
            .as_bytes(),
    )
}
