use super::{Outcome, output};
use crate::pass;

/// List the passes in the order they run, each with its reason
#[derive(clap::Args)]
pub struct Args {}

/// `fxc passes`.
pub fn main(_args: &Args) -> Outcome {
    let width = pass::PIPELINE.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let line = |(i, p): (usize, &pass::Pass)| format!("{:>2}  {:width$}  {}\n", i + 1, p.name, p.reason);
    output::stdout(
        pass::PIPELINE
            .iter()
            .enumerate()
            .map(line)
            .collect::<String>()
            .as_bytes(),
    )
}
