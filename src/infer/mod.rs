//! Type inference: gives every node a type.
//!
//! Inference is an abstract interpretation over [`Type`]s. Ints, tuples, strings and dtypes are represented by their values
//! where these are known (`x.size(0)` is the int 32 or `N`); tensors are represented by dtype and shape. Each node's spelling is
//! resolved to a row of the op table (`resolve`), the row's rule computes the result's type, and annotations are checked
//! against it.
//!
//! Sizes may be symbolic. Rules demand equations between them ([`Sizes`](crate::op::Sizes)). An equation that is linear in one variable binds the
//! variable (`solve`), an equation that cannot be decided becomes a guard, and a contradiction is an error that names both
//! places.
//!
//! Each error is reported once: the node's type becomes [`Val::Unknown`], which every rule propagates without another error.

mod autocast;
mod call;
mod control;
mod declared;
mod functional;
mod inference;
mod memory;
mod nodes;
mod report;
mod resolve;
mod resolved;
mod solve;
mod unknown;
pub mod untyped;
mod wrappers;

pub(crate) use crate::graph::place_note;
pub use call::{call_type, infer_node};
pub(crate) use call::{check_bytes, inplace_type, stored_type, wrong_number};
pub use declared::matches_declared;
pub(crate) use functional::GATHERED;
pub use inference::Inference;
pub(crate) use memory::result_layout;
pub(crate) use report::op_error;
pub use resolve::resolve_node;
pub(crate) use resolve::{graph_callee, is_open, resolve_with};
pub use resolved::{Callee, Operand, Resolved, is_value, result_type};
pub(crate) use resolved::{arg_type, attribute_type, map_leaves, operand_type};
pub use solve::{EquationOrigin, Guard, Solver};
pub(crate) use wrappers::{CONVERSIONS, expand_wrappers};

use crate::budget;
use crate::diag::limits::{too_many_items, too_many_nodes};
use crate::diag::words::count;
use crate::diag::{Code, Diagnostics};
use crate::graph::{Arg, Gaps, Graph, GraphModule, NodeId, Opcode};
use crate::op::{self};
use crate::types::{Type, Val};
use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;
use memory::MemoryFacts;
use std::collections::HashSet;
use std::sync::Arc;
use unknown::Unknowns;

/// The maximum nesting depth of graph calls.
const MAX_CALL_DEPTH: usize = 64;

/// A single value may have this part of all items that a model may have.
const ITEMS_OF_VALUE: usize = 16;

/// Options of inference.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InferOptions {
    /// Types of the entry graph's inputs, in placeholder order: the types of example inputs, or the sizes to compile a
    /// program for. Placeholders beyond the end of the list keep their declared type.
    pub inputs: Vec<Type>,
}

impl InferOptions {
    /// Options for inputs of these types.
    pub fn for_inputs(inputs: Vec<Type>) -> InferOptions {
        InferOptions { inputs }
    }
}

/// Stores the type of every node of every graph in [`Meta::ty`](crate::graph::Meta::ty) and reports type errors.
pub fn infer(module: &mut GraphModule, options: &InferOptions) -> Diagnostics {
    infer_sizes(module, options).diagnostics
}

/// [`infer`] that also returns the sizes it solved and the guards it could not decide.
pub fn infer_sizes(module: &mut GraphModule, options: &InferOptions) -> Inference {
    infer_around(module, options, &Gaps::default())
}

/// [`infer_sizes`] for a module of which some parts could not be read. Errors that follow from the missing parts are not
/// reported.
pub fn infer_around(module: &mut GraphModule, options: &InferOptions, gaps: &Gaps) -> Inference {
    let written = match expand_wrappers(module) {
        Ok(w) => w,
        Err(d) => {
            return Inference {
                diagnostics: d.into(),
                ..Inference::default()
            };
        }
    };
    let mut cx = Infer::new(written.as_ref().unwrap_or(module), gaps);
    cx.check_declarations();
    // The entry graph first: its calls determine the input types of other graphs. Graphs that nothing calls are
    // inferred for their declared types below.
    let entry = module.entry_name().cloned();
    if let Some(name) = &entry {
        cx.infer_graph(name, Some(&options.inputs));
    }
    let names: Vec<Arc<str>> = cx.module.graphs.keys().cloned().collect();
    for name in names {
        if cx.done.contains_key(&name) {
            continue;
        }
        match cx.module.printed && cx.is_untaken(&name) {
            true => cx.without_diagnostics(|cx| cx.infer_graph(&name, None)),
            false => cx.infer_graph(&name, None),
        };
    }
    let implied = std::mem::take(&mut cx.implied);
    let claims = std::mem::take(&mut cx.claims);
    let (done, inference) = cx.finish();
    module.implied.extend(implied);
    for (name, types) in done {
        if let Some(graph) = module.graphs.get_mut(&name) {
            store_types(graph, &types, &|n| claims.contains(&(name.clone(), n)));
        }
    }
    inference
}

/// Stores the types of a graph's nodes, and which of them only a run can check.
fn store_types(graph: &mut Graph, types: &SecondaryMap<NodeId, Type>, is_claimed: &dyn Fn(NodeId) -> bool) {
    for n in graph.ids() {
        let ty = types[n].clone();
        let is_output = graph[n].op() == Opcode::Output;
        let meta = graph.meta_mut(n);
        meta.claimed = is_claimed(n);
        // The types of its parts already determine the output's type, so it is stored only where the user declared it.
        if is_output && !meta.declared {
            continue;
        }
        // The contradiction has been reported; the annotation stays as the user wrote it.
        if !(meta.declared && ty == Val::Unknown) {
            meta.ty = Some(ty);
        }
    }
}

type NodeTypes = SecondaryMap<NodeId, Type>;

/// The result types of a graph by input types, so that each body is inferred once per combination.
type Memo = Vec<(Vec<Type>, Type)>;

struct Infer<'m> {
    module: &'m GraphModule,
    gaps: &'m Gaps,
    solver: Solver,
    diagnostics: Diagnostics,
    unknowns: Unknowns<'m>,
    /// Modules with an invalid declaration, which has been reported. Their calls have no type.
    wrong_modules: HashSet<Arc<str>>,
    done: IndexMap<Arc<str>, NodeTypes>,
    memo: IndexMap<Arc<str>, Memo>,
    /// Types of weights that the declarations of modules imply.
    implied: IndexMap<Arc<str>, Type>,
    stack: Vec<Arc<str>>,
    /// Branches that are known never to be taken.
    untaken: HashSet<Arc<str>>,
    /// Nodes whose declared type has sizes that their op leaves unknown.
    claims: HashSet<(Arc<str>, NodeId)>,
    /// The number of nodes and items of their values.
    items: usize,
    /// Whether there are too many, which has been reported.
    too_large: bool,
}

impl<'m> Infer<'m> {
    fn new(module: &'m GraphModule, gaps: &'m Gaps) -> Infer<'m> {
        Infer {
            module,
            gaps,
            solver: Solver::new(module.dims.clone()),
            diagnostics: Diagnostics::new(),
            unknowns: Unknowns::default(),
            wrong_modules: HashSet::new(),
            done: IndexMap::new(),
            memo: IndexMap::new(),
            implied: IndexMap::new(),
            stack: vec![],
            untaken: HashSet::new(),
            claims: HashSet::new(),
            items: 0,
            too_large: false,
        }
    }

    /// Reports modules whose class or constructor arguments are invalid. Torch also prints modules that are never
    /// called, so uncalled modules are checked only in hand-written files, and an unknown class of theirs only if it is
    /// a misspelling of a known one.
    fn check_declarations(&mut self) {
        let graphs = self.module.graphs.values();
        let calls = graphs.flat_map(|g| {
            g.iter()
                .filter(|&n| g[n].op() == Opcode::CallModule)
                .map(|n| g[n].target())
        });
        let called: HashSet<&str> = calls.collect();
        for (name, decl) in &self.module.modules {
            let Err(e) = op::modules::check_constructed(decl.constructed()) else {
                continue;
            };
            let used = called.contains(&**name);
            if used {
                self.wrong_modules.insert(name.clone());
            }
            let meant = || e.code != Code::E0201 || op::modules::is_slip(&decl.class);
            if used || !self.module.printed && meant() {
                self.diagnostics.push(unknown::declaration_error(self.module, name, e));
            }
        }
    }

    /// Infers the nodes of a graph and returns the type of its result. `inputs` are types from outside, for the leading
    /// placeholders.
    fn infer_graph(&mut self, name: &Arc<str>, inputs: Option<&[Type]>) -> Type {
        let Some(graph) = self.module.graphs.get(name) else {
            return Val::Unknown;
        };
        // Lint reports cycles of calls.
        if self.stack.len() >= MAX_CALL_DEPTH || self.stack.contains(name) {
            return Val::Unknown;
        }
        self.stack.push(name.clone());
        let mut types = NodeTypes::with_default(Val::Unknown);
        let mut known = MemoryFacts::new();
        let mut inputs = inputs.unwrap_or_default().iter();
        let mut result = Val::None;
        for n in graph.iter() {
            let inferred = match graph[n].op() {
                Opcode::Placeholder => {
                    let ty = self.infer_placeholder(graph, n, inputs.next());
                    self.check_input(graph, n, ty)
                }
                _ => {
                    let node_type = self.type_of_node(name, graph, n, &mut known);
                    self.check_declared(graph, n, node_type)
                }
            };
            if graph[n].op() == Opcode::Output {
                result = inferred.clone();
            }
            let inferred = self.count_items(graph, n, inferred);
            self.note_fact(graph, n, &inferred, &mut known);
            types[n] = inferred;
        }
        self.stack.pop();
        self.done.entry(name.clone()).or_insert(types);
        result
    }

    /// Counts a node and the items of its type towards the limit. The type, or unknown if it exceeds the limit, which is reported once.
    fn count_items(&mut self, graph: &Graph, n: NodeId, ty: Type) -> Type {
        let limit = budget::max_nodes();
        let items_limit = (limit / ITEMS_OF_VALUE).max(1);
        let items = count_leaves(&ty);
        self.items = self.items.saturating_add(items);
        if self.items <= limit && items <= items_limit {
            return ty;
        }
        if !self.too_large {
            let d = match items > items_limit {
                true => too_many_items(graph[n].name(), items_limit),
                false => too_many_nodes(&format!("with the value of `%{}`, the model has", graph[n].name())),
            };
            self.diagnostics.push(d.at_opt(graph[n].meta.span, ""));
        }
        self.too_large = true;
        Val::Unknown
    }

    /// Notes the type of a node, and its layout if that is known.
    fn note_fact(&self, graph: &Graph, n: NodeId, ty: &Type, known: &mut MemoryFacts) {
        match graph[n].op() {
            // A called graph may be given tensors of any layout, so only the entry graph's inputs have one. Inputs of an
            // exported program may have had another layout than fxc's row-major one, and its views are valid for that
            // layout.
            Opcode::Placeholder if self.stack.len() == 1 => {
                known.note_plain(n, ty, self.module.exported.is_none());
            }
            Opcode::GetAttr => known.note_plain(n, ty, false),
            _ => known.types[n] = ty.clone(),
        }
    }

    /// Runs `f` and discards the diagnostics it reports.
    fn without_diagnostics<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let saved = (
            std::mem::take(&mut self.diagnostics),
            std::mem::take(&mut self.unknowns),
        );
        let result = f(self);
        (self.diagnostics, self.unknowns) = saved;
        result
    }

    fn lookup(&self, types: &NodeTypes, n: NodeId) -> Type {
        self.solver.apply(&types[n])
    }

    fn finish(mut self) -> (IndexMap<Arc<str>, NodeTypes>, Inference) {
        self.unknowns.report(&mut self.diagnostics);
        for (origin, e) in self.solver.check_guards() {
            self.diagnostics.push(report::guard_error(&origin, &e));
        }
        let mut done = std::mem::take(&mut self.done);
        // Equations of later nodes may have determined sizes of earlier ones.
        for (name, types) in &mut done {
            for n in self.module.graphs[name].iter() {
                types[n] = self.solver.apply(&types[n]);
            }
        }
        let inference = Inference {
            diagnostics: self.diagnostics,
            sizes: self.solver.solved(),
            guards: self.solver.guards().to_vec(),
        };
        (done, inference)
    }
}

/// The number of values in a nested value, and 1 for the value itself.
fn count_leaves(ty: &Type) -> usize {
    1 + match ty {
        Val::List(v) | Val::Tuple(v) => v.iter().map(count_leaves).sum(),
        Val::Dict(v) => v.iter().map(|(_, x)| count_leaves(x)).sum(),
        _ => 0,
    }
}

/// The values of a graph's placeholders, in order, for a call with these arguments. Defaults are filled in.
pub fn graph_inputs<T: Clone>(
    callee: &Graph,
    args: &[Val<T>],
    kwargs: &[(Arc<str>, Val<T>)],
) -> Result<Vec<Val<T>>, String> {
    let params = callee.placeholders();
    if args.len() > params.len() {
        return Err(format!(
            "it takes {}, but {} were given",
            count(params.len(), "argument"),
            args.len()
        ));
    }
    if let Some((k, _)) = kwargs
        .iter()
        .find(|(k, _)| !params.iter().any(|&p| callee[p].target() == &**k))
    {
        return Err(format!("it has no parameter `{k}`"));
    }
    let mut out = Vec::with_capacity(params.len());
    for (i, &p) in params.iter().enumerate() {
        let name = callee[p].target();
        let named = kwargs.iter().find(|(k, _)| &**k == name).map(|(_, v)| v);
        out.push(match (args.get(i), named) {
            (Some(_), Some(_)) => return Err(format!("`{name}` is given twice")),
            (Some(v), None) | (None, Some(v)) => v.clone(),
            (None, None) => match callee[p].args().first() {
                Some(d) => literal_value(d).ok_or_else(|| format!("the default of `{name}` is not a literal"))?,
                None => return Err(format!("the argument `{name}` is missing")),
            },
        });
    }
    Ok(out)
}

/// Converts an argument that contains no nodes to a value with any leaf type; `None` if it contains nodes.
pub fn literal_value<T>(arg: &Arg) -> Option<Val<T>> {
    arg.try_map(&mut |_| Err(())).ok()
}

#[cfg(test)]
mod tests;
