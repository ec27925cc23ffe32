//! `fxc compile -o FILE.fxc`: writes a model with its code to a file.

use super::Args;
use crate::cli::inputs::compiled_types;
use crate::cli::model::given_dims;
use crate::cli::{App, Outcome, Stop};
use crate::diag::words;
use crate::driver::{BoundInputs, LoadedModel, Request, SaveRequest, save_compiled, sizes};
use crate::graph::GraphModule;
use crate::target::Target;
use crate::tensor::shown_bytes;
use crate::types::Type;
use std::path::Path;

/// Compiles the model for the requested sizes and processors, and writes it.
pub(super) fn run(app: &mut App, args: &Args, model: LoadedModel, numbers: Vec<Type>, path: &Path) -> Outcome {
    let inputs = inputs_of_parts(app, args, &model.module, &numbers)?;
    let request = Request {
        threads: args.threads,
        passes: args.model.pass_options(),
        ..Request::default()
    };
    let targets = match args.model.targets() {
        targets if targets.is_empty() => vec![Target::native()],
        targets => targets,
    };
    let save = SaveRequest {
        request: &request,
        targets: &targets,
        inputs: &inputs,
        code_only: args.code_only,
    };
    let saved = save_compiled(&mut app.session, model, &save, path)?;
    app.show_findings();
    app.show_progress(&format!(
        "{}: {}, {}",
        path.display(),
        words::count(saved.parts, "native part"),
        shown_bytes(saved.bytes as usize)
    ));
    Ok(())
}

/// The types of inputs to compile for: one entry for each combination of the sizes given with `--at`.
fn inputs_of_parts(
    app: &mut App,
    args: &Args,
    module: &GraphModule,
    numbers: &[Type],
) -> Result<Vec<BoundInputs>, Stop> {
    let all = sizes::combine_sizes(args.model.dims.clone(), &args.at);
    let mut out = vec![];
    for sizes in all {
        let dims = given_dims(app, module, &sizes)?;
        let (dims, assumed) = sizes::assumed_dims(module, dims)?;
        if !assumed.is_empty() {
            app.say_once(&format!(
                "note: {} assumed; set sizes with --at and --dim",
                assumed.join(", ")
            ));
        }
        out.push(BoundInputs {
            values: vec![],
            types: compiled_types(module, &dims, numbers.to_vec()),
            dims,
        });
    }
    Ok(out)
}
