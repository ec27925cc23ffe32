//! `fxc bisect`: finds the first pass or node that causes a wrong result.

use super::inputs::{InputArgs, ToleranceArgs, on_inputs};
use super::model::ModelArgs;
use super::weights::WeightsFile;
use super::{App, Outcome};
use crate::diag::{Code, Diagnostic};
use crate::driver::bisect::{self, Blame};

/// Find the first node whose compiled result differs from the interpreter's
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    weights: WeightsFile,
    #[command(flatten)]
    inputs: InputArgs,
    /// Check every node, even if the final result agrees
    #[arg(long)]
    every: bool,
    #[command(flatten)]
    tolerance: ToleranceArgs,
}

/// `fxc bisect`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.weights.apply(app);
    let model = args.model.load(app)?;
    let (mut module, bound) = on_inputs(app, &args.model, model, &args.inputs)?;
    app.session.optimize(&mut module, &args.model.pass_options())?;
    let tolerance = args.tolerance.get();
    let outcome = bisect::find_bad_node(&mut app.session, &module, &bound, tolerance, args.every)?;
    app.show_findings();
    match outcome {
        bisect::BisectOutcome::Agree { nodes } => {
            app.show_progress(&format!(
                "compiled code agrees with the interpreter at {}",
                crate::diag::words::count(nodes, "node")
            ));
            Ok(())
        }
        bisect::BisectOutcome::Differ(b) => {
            let span = module.entry().and_then(|g| g[g.find(&b.name)?].meta.span);
            let title = format!(
                "`%{}` (`{}`) is the first node that differs from the interpreter",
                b.name, b.value
            );
            Err(Diagnostic::new(Code::E0506, title)
                .at_opt(span, "compiled up to here")
                .note(how_far(&b))
                .into())
        }
    }
}

/// Describes how far a value is from the expected one.
pub(super) fn how_far(b: &Blame) -> String {
    let d = &b.difference;
    match &d.mismatch {
        Some(reason) => format!("the value is {reason}"),
        None => format!(
            "{} of {} elements exceed the tolerance, by at most {:.1e}",
            d.outside, d.count, d.max_abs
        ),
    }
}
