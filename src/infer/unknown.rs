//! Diagnostics for unknown names of ops and modules, with suggestions.

use super::functional;
use super::report::{spell_target, with_place};
use crate::diag::{Code, Diagnostic, Diagnostics, NameIndex, nearest, words};
use crate::graph::{Graph, GraphModule, Node, NodeId, Opcode, place_note};
use crate::op::{self, meant, modules};
use crate::source::Span;
use crate::types::Val;
use indexmap::IndexMap;
use std::cell::OnceCell;

/// The error for a spelling that is not in the table (E0201); [`suggest_names`] adds suggestions.
pub(super) fn unknown_op(graph: &Graph, n: NodeId) -> Diagnostic {
    let span = graph.target_span(n);
    let name =
        functional::wrapped_op(&graph[n]).map_or_else(|| spell_target(graph, n), |op| format!("`torch.ops.{op}`"));
    Diagnostic::new(Code::E0201, format!("unknown op: {name}")).at_opt(span, "")
}

/// The error for a module that is not declared (E0201); [`suggest_names`] adds suggestions.
pub(super) fn unknown_module(graph: &Graph, n: NodeId) -> Diagnostic {
    let node = &graph[n];
    let span = graph.target_span(n);
    Diagnostic::new(Code::E0201, format!("module `{}` is not declared", node.target())).at_opt(span, "")
}

/// The callable names that the file itself defines.
pub(super) fn own_names(module: &GraphModule) -> NameIndex<'_> {
    let graphs = module.graphs.keys().map(|k| &**k);
    NameIndex::new(graphs.chain(module.ops.keys().map(|k| &**k)))
}

/// Adds suggestions for an unknown name. `fits` says whether the node's arguments fit an op of the table.
pub(super) fn suggest_names(
    module: &GraphModule,
    graph: &Graph,
    n: NodeId,
    d: Diagnostic,
    own_names: &NameIndex<'_>,
    fits: &dyn Fn(&str) -> bool,
) -> Diagnostic {
    let node = &graph[n];
    if node.op() == Opcode::CallModule {
        return suggest_module(module, graph, n, d);
    }
    let path = op::canonical_path(node.target(), node.op() == Opcode::CallMethod);
    if let Some(reason) = meant::why_outside(&path) {
        return d.note(format!("fxc does not support it: {reason}"));
    }
    if let Some(help) = meant::how_replaced(&path) {
        return d.help(help);
    }
    if let Some(op) = functional::wrapped_op(node) {
        return write_as_graph(d, op);
    }
    let d = class_help(d, graph, n);
    let d = match suggest_spelling(graph, n, &path, own_names, fits) {
        Some(Meant { shown, why, safe }) => match (graph.text(n).target_span, safe) {
            (Some(s), true) => return d.fix(s, shown, why),
            (Some(s), false) => d.suggest(s, shown, why),
            (None, _) => d.help(format!("{why}: `{shown}`")),
        },
        None if meant::is_export_level(node.target()) => d,
        None => make_known(d, graph, n),
    };
    match meant::is_export_level(node.target()) {
        true => d.help(
            "`exported_program.run_decompositions({})` before `torch.export.save` replaces most ops that fxc does not know",
        ),
        false => d,
    }
}

/// Adds the declared module with a similar name, or how to declare the module.
fn suggest_module(module: &GraphModule, graph: &Graph, n: NodeId, d: Diagnostic) -> Diagnostic {
    match nearest(graph[n].target(), module.modules.keys().map(|k| &**k)) {
        Some(similar) => d.help(format!("there is a module with a similar name: `{similar}`")),
        None => declare_module(d, graph, n),
    }
}

/// Adds how to declare a module.
fn declare_module(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    let declaration = format!("declare it, for example `module {} = ReLU()`", graph[n].target());
    match graph.text(n).torch {
        None => d.help(declaration),
        Some(_) => d.help(format!(
            "use the output of `print(gm)`, which includes the modules, instead of `print(gm.graph)`; or {declaration}"
        )),
    }
}

/// Adds how to use a class that is called as a function.
fn class_help(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    let target = graph[n].target();
    match meant::class_meant(target).filter(|_| meant::names_a_class(target)) {
        Some(class) => d.help(format!(
            "`{class}` is a module class: declare it before the graph, `module m = {class}(…)`, and call it, `call_module m(%x)`"
        )),
        None => d,
    }
}

/// Adds how to define an unknown op.
fn make_known(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    let node = &graph[n];
    if node.op() == Opcode::CallMethod {
        return d
            .help("`call_method` supports only methods of torch.Tensor; call other functions with `call_function`");
    }
    let name = op::canonical_path(node.target(), false);
    let name = name.strip_suffix(".default").unwrap_or(&name);
    // Common prefixes of functions that torch does not have.
    let of_python = ["torch.", "operator.", "numpy.", "np."];
    let python = !node.target().starts_with("torch.ops.") && of_python.iter().any(|p| name.starts_with(p));
    let name = if python {
        name.rsplit('.').next().unwrap_or(name)
    } else {
        name
    };
    let schema = name.replacen('.', "::", 1);
    let (parameters, x) = likely_parameters(node);
    let d = d.help(format!(
        "define a custom op as a graph in this file (`graph {name} {{ … }}`), as a scalar expression (`pointwise \
         \"{schema}({parameters}) -> Tensor\" = \"{x} * 2\"`) or in Rust (`fxc::custom::register`)"
    ));
    match graph.text(n).target_span {
        None => d.help("to add the definition, write the model as text with `fxc print MODEL -o model.fxir`"),
        Some(_) => d,
    }
}

/// Adds how to define an op that writes to its arguments.
fn write_as_graph(d: Diagnostic, op: &str) -> Diagnostic {
    let name = op.strip_suffix(".default").unwrap_or(op);
    d.help(format!(
        "the op writes to its arguments; define it as a graph, `graph {name} {{ … }}`, with the op's parameters as its inputs \
         and with in-place calls, such as `call_function torch.ops.aten.copy_.default(%out, %new)`, for its writes"
    ))
    .help("to add the graph, write the archive as text with `fxc print MODEL -o model.fxir`")
}

/// Schema parameters of a pointwise op that the node's arguments fit, and the name of the first tensor among them.
fn likely_parameters(node: &Node) -> (String, String) {
    let positional = node.args().iter().enumerate().map(|(i, a)| (format!("x{i}"), a));
    let named = node.kwargs().iter().map(|(k, a)| (k.to_string(), a));
    let mut shown: Vec<(&str, String)> = vec![];
    for (name, arg) in positional.chain(named) {
        let ty = match arg {
            Val::Leaf(_) => "Tensor",
            Val::Int(_) => "int",
            Val::Float(_) => "float",
            _ => continue,
        };
        shown.push((ty, name));
    }
    if let [("Tensor", name)] = &mut shown[..] {
        *name = "x".into();
    }
    let first = shown.iter().find(|(ty, _)| *ty == "Tensor");
    let first = first.map_or("x", |(_, name)| name).to_string();
    let list: Vec<String> = shown.iter().map(|(ty, name)| format!("{ty} {name}")).collect();
    match list.is_empty() {
        true => ("Tensor x".into(), first),
        false => (list.join(", "), first),
    }
}

/// A suggestion for an unknown name.
struct Meant {
    shown: String,
    why: &'static str,
    /// Whether it is another spelling of the same name and the arguments fit.
    safe: bool,
}

/// The maximum number of spellings whose parameters are checked against the arguments.
const TRIED: usize = 12;

fn suggest_spelling(
    graph: &Graph,
    n: NodeId,
    path: &str,
    own_names: &NameIndex<'_>,
    fits: &dyn Fn(&str) -> bool,
) -> Option<Meant> {
    let (method, target) = (graph[n].op() == Opcode::CallMethod, graph[n].target());
    let (spellings, same) = match meant::is_of_own_library(target) {
        true => (vec![], false),
        false => meant::meant_spellings(path, method),
    };
    if !same
        && !method
        && let Some(similar) = own_names.nearest(target)
    {
        return Some(Meant {
            shown: similar.to_string(),
            why: "this file defines an op with a similar name",
            safe: false,
        });
    }
    let fitting = spellings.iter().take(TRIED).find(|s| fits(s)).copied();
    let similar = fitting.or(spellings.first().copied())?;
    let shown = shown_spelling(similar, target, method);
    let reason = match (same, similar.starts_with("Tensor.") && !method) {
        (true, true) => "it is a tensor method: use `call_method`, or this path",
        (true, false) => "use torch's name for the op",
        (false, _) => "there is an op with a similar name",
    };
    Some(Meant {
        shown,
        why: reason,
        safe: same && fitting.is_some(),
    })
}

/// A spelling of the table as the target of a node that has the target `target` now.
fn shown_spelling(spelling: &str, target: &str, method: bool) -> String {
    match spelling.strip_prefix("Tensor.") {
        Some(m) if method => m.to_string(),
        Some(_) => format!("torch.{spelling}"),
        None if target.starts_with("torch.ops.") && spelling.starts_with("aten.") => format!("torch.ops.{spelling}"),
        None => spelling.to_string(),
    }
}

/// An unknown op and its uses.
struct Unknown {
    diagnostic: Diagnostic,
    spans: Vec<Option<Span>>,
    places: Vec<String>,
}

/// Unknown ops, collected so that each spelling is reported once with all its uses.
#[derive(Default)]
pub(super) struct Unknowns<'m> {
    by_spelling: IndexMap<String, Unknown>,
    own: OnceCell<NameIndex<'m>>,
}

impl<'m> Unknowns<'m> {
    /// The maximum number of uses and of places that a report shows.
    const SHOWN: usize = 3;

    /// Adds a use. `fits` is as for [`suggest_names`].
    pub(super) fn add(
        &mut self,
        module: &'m GraphModule,
        graph: &Graph,
        n: NodeId,
        d: Diagnostic,
        fits: &dyn Fn(&str) -> bool,
    ) {
        let span = graph.target_span(n);
        let place = place_note(graph, n);
        if !self.by_spelling.contains_key(&d.title) {
            let own_index = self.own.get_or_init(|| own_names(module));
            let title = d.title.clone();
            let unknown = Unknown {
                diagnostic: suggest_names(module, graph, n, d.clone(), own_index, fits),
                spans: vec![],
                places: vec![],
            };
            self.by_spelling.insert(title, unknown);
        }
        if let Some(unknown) = self.by_spelling.get_mut(&d.title) {
            unknown.spans.push(span);
            unknown.places.extend(place);
        }
    }

    /// Reports all unknown ops.
    pub(super) fn report(&mut self, out: &mut Diagnostics) {
        for (_, unknown) in std::mem::take(&mut self.by_spelling) {
            let Unknown {
                diagnostic: mut d,
                spans,
                places,
            } = unknown;
            for s in spans.iter().skip(1).take(Self::SHOWN - 1).flatten() {
                d = d.see(*s, "also here");
            }
            if spans.len() > Self::SHOWN {
                d = d.note(format!("used {} times in total", spans.len()));
            }
            for p in places.iter().take(Self::SHOWN) {
                d = d.note(p.clone());
            }
            out.push(d);
        }
    }
}

/// The error for a module with an invalid class or constructor arguments, located at its declaration.
pub(super) fn declaration_error(module: &GraphModule, name: &str, e: op::OpError) -> Diagnostic {
    let decl = &module.modules[name];
    let class_span = decl.places.as_ref().map(|p| p.class);
    let parameters = modules::constructor_params(&decl.class).unwrap_or_default();
    let place = e.param.as_deref().and_then(|p| {
        let index = parameters.iter().position(|(n, _)| *n == p);
        decl.argument_place(p, index).map(|spans| (p, spans))
    });
    let mut d = Diagnostic::new(e.code, e.title);
    d = match place {
        Some((p, (Some(keyword), _))) if !parameters.iter().any(|(n, _)| *n == p) => {
            let d = d.at(keyword, "");
            match nearest(p, parameters.iter().map(|(n, _)| *n)) {
                Some(similar) => d.suggest(keyword, similar, "there is a parameter with a similar name"),
                None => d,
            }
        }
        Some((_, (_, value))) => d.at(value, ""),
        None => d.at_opt(class_span.or(decl.span), format!("module `{name}` is declared here")),
    };
    if e.code == Code::E0201 {
        d = unknown_class(d, &decl.class, class_span);
    }
    e.notes.into_iter().for_each(|n| d.notes.push(words::clip_text(n)));
    e.help.into_iter().for_each(|h| d.help.push(words::clip_text(h)));
    d
}

/// Adds suggestions for an unknown class.
fn unknown_class(d: Diagnostic, class: &str, span: Option<Span>) -> Diagnostic {
    let custom_help = "trace a custom class into a graph: `tools/torch2fxir.py` does this for a whole model";
    let (Some(similar), Some(span)) = (meant::class_meant(class), span) else {
        return d.help(custom_help);
    };
    let same = |a: &str, b: &str| crate::diag::nearest::fold_name(a) == crate::diag::nearest::fold_name(b);
    let base = class.rsplit('.').next().unwrap_or(class);
    match same(base, similar) {
        true => d.fix(span, similar, "use torch's name for the class"),
        false => d
            .suggest(span, similar, "there is a class with a similar name")
            .help(custom_help),
    }
}

/// The error for a module call with the wrong inputs.
pub(super) fn module_call(graph: &Graph, n: NodeId, declared: Option<Span>, e: op::OpError) -> Diagnostic {
    let node = &graph[n];
    let mut d = Diagnostic::new(e.code, e.title).at_opt(node.meta.span, "");
    if let Some(s) = declared {
        d = d.see(s, "the module is declared here");
    }
    e.notes.into_iter().for_each(|n| d.notes.push(words::clip_text(n)));
    e.help.into_iter().for_each(|h| d.help.push(words::clip_text(h)));
    with_place(d, graph, n)
}
