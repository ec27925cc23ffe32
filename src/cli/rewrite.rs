//! `fxc rewrite`: rules of a user applied to a model.

use super::print::{Form, write};
use super::{App, Outcome, output};
use crate::diag::{Code, Diagnostic};
use crate::rewrite::{self, Options, Report};

/// Apply rewrite rules to a model
#[derive(clap::Args)]
pub struct Args {
    /// The model; rules in its own file apply too
    model: String,
    /// A file of rules
    #[arg(long, value_name = "FILE")]
    rules: Vec<String>,
    /// Also apply rules marked `fast`, which may change rounding, NaN or signed zeros
    #[arg(long)]
    fast_math: bool,
    /// Show where rules fired, and why they did not where they nearly matched
    #[arg(long)]
    remarks: bool,
    /// How often one rule may fire in one graph
    #[arg(long, value_name = "N")]
    budget: Option<usize>,
    /// The form of what is written
    #[arg(long, default_value = "fxir")]
    format: Form,
    /// Where to; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
}

/// `fxc rewrite`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    app.subject(&args.model);
    let mut rules = vec![];
    for path in &args.rules {
        rules.extend(app.session.load_rules(path)?);
    }
    let mut model = app.session.load(&args.model)?;
    app.session.check(&mut model.module, &[])?;
    if let Some(tree) = &model.tree {
        rules.extend(app.session.rules(tree)?);
    }
    if rules.is_empty() {
        let d = Diagnostic::new(Code::E0806, "there is no rule to apply");
        return Err(d.help("name a file of rules with --rules").into());
    }
    let options = Options {
        fast: args.fast_math,
        remarks: args.remarks,
        budget: args.budget,
        ..Options::default()
    };
    let report = rewrite::rewrite(&mut model.module, &rules, &options)?;
    app.session.check(&mut model.module, &[])?;
    app.show();
    show(app, &report, args.remarks);
    output::artifact(args.output.as_deref(), write(&model.module, args.format)?.as_bytes())
}

fn show(app: &App, report: &Report, remarks: bool) {
    if remarks {
        report.remarks.iter().for_each(|r| output::progress(&r.to_string()));
    }
    let fired: Vec<String> = report
        .fired
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    match fired.is_empty() {
        true => app.progress("no rule matched"),
        false => app.progress(&format!("rewritten: {}", fired.join(", "))),
    }
}
