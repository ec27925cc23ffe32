//! Writes a model as text or as a drawing, in any of its forms.

use super::{json, model_explorer, netron, text};
use crate::driver::inputs::bind::Dims;
use crate::driver::session::{Session, Staged};
use crate::graph::svg::Groups;
use crate::graph::{self, GraphModule};
use crate::pass::PassOptions;
use crate::types::Type;

/// The forms of a model as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum PrintForm {
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

impl PrintForm {
    /// The form with this name on the command line.
    pub fn from_name(name: &str) -> Option<PrintForm> {
        Some(match name {
            "fxir" => PrintForm::Fxir,
            "torch" => PrintForm::Torch,
            "code" => PrintForm::Code,
            "readable" => PrintForm::Readable,
            "program" => PrintForm::Program,
            "tabular" => PrintForm::Tabular,
            "dot" => PrintForm::Dot,
            "svg" => PrintForm::Svg,
            "json" => PrintForm::Json,
            "model-explorer" => PrintForm::ModelExplorer,
            "netron" => PrintForm::Netron,
            _ => return None,
        })
    }
}

/// Writes the module in the given form. Drawings show the groups of the entry graph's nodes. Empty if there is no
/// graph.
pub fn write_form(m: &GraphModule, form: PrintForm, groups: &Groups) -> String {
    let none = Groups::new();
    let groups_of = |name: &str| {
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
    match form {
        PrintForm::Fxir => graph::print(m),
        PrintForm::Torch => each(&|_, g| ended(graph::torch_print::print(g, Some(m)))),
        PrintForm::Code => m
            .entry()
            .map_or(String::new(), |g| graph::python::code(g, Some(m)).source),
        PrintForm::Readable => graph::readable::print_readable(m),
        PrintForm::Program => graph::readable::print_program(m),
        PrintForm::Tabular => each(&|_, g| ended(graph::tabular::print_tabular(g, Some(m)))),
        PrintForm::Dot => each(&|name, g| ended(graph::dot::with_groups(g, name, Some(m), groups_of(name)))),
        // A drawing shows only the entry graph, since one drawing is one file.
        PrintForm::Svg => m
            .entry()
            .map(|g| graph::svg::svg(g, &m.name, groups))
            .unwrap_or_default(),
        PrintForm::ModelExplorer => format!("{:#}\n", model_explorer::from_module(m, groups)),
        PrintForm::Netron => format!("{:#}\n", netron::from_module(m)),
        PrintForm::Json => format!("{:#}\n", json::from_module(m)),
    }
}

/// Optimises and lowers the module. Returns the step that computes each node. `inputs` are the types of the inputs,
/// with all sizes known.
pub fn fused_groups(session: &mut Session, module: &mut GraphModule, dims: &Dims, inputs: &[Type]) -> Staged<Groups> {
    session.check(module, inputs)?;
    session.optimize(module, &PassOptions::default())?;
    let program = session.lower(module, dims)?;
    let graph = module.entry();
    Ok(graph.map(|g| text::step_groups(g, &program)).unwrap_or_default())
}
