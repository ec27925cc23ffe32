//! `fxc print`: writes a graph in one of several forms.

use super::inputs::{InputArgs, compiled_types};
use super::model::{given_dims, parse_dim};
use super::weights::{FxirDestination, WeightsFiles, WeightsSource, keep_values};
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
pub(super) use crate::driver::form::PrintForm;
use crate::driver::{form, sizes};
use crate::graph::GraphModule;
use crate::graph::svg::Groups;
use crate::import;
use crate::types::Type;
use std::path::Path;

/// Print a model in another format
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model
    model: String,
    #[command(flatten)]
    inputs: InputArgs,
    /// The output format
    #[arg(long, default_value = "fxir")]
    format: PrintForm,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the parameters, buffers and constants to this file, and refer to it in the FXIR
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
    #[command(flatten)]
    source: WeightsSource,
    /// Infer types and include them
    #[arg(long)]
    typed: bool,
    /// Optimise and lower the graph and show which nodes are fused; with dot, svg and model-explorer, draw the steps of
    /// the compiled program
    #[arg(long, conflicts_with_all = ["typed", "weights"])]
    fused: bool,
    /// Set a symbolic size, for --fused
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
}

/// `fxc print`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    app.set_subject(&args.model);
    // Torch's own text formats show an exported program in its exported form.
    app.session.lifted = matches!(
        args.format,
        PrintForm::Torch | PrintForm::Code | PrintForm::Readable | PrintForm::Program | PrintForm::Tabular
    ) && args.weights.is_none();
    args.source.apply(app);
    let mut model = app.session.load(&args.model)?;
    let numbers = args.inputs.declare_inputs(app, &mut model.module)?;
    let held = WeightsFiles::from_module(&model.module);
    if args.typed {
        app.session.check(&mut model.module, &[])?;
    }
    if args.fused {
        let groups = fusion_groups(app, &mut model.module, &args.dims, numbers)?;
        app.show_findings();
        let text = write_grouped(&model.module, args.format, &groups)?;
        return output::write_artifact(args.output.as_deref(), text.as_bytes());
    }
    app.show_findings();
    let mut module = model.module;
    let to = FxirDestination {
        source: &args.model,
        output: args.output.as_deref(),
        weights: args.weights.as_deref(),
        how: None,
    };
    if args.format == PrintForm::Fxir {
        keep_values(app, &mut module, &held, &to)?;
    } else if let Some(path) = &args.weights {
        import::write_weights(&module, Path::new(path), |_, _| true)?;
    }
    output::write_artifact(args.output.as_deref(), write_module(&module, args.format)?.as_bytes())
}

/// Optimises and lowers the module. Returns the step that computes each node.
fn fusion_groups(
    app: &mut App,
    module: &mut GraphModule,
    dims: &[(String, i64)],
    numbers: Vec<Type>,
) -> Result<Groups, Stop> {
    let dims = given_dims(app, module, dims)?;
    let (dims, _) = sizes::assumed_dims(module, dims)?;
    let types = compiled_types(module, &dims, numbers);
    Ok(form::fused_groups(&mut app.session, module, &dims, &types)?)
}

/// The module in the given form.
pub(super) fn write_module(m: &GraphModule, form: PrintForm) -> Result<String, Stop> {
    write_grouped(m, form, &Groups::new())
}

/// The module in the given form. Drawings show the groups of the entry graph's nodes.
fn write_grouped(m: &GraphModule, form: PrintForm, groups: &Groups) -> Result<String, Stop> {
    let text = form::write_form(m, form, groups);
    if text.is_empty() {
        return Err(Diagnostic::new(Code::E0113, "the file contains no graph to print").into());
    }
    Ok(text)
}
