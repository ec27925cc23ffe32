//! `fxc compile`: compiles a model and prints a short report.

mod save;

use super::inputs::{InputArgs, compiled_types};
use super::limits::parse_threads;
use super::model::{ModelArgs, SizeList, parse_sizes};
use super::weights::{FxirDestination, WeightsFile, WeightsFiles, keep_values};
use super::{App, Outcome, Stop, output};
use crate::driver::text::Artifact;
use crate::driver::{
    Compilation, Observer, Request, Stage, StageProduct, Timer, compile, lock_observer, nothing_compiled,
};
use crate::graph::{self, GraphModule};
use crate::program::{Program, Step};
use crate::tensor::shown_bytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Compile a model through all stages and print a summary
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    weights: WeightsFile,
    /// Write the text of a stage: ast, graph, code, dot, typed, optimized, tir, fusion, kernel-ir, kernels, clif, asm
    #[arg(long, value_name = "STAGE[=PATH]", value_parser = parse_emit)]
    emit: Vec<(Artifact, Option<String>)>,
    /// Print what each kernel computes and moves, and why other operations were not fused into it (same as `--emit fusion`)
    #[arg(long)]
    explain_fusion: bool,
    /// Number of threads to compile for [default: all of the machine's]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = parse_threads)]
    pub(super) threads: usize,
    /// Write the model with its compiled code to a file, which `fxc run` and `fxc bench` accept as a model
    #[arg(short, long, value_name = "FILE.fxc", conflicts_with_all = ["emit", "explain_fusion"], help_heading = "Compiled models")]
    output: Option<PathBuf>,
    /// Sizes to compile code for: N=1,8, or N,M=1,8 for two names of the same size. Several --at options are combined
    #[arg(long, value_name = "NAME[,NAME]=SIZE,…", value_parser = parse_sizes, requires = "output", help_heading = "Compiled models")]
    pub(super) at: Vec<SizeList>,
    /// Leave the graphs and their weights out of the file: it is half as large, but only runs, and only where its code fits
    #[arg(long, requires = "output", help_heading = "Compiled models")]
    pub(super) code_only: bool,
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
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    let timer = Arc::new(Mutex::new(Timer::default()));
    app.session.observe(timer.clone());
    args.weights.apply(app);
    let mut model = args.model.load(app)?;
    let numbers = args.inputs.declare_inputs(app, &mut model.module)?;
    if let Some(path) = &args.output {
        return save::run(app, args, model, numbers, path);
    }
    let held = WeightsFiles::from_module(&model.module);
    let (dims, assumed) = args.model.assumed_dims(app, &model.module)?;
    let mut emit = args.emit.clone();
    if args.explain_fusion {
        emit.push((Artifact::Fusion, None));
    }
    let modules = Modules::default();
    if emit.iter().any(|(a, _)| is_fxir(*a)) {
        lock_observer(&modules).push((Stage::Load, model.module.clone()));
        app.session.observe(Keeper(modules.clone()));
    }
    let request = Request {
        inputs: Some(compiled_types(&model.module, &dims, numbers)),
        dims,
        threads: args.threads,
        passes: args.model.pass_options(),
        artifacts: emit.iter().map(|(a, _)| *a).collect(),
        until: Some(Stage::Compile),
    };
    let compilation = compile(&mut app.session, model, &request)?;
    app.show_findings();
    print_report(app, args, &compilation, &assumed, &lock_observer(&timer))?;
    for ((artifact, path), (_, text)) in emit.iter().zip(&compilation.texts) {
        let text = match module_after(&modules, artifact.stage()).filter(|_| is_fxir(*artifact)) {
            Some(module) => fxir_text(app, module, &held, &args.model.model.to_string(), path.as_deref())?,
            None => text.clone(),
        };
        output::write_artifact(path.as_deref(), text.as_bytes())?;
    }
    Ok(())
}

fn module_after(modules: &Modules, stage: Stage) -> Option<GraphModule> {
    let modules = lock_observer(modules);
    modules.iter().find(|m| m.0 == stage).map(|m| m.1.clone())
}

/// The modules after each stage.
type Modules = Arc<Mutex<Vec<(Stage, GraphModule)>>>;

/// An observer that keeps the modules after each stage.
struct Keeper(Modules);

impl Observer for Keeper {
    fn after_stage(&mut self, stage: Stage, product: StageProduct, _time: Duration) {
        if let (Stage::Check | Stage::Optimize, StageProduct::Module(m)) = (stage, product) {
            lock_observer(&self.0).push((stage, m.clone()));
        }
    }
}

/// Whether an artifact is a graph as FXIR, which can be run if it names a file with the values of its weights.
fn is_fxir(a: Artifact) -> bool {
    matches!(a, Artifact::Graph | Artifact::Typed | Artifact::Optimized)
}

/// The text of a module for the file `output`. Its values are written beside that file unless the source's weights file
/// has all of them.
fn fxir_text(
    app: &App,
    mut m: GraphModule,
    held: &WeightsFiles,
    source: &str,
    output: Option<&str>,
) -> Result<String, Stop> {
    let to = FxirDestination {
        source,
        output,
        weights: None,
        how: Some("use `--emit STAGE=FILE` to write them to separate files"),
    };
    keep_values(app, &mut m, held, &to)?;
    Ok(graph::print(&m))
}

/// The passes that changed something, with their numbers of changes.
fn describe_changes(compilation: &Compilation) -> String {
    let changed = compilation.report.iter().flat_map(|r| r.changed());
    let changed: Vec<String> = changed.map(|p| format!("{} {}", p.name, p.changed)).collect();
    match changed.is_empty() {
        true => "nothing to change".into(),
        false => changed.join(", "),
    }
}

/// Prints a short report.
fn print_report(
    app: &App,
    args: &Args,
    compilation: &Compilation,
    assumed: &[String],
    timer: &Timer,
) -> Result<(), Stop> {
    let Some(ready) = &compilation.ready else {
        return Err(nothing_compiled().into());
    };
    app.show_progress(&args.model.model.to_string());
    if !assumed.is_empty() {
        app.show_progress(&format!(
            "  sizes    {} assumed; set them with --dim",
            assumed.join(", ")
        ));
    }
    let (before, after) = compilation.nodes;
    app.show_progress(&format!("  nodes    {before} -> {after}"));
    app.show_progress(&format!("  passes   {}", describe_changes(compilation)));
    if let Some(executable) = ready.executable() {
        print_steps(app, executable.program());
    }
    if ready.interpreted_count() > 0 {
        app.show_progress(&format!(
            "  interpreted {}",
            crate::diag::words::count(ready.interpreted_count(), "operation")
        ));
    }
    app.show_progress(&format!("  ms       {}", timer.summary_line()));
    Ok(())
}

/// Prints the steps of the compiled part.
fn print_steps(app: &App, program: &Program) {
    let count = |is: fn(&Step) -> bool| program.steps.iter().filter(|s| is(s)).count();
    app.show_progress(&format!(
        "  steps    {} kernels, {} contractions, {} library calls",
        count(|s| matches!(s, Step::Kernel { .. })),
        count(|s| matches!(s, Step::Contract { .. })),
        count(|s| matches!(s, Step::Routine { .. } | Step::Control { .. }))
    ));
    app.show_progress(&format!(
        "  memory   arena {} ({} without sharing), weights {}",
        shown_bytes(program.arena),
        shown_bytes(program.naive_arena),
        shown_bytes(program.weight_bytes())
    ));
}
