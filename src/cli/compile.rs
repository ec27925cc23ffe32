//! `fxc compile`: what the compiler makes of a model, in a few lines.

use super::inputs::{InputArgs, compiled_types};
use super::model::ModelArgs;
use super::weights::WeightsFile;
use super::{App, Outcome, Stop, output};
use crate::driver::text::Artifact;
use crate::driver::{Compilation, Request, Stage, Timer, compile, nothing_compiled};
use crate::program::{Program, Step};
use crate::tensor::shown_bytes;
use std::cell::RefCell;
use std::rc::Rc;

/// Compile a model through all stages, and report what was done
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    weights: WeightsFile,
    /// Write the text of a stage: ast, graph, code, dot, typed, optimized, fusion, kernels, clif, asm
    #[arg(long, value_name = "STAGE[=PATH]", value_parser = parse_emit)]
    emit: Vec<(Artifact, Option<String>)>,
    /// Write what each kernel computes and moves, and why other operations are not in it: `--emit fusion`
    #[arg(long)]
    explain_fusion: bool,
    /// Threads to compile for; as many as the machine has by default
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
}

fn parse_emit(text: &str) -> Result<(Artifact, Option<String>), String> {
    let (name, path) = match text.split_once('=') {
        Some((n, p)) => (n, Some(p.to_string())),
        None => (text, None),
    };
    let names = || Artifact::ALL.map(Artifact::name).join(", ");
    Artifact::from_name(name)
        .map(|a| (a, path))
        .ok_or_else(|| format!("`{name}` is not one of {}", names()))
}

/// `fxc compile`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    let timer = Rc::new(RefCell::new(Timer::default()));
    app.session.observe(timer.clone());
    args.weights.apply(app);
    let mut model = args.model.load(app)?;
    let numbers = args.inputs.declare(app, &mut model.module)?;
    let (dims, assumed) = args.model.assumed_dims(app, &model.module)?;
    let mut emit = args.emit.clone();
    if args.explain_fusion {
        emit.push((Artifact::Fusion, None));
    }
    let request = Request {
        inputs: Some(compiled_types(&model.module, &dims, numbers)),
        dims,
        threads: args.threads,
        passes: args.model.pass_options(),
        artifacts: emit.iter().map(|(a, _)| *a).collect(),
        until: Some(Stage::Compile),
    };
    let made = compile(&mut app.session, model, &request)?;
    app.show();
    report(app, args, &made, &assumed, &timer.borrow())?;
    for ((_, path), (_, text)) in emit.iter().zip(&made.texts) {
        output::artifact(path.as_deref(), text.as_bytes())?;
    }
    Ok(())
}

/// What was done, in a few lines.
fn report(app: &App, args: &Args, made: &Compilation, assumed: &[String], timer: &Timer) -> Result<(), Stop> {
    let Some(ready) = &made.ready else {
        return Err(nothing_compiled().into());
    };
    let changed = made
        .report
        .iter()
        .flat_map(|r| r.changed())
        .map(|p| format!("{} {}", p.name, p.changed))
        .collect::<Vec<_>>()
        .join(", ");
    app.progress(&args.model.model.to_string());
    if !assumed.is_empty() {
        app.progress(&format!("  sizes    {} assumed; --dim sets them", assumed.join(", ")));
    }
    app.progress(&format!("  nodes    {} -> {}", made.nodes.0, made.nodes.1));
    app.progress(&format!(
        "  passes   {}",
        if changed.is_empty() {
            "nothing to change"
        } else {
            &changed
        }
    ));
    if let Some(executable) = ready.executable() {
        steps(app, executable.program());
    }
    if ready.interpreted() > 0 {
        app.progress(&format!(
            "  interpreted {}",
            crate::diag::words::count(ready.interpreted(), "operation")
        ));
    }
    app.progress(&format!("  ms       {}", timer.line()));
    Ok(())
}

/// What the compiled part consists of.
fn steps(app: &App, program: &Program) {
    let count = |is: fn(&Step) -> bool| program.steps.iter().filter(|s| is(s)).count();
    app.progress(&format!(
        "  steps    {} kernels, {} contractions, {} library calls",
        count(|s| matches!(s, Step::Kernel { .. })),
        count(|s| matches!(s, Step::Contract { .. })),
        count(|s| matches!(s, Step::Routine { .. } | Step::Control { .. }))
    ));
    app.progress(&format!(
        "  memory   arena {} ({} without sharing), weights {}",
        shown_bytes(program.arena),
        shown_bytes(program.naive_arena),
        shown_bytes(program.weight_bytes())
    ));
}
