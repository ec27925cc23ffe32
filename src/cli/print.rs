//! `fxc print`: a graph in one of its forms.

use super::inputs::{InputArgs, compiled_types};
use super::model::{assumed_dims, given_dims, parse_dim};
use super::weights::{FxirDestination, Held, WeightsSource, keep_values};
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::{json, model_explorer, netron, text};
use crate::graph::svg::Groups;
use crate::graph::{self, GraphModule};
use crate::import;
use crate::pass::PassOptions;
use crate::types::Type;
use clap::ValueEnum;
use std::path::Path;

/// Write a model in another form
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model
    model: String,
    #[command(flatten)]
    inputs: InputArgs,
    /// The form
    #[arg(long, default_value = "fxir")]
    format: PrintForm,
    /// Where to; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Also write the parameters, buffers and constants here, and let the FXIR name the file
    #[arg(long, value_name = "FILE.safetensors")]
    weights: Option<String>,
    #[command(flatten)]
    source: WeightsSource,
    /// Infer types first, and write them
    #[arg(long)]
    typed: bool,
    /// Optimise and lower first, and show which nodes are computed together: dot, svg and model-explorer draw the
    /// steps of the compiled program
    #[arg(long, conflicts_with_all = ["typed", "weights"])]
    fused: bool,
    /// Binds a symbolic size, for --fused
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    dims: Vec<(String, i64)>,
}

/// The forms of a model as text.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum PrintForm {
    /// FXIR, which holds everything
    Fxir,
    /// As torch's print(graph)
    Torch,
    /// As torch's gm.code
    Code,
    /// As torch's gm.print_readable()
    Readable,
    /// As torch's print(exported_program)
    Program,
    /// As torch's graph.print_tabular()
    Tabular,
    /// As torch's FxGraphDrawer, for Graphviz
    Dot,
    /// A drawing
    Svg,
    /// JSON
    Json,
    /// JSON that Model Explorer opens
    ModelExplorer,
    /// JSON that Netron opens
    Netron,
}

/// `fxc print`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    app.set_subject(&args.model);
    // Torch's own texts show an exported program as it was exported.
    app.session.lifted = matches!(
        args.format,
        PrintForm::Torch | PrintForm::Code | PrintForm::Readable | PrintForm::Program | PrintForm::Tabular
    ) && args.weights.is_none();
    args.source.apply(app);
    let mut model = app.session.load(&args.model)?;
    let numbers = args.inputs.declare_inputs(app, &mut model.module)?;
    let held = Held::from_module(&model.module);
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

/// Optimises and lowers the module, and gives the step that computes each node.
fn fusion_groups(
    app: &mut App,
    module: &mut GraphModule,
    dims: &[(String, i64)],
    numbers: Vec<Type>,
) -> Result<Groups, Stop> {
    let dims = given_dims(app, module, dims)?;
    let (dims, _) = assumed_dims(module, dims)?;
    app.session.check(module, &compiled_types(module, &dims, numbers))?;
    app.session.optimize(module, &PassOptions::default())?;
    let program = app.session.lower(module, &dims)?;
    Ok(module
        .entry()
        .map(|g| text::step_groups(g, &program))
        .unwrap_or_default())
}

/// The module in that form.
pub(super) fn write_module(m: &GraphModule, form: PrintForm) -> Result<String, Stop> {
    write_grouped(m, form, &Groups::new())
}

/// The module in that form, where drawings show the groups of the entry graph's nodes.
fn write_grouped(m: &GraphModule, form: PrintForm, groups: &Groups) -> Result<String, Stop> {
    let none = Groups::new();
    let of = |name: &str| {
        let is_entry = m.entry_name().is_some_and(|e| &**e == name);
        if is_entry { groups } else { &none }
    };
    let each = |f: &dyn Fn(&str, &graph::Graph) -> String| {
        let texts: Vec<String> = m.graphs.iter().map(|(name, g)| f(name, g)).collect();
        texts.join("\n")
    };
    let ended = |mut s: String| {
        if !s.ends_with('\n') {
            s.push('\n');
        }
        s
    };
    let text = match form {
        PrintForm::Fxir => graph::print(m),
        PrintForm::Torch => each(&|_, g| ended(graph::torch_print::print(g, Some(m)))),
        PrintForm::Code => m
            .entry()
            .map_or(String::new(), |g| graph::python::code(g, Some(m)).source),
        PrintForm::Readable => graph::readable::print_readable(m),
        PrintForm::Program => graph::readable::print_program(m),
        PrintForm::Tabular => each(&|_, g| ended(graph::tabular::print_tabular(g, Some(m)))),
        PrintForm::Dot => each(&|name, g| ended(graph::dot::with_groups(g, name, Some(m), of(name)))),
        // One drawing is one file: the entry graph's.
        PrintForm::Svg => m
            .entry()
            .map(|g| graph::svg::svg(g, &m.name, groups))
            .unwrap_or_default(),
        PrintForm::ModelExplorer => format!("{:#}\n", model_explorer::from_module(m, groups)),
        PrintForm::Netron => format!("{:#}\n", netron::from_module(m)),
        PrintForm::Json => format!("{:#}\n", json::from_module(m)),
    };
    if text.is_empty() {
        return Err(Diagnostic::new(Code::E0113, "there is no graph to print").into());
    }
    Ok(text)
}
