//! `fxc emit-code`: writes the code of a stage.

use super::inputs::{InputArgs, compiled_types, general_types};
use super::model::ModelArgs;
use super::weights::WeightsSource;
use super::{App, Outcome, output};
use crate::driver::text::Artifact;
use crate::driver::{Compilation, Request, Stage, compile, nothing_compiled, sizes};
use crate::{import, program};
use clap::ValueEnum;
use std::path::Path;

/// Generate code: Python for the graph, or the compiled kernels
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    source: WeightsSource,
    /// The kind of code
    #[arg(long, default_value = "graph")]
    stage: CodeStage,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the parameters, buffers and constants that the code reads; for kernels, under the program's names
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum CodeStage {
    /// The graph as Python, in the form of torch's gm.code
    Graph,
    /// The optimised graph as Python, with calls of torch functions
    Optimized,
    /// The whole program as Python with numpy, which computes the same results as the native code
    Kernels,
    /// The kernels in Cranelift's IR
    Clif,
    /// The kernels' machine code, annotated with vector widths and the node and source location of each part
    Asm,
    /// The kernels as an object file for a linker or a disassembler: functions `kernel0`, `kernel1`, … and their constants
    Object,
}

impl CodeStage {
    /// The text to print; an object file is not a text.
    fn artifact(self) -> Option<Artifact> {
        match self {
            CodeStage::Graph => Some(Artifact::Code),
            CodeStage::Optimized => Some(Artifact::OptimizedCode),
            CodeStage::Kernels => Some(Artifact::Kernels),
            CodeStage::Clif => Some(Artifact::Clif),
            CodeStage::Asm => Some(Artifact::Asm),
            CodeStage::Object => None,
        }
    }
}

/// `fxc emit-code`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.source.apply(app);
    let mut model = args.model.load(app)?;
    let numbers = args.inputs.declare_inputs(app, &mut model.module)?;
    let requested = args.model.resolve_dims(app, &model.module)?;
    let (dims, assumed) = sizes::assumed_dims(&model.module, requested.clone())?;
    // Python of the graph works for all sizes and numbers that the graph takes; kernels only for the given or assumed
    // ones.
    let every = matches!(args.stage, CodeStage::Graph | CodeStage::Optimized);
    let request = Request {
        inputs: Some(match every {
            true => general_types(&model.module, &requested, numbers),
            false => compiled_types(&model.module, &dims, numbers),
        }),
        dims,
        threads: 1,
        passes: args.model.pass_options(),
        artifacts: args.stage.artifact().into_iter().collect(),
        until: (args.stage == CodeStage::Object).then_some(Stage::Lower),
    };
    let compilation = compile(&mut app.session, model, &request)?;
    app.show_findings();
    if !every && !assumed.is_empty() {
        app.show_progress(&format!("sizes assumed: {} (set them with --dim)", assumed.join(", ")));
    }
    if let Some(path) = &args.weights {
        write_constants(&compilation, args.stage, Path::new(path))?;
    }
    if args.stage == CodeStage::Object {
        return write_object(app, compilation, args.output.as_deref());
    }
    for (_, text) in &compilation.texts {
        output::write_artifact(args.output.as_deref(), text.as_bytes())?;
    }
    Ok(())
}

/// Writes the constants that the code loads: those of the program for kernels, the module's for the graph.
fn write_constants(compilation: &Compilation, stage: CodeStage, path: &Path) -> Outcome {
    match (&compilation.program, stage) {
        (Some(program), CodeStage::Kernels) => {
            let constants = program::python::named_constants(program);
            import::write_tensors(path, constants.iter().map(|(n, t)| (n.as_str(), *t)))?;
        }
        _ => import::write_weights(&compilation.module, path, |_, _| true)?,
    }
    Ok(())
}

fn write_object(app: &mut App, compilation: Compilation, output: Option<&str>) -> Outcome {
    let program = compilation.program.ok_or_else(nothing_compiled)?;
    let bytes = app.session.compile_object(&program)?;
    output::write_artifact(output, &bytes)
}
