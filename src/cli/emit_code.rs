//! `fxc emit-code`: the text of a stage.

use super::model::ModelArgs;
use super::{App, Outcome, output};
use crate::driver::text::Artifact;
use crate::driver::{Request, compile};
use crate::{import, lower};
use clap::ValueEnum;
use std::path::Path;

/// Write the code of a stage: Python of the graph, or of the kernels
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Which code
    #[arg(long, default_value = "graph")]
    stage: CodeStage,
    /// Where to; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write what the code reads: parameters, buffers and constants; for kernels under the program's names
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CodeStage {
    /// The graph as Python, as torch writes gm.code
    Graph,
    /// The optimised graph as Python, in torch's functions
    Optimized,
    /// The whole program as Python that runs with numpy and computes what the native code computes
    Kernels,
    /// The kernels in Cranelift's IR
    Clif,
    /// The kernels' machine code
    Asm,
}

/// `fxc emit-code`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    let artifact = match args.stage {
        CodeStage::Graph => Artifact::Code,
        CodeStage::Optimized => Artifact::OptimizedCode,
        CodeStage::Kernels => Artifact::Kernels,
        CodeStage::Clif => Artifact::Clif,
        CodeStage::Asm => Artifact::Asm,
    };
    let model = args.model.load(app)?;
    let (dims, assumed) = args.model.assumed_dims(&model.module)?;
    let request = Request {
        dims,
        threads: 1,
        passes: args.model.pass_options(),
        artifacts: vec![artifact],
        ..Request::default()
    };
    let made = compile(&mut app.session, model, &request)?;
    app.show();
    if matches!(args.stage, CodeStage::Kernels | CodeStage::Clif | CodeStage::Asm) && !assumed.is_empty() {
        app.progress(&format!("sizes assumed: {} (set them with --dim)", assumed.join(", ")));
    }
    if let Some(path) = &args.weights {
        match (&made.program, args.stage) {
            (Some(program), CodeStage::Kernels) => {
                let constants = lower::python::constants(program);
                import::write_tensors(Path::new(path), constants.iter().map(|(n, t)| (n.as_str(), *t)))?;
            }
            _ => import::write_weights(&made.module, Path::new(path), |_, _| true)?,
        }
    }
    for (_, text) in &made.texts {
        output::artifact(args.output.as_deref(), text.as_bytes())?;
    }
    Ok(())
}
