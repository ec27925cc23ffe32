//! `fxc opt`: runs and observes passes.

use super::inputs::{InputArgs, on_inputs};
use super::model::ModelArgs;
use super::print::PrintForm;
use super::weights::{BY_OPTIONS, FxirDestination, WeightsFiles, WeightsSource, write_changed_module};
use super::{App, Outcome, Stop};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::driver::compare::Tolerance;
use crate::driver::{LoadedModel, bisect};
use crate::op::Literal;
use crate::pass::{self, PassManager};
use crate::source::FileId;
use crate::syntax::{self, resolve};
use std::collections::HashMap;

/// Run passes on a model and write the result
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The passes, in order [default: the whole pipeline; `fxc passes` lists them]
    #[arg(long, value_name = "PASSES", value_delimiter = ',')]
    passes: Vec<String>,
    /// First replace an input by a literal: x=3
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_fix)]
    fix: Vec<(String, String)>,
    /// Run the interpreter after every pass and report the first pass that changes a result
    #[arg(long)]
    bisect: bool,
    #[command(flatten)]
    inputs: InputArgs,
    /// The output format
    #[arg(long, default_value = "fxir")]
    format: PrintForm,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the resulting parameters, buffers and constants. FXIR written to a file refers to this file; without it, constants
    /// that passes created are written next to the FXIR
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
    #[command(flatten)]
    source: WeightsSource,
}

fn parse_fix(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as n=3")?;
    Ok((name.to_string(), value.to_string()))
}

/// `fxc opt`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.source.apply(app);
    let mut model = args.model.load(app)?;
    args.inputs.declare_inputs(app, &mut model.module)?;
    let held = WeightsFiles::from_module(&model.module);
    specialize_model(args, &mut model)?;
    app.session.check(&mut model.module, &[])?;
    let names = pass_names(args);
    let mut manager = PassManager::from_names(&names)?;
    manager.validate()?;
    let first = manager
        .before_normalize()
        .filter(|_| !pass::verify_canonical(&model.module).is_empty());
    if let Some(name) = first {
        app.show_progress(&format!(
            "`{name}` only handles canonical calls; run `normalize` before it"
        ));
    }
    if args.bisect {
        return blame_pass(app, args, model, &names);
    }
    app.session
        .run_passes(&mut model.module, &mut manager, &args.model.pass_options())?;
    app.show_findings();
    model.module.delete_unused();
    let to = FxirDestination {
        source: &args.model.model,
        output: args.output.as_deref(),
        weights: args.weights.as_deref(),
        how: Some(BY_OPTIONS),
    };
    write_changed_module(app, &mut model.module, args.format, &held, &to)
}

/// The passes to run: those given, or the pipeline's, without those to skip.
fn pass_names(args: &Args) -> Vec<&str> {
    let names: Vec<&str> = match args.passes.is_empty() {
        true => pass::PIPELINE.iter().map(|p| p.name).collect(),
        false => args.passes.iter().map(|p| p.trim()).collect(),
    };
    let skipped = |n: &&str| args.model.skip_pass.iter().any(|s| s == n);
    names.into_iter().filter(|n| !skipped(n)).collect()
}

fn specialize_model(args: &Args, model: &mut LoadedModel) -> Result<(), Stop> {
    let mut inputs = vec![];
    for (name, text) in &args.fix {
        inputs.push((name.clone(), parse_literal(name, text)?));
    }
    let sizes: HashMap<_, _> = args.model.dims.iter().map(|(n, s)| (n.as_str().into(), *s)).collect();
    pass::specialize(&mut model.module, &inputs, &sizes)?;
    Ok(())
}

fn parse_literal(name: &str, text: &str) -> Result<Literal, Diagnostic> {
    let bad = || Diagnostic::new(Code::E0508, format!("`{name}={text}` is not a literal"));
    let (tree, findings) = syntax::parse_value(FileId(0), text);
    let tree = tree.filter(|_| !findings.has_errors()).ok_or_else(bad)?;
    let mut findings = Diagnostics::new();
    let value: Literal = resolve::value(&tree, &mut |_, _| None, &mut findings);
    match value {
        _ if findings.has_errors() => Err(bad()),
        Literal::Unknown => Err(bad()),
        v => Ok(v),
    }
}

fn blame_pass(app: &mut App, args: &Args, model: LoadedModel, names: &[&str]) -> Outcome {
    let passes: Vec<_> = names.iter().filter_map(|n| pass::by_name(n)).collect();
    let (module, bound) = on_inputs(app, &args.model, model, &args.inputs)?;
    let tolerance = Tolerance { rtol: None, atol: 1e-5 };
    let outcome = bisect::find_bad_pass(
        &mut app.session,
        module,
        &passes,
        &args.model.pass_options(),
        &bound,
        tolerance,
    )?;
    app.show_findings();
    match outcome {
        None => {
            app.show_progress(&format!(
                "no pass changes the result, checked on {}",
                crate::diag::words::count(passes.len(), "pass")
            ));
            Ok(())
        }
        Some(b) => {
            let title = format!("the pass `{}` changes the result `{}`", b.name, b.value);
            Err(Diagnostic::new(Code::E0506, title)
                .note(super::bisect::how_far(&b))
                .into())
        }
    }
}
