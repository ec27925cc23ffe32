//! `fxc rewrite`: applies a user's rules to a model.

use super::inputs::InputArgs;
use super::print::PrintForm;
use super::weights::{BY_OPTIONS, FxirDestination, WeightsFiles, WeightsSource, write_changed_module};
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic, words};
use crate::rewrite::{self, RewriteOptions, RewriteReport, Rule, Samples, Verdict};

/// Apply rewrite rules to a model
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model; rules in its file are applied too
    model: String,
    #[command(flatten)]
    inputs: InputArgs,
    /// A file of rules
    #[arg(long, value_name = "FILE")]
    rules: Vec<String>,
    /// Also apply rules marked `fast`, which may change rounding, NaN or signed zeros
    #[arg(long)]
    fast_math: bool,
    /// Show where rules fired, and why near matches failed
    #[arg(long)]
    remarks: bool,
    /// Stop a rule after this many rewrites in one graph, and keep its changes
    #[arg(long, value_name = "N")]
    budget: Option<usize>,
    /// First try each rule on random graphs that it matches and on random values; report those that change a result (E0808)
    #[arg(long)]
    verify: bool,
    /// Match only the original graph, not nodes that rules have created
    #[arg(long)]
    once: bool,
    /// The output format
    #[arg(long, default_value = "fxir")]
    format: PrintForm,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the parameters, buffers and constants
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
    #[command(flatten)]
    source: WeightsSource,
}

/// `fxc rewrite`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    app.set_subject(&args.model);
    let mut rules = vec![];
    for path in &args.rules {
        rules.extend(app.session.load_rules(path)?);
    }
    args.source.apply(app);
    let mut model = app.session.load(&args.model)?;
    args.inputs.declare_inputs(app, &mut model.module)?;
    let held = WeightsFiles::from_module(&model.module);
    app.session.check(&mut model.module, &[])?;
    if let Some(tree) = &model.tree {
        rules.extend(app.session.check_rules(tree)?);
    }
    if rules.is_empty() {
        let d = Diagnostic::new(Code::E0806, "no rules were given");
        return Err(d.help("pass a rules file with --rules").into());
    }
    if args.verify {
        verify_rules(app, &rules, &Samples::of_module(&model.module))?;
    }
    let options = RewriteOptions {
        fast: args.fast_math,
        remarks: args.remarks,
        budget: args.budget,
        once: args.once,
        ..RewriteOptions::default()
    };
    let report = rewrite::rewrite(&mut model.module, &rules, &options)?;
    app.session.check(&mut model.module, &[])?;
    app.show_findings();
    show_report(app, &report, args);
    let to = FxirDestination {
        source: &args.model,
        output: args.output.as_deref(),
        weights: args.weights.as_deref(),
        how: Some(BY_OPTIONS),
    };
    write_changed_module(app, &mut model.module, args.format, &held, &to)
}

/// Tries the rules on random values. Reports all that change a result.
fn verify_rules(app: &mut App, rules: &[Rule], samples: &Samples) -> Outcome {
    let mut failed = false;
    for rule in rules {
        match rewrite::verify(rule, rewrite::TRIALS, samples) {
            Verdict::Held(trials) => app.show_progress(&format!(
                "verified: `{}` holds in {}",
                rule.name,
                words::count(trials, "random graph")
            )),
            Verdict::Untried => app.show_progress(&format!(
                "note: `{}` was not verified: no random graph matches it",
                rule.name
            )),
            Verdict::Failed(example) => {
                app.session.report(example.to_diagnostic(rule));
                failed = true;
            }
        }
    }
    if failed { Err(Stop::Reported) } else { Ok(()) }
}

fn show_report(app: &App, report: &RewriteReport, args: &Args) {
    if args.remarks {
        report
            .remarks
            .iter()
            .for_each(|r| output::write_progress(&r.to_string()));
    }
    let fired: Vec<String> = report
        .fired
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    match fired.is_empty() {
        true => app.show_progress("no rule matched"),
        false => app.show_progress(&format!("rewritten: {}", fired.join(", "))),
    }
    let budget = args.budget.unwrap_or_default();
    for (rule, graph) in &report.stopped {
        app.show_progress(&format!(
            "note: stopped after {budget} rewrites (--budget); `{rule}` still matches in `{graph}`"
        ));
    }
}
