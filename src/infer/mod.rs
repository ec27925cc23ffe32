//! A type for every node.
//!
//! Inference is an abstract interpretation over [`Type`]s: ints, tuples, strings and dtypes are values where they are
//! known (`x.size(0)` is the int 32 or `N`), tensors are their dtype and shape. Each node's spelling is resolved to a row
//! of the op table (`resolve`), the row's rule gives the result's type, and annotations are checked against it.
//!
//! Sizes may be symbolic. Rules demand equations between them ([`Sizes`]); those that are linear in one variable bind it
//! (`solve`), those that cannot be decided are guards, and contradictions are errors that name both places.
//!
//! An error is reported once: the node's type becomes [`Val::Unknown`], which every rule passes on in silence.

mod call;
mod control;
mod declared;
mod report;
mod resolve;
mod resolved;
mod solve;

pub use crate::graph::place_note;
pub use call::{call_type, infer_node, inplace_type, stored_type, wrong_number};
pub use report::op_error;
pub use resolve::{graph_callee, resolve_node, resolve_with};
pub use resolved::{Callee, Operand, Resolved, arg_type, attribute_type, is_value, map, operand_type, result_type};
pub use solve::{Guard, Origin, Solver};

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op::Sizes;
use crate::types::{Dim, Kind, Type, Val};
use call::check_bytes;
use cranelift_entity::SecondaryMap;
use indexmap::IndexMap;
use report::Unknowns;
use std::sync::Arc;

/// How deep calls of graphs may nest.
const MAX_CALL_DEPTH: usize = 64;

/// What inference starts from.
#[derive(Clone, Debug, Default)]
pub struct InferOptions {
    /// Types of the entry graph's inputs, in the order of its placeholders: example inputs, or the sizes a program is to
    /// be compiled for. Placeholders behind the last one have their declared type.
    pub inputs: Vec<Type>,
}

/// What inference found beside the types, which are stored in the nodes.
#[derive(Clone, Debug, Default)]
pub struct Inference {
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
    /// Sizes that equations determined: `N` is 784.
    pub sizes: Vec<(Arc<str>, Dim)>,
    /// Equations between sizes that hold only for some inputs and must be checked when the sizes are known.
    pub guards: Vec<Guard>,
}

/// Gives every node of every graph its type ([`Meta::ty`](crate::graph::Meta::ty)) and reports what does not fit.
pub fn infer(module: &mut GraphModule, options: &InferOptions) -> Diagnostics {
    infer_sizes(module, options).diagnostics
}

/// [`infer`], with the sizes it solved and the guards it could not decide.
pub fn infer_sizes(module: &mut GraphModule, options: &InferOptions) -> Inference {
    let mut cx = Infer::new(module);
    let entry = module.entry_name().cloned();
    if let Some(name) = &entry {
        cx.graph(name, Some(&options.inputs));
    }
    let names: Vec<Arc<str>> = module.graphs.keys().cloned().collect();
    for name in names {
        if !cx.done.contains_key(&name) {
            cx.graph(&name, None);
        }
    }
    let (done, inference) = cx.finish();
    for (name, types) in done {
        let Some(graph) = module.graphs.get_mut(&name) else {
            continue;
        };
        for n in graph.ids() {
            let ty = types[n].clone();
            // The result has its parts' types; saying them again is for those who write them.
            let is_output = graph[n].op() == Opcode::Output;
            let meta = graph.meta_mut(n);
            if is_output && !meta.declared {
                continue;
            }
            // An annotation that contradicts inference was reported; the annotation stays as the user wrote it.
            if !(meta.declared && ty == Val::Unknown) {
                meta.ty = Some(ty);
            }
        }
    }
    inference
}

type Types = SecondaryMap<NodeId, Type>;

/// The types a graph gives for given inputs, remembered so that each body is looked at once per combination.
type Memo = Vec<(Vec<Type>, Type)>;

struct Infer<'m> {
    module: &'m GraphModule,
    solver: Solver,
    diagnostics: Diagnostics,
    unknowns: Unknowns,
    done: IndexMap<Arc<str>, Types>,
    memo: IndexMap<Arc<str>, Memo>,
    stack: Vec<Arc<str>>,
}

impl<'m> Infer<'m> {
    fn new(module: &'m GraphModule) -> Infer<'m> {
        Infer {
            module,
            solver: Solver::new(module.dims.clone()),
            diagnostics: Diagnostics::new(),
            unknowns: Unknowns::default(),
            done: IndexMap::new(),
            memo: IndexMap::new(),
            stack: vec![],
        }
    }

    /// Infers a graph's nodes and gives the type of its result. `inputs`: types from outside, for the leading
    /// placeholders.
    fn graph(&mut self, name: &Arc<str>, inputs: Option<&[Type]>) -> Type {
        let Some(graph) = self.module.graphs.get(name) else {
            return Val::Unknown;
        };
        // A cycle of calls is lint's to report.
        if self.stack.len() >= MAX_CALL_DEPTH || self.stack.contains(name) {
            return Val::Unknown;
        }
        self.stack.push(name.clone());
        let mut types = Types::with_default(Val::Unknown);
        let mut inputs = inputs.unwrap_or_default().iter();
        let mut result = Val::None;
        for n in graph.iter() {
            let inferred = match graph[n].op() {
                Opcode::Placeholder => {
                    let ty = self.placeholder(graph, n, inputs.next());
                    self.check_input(graph, n, ty)
                }
                _ => {
                    let found = self.node(name, graph, n, &types);
                    self.check_declared(graph, n, found)
                }
            };
            if graph[n].op() == Opcode::Output {
                result = inferred.clone();
            }
            types[n] = inferred;
        }
        self.stack.pop();
        self.done.entry(name.clone()).or_insert(types);
        result
    }

    /// A placeholder's type: what is declared, made more precise by what is given.
    fn placeholder(&mut self, graph: &Graph, n: NodeId, given: Option<&Type>) -> Type {
        let node = &graph[n];
        let declared = node.meta.ty.clone();
        let given = match given {
            Some(Val::Unknown) | None => None,
            Some(t) => Some(t.clone()),
        };
        let default = node.args().first().map(|d| match d {
            Val::Int(_) => Val::Any(Kind::Int),
            Val::Float(_) => Val::Any(Kind::Float),
            Val::Bool(_) => Val::Any(Kind::Bool),
            Val::Str(_) => Val::Any(Kind::Str),
            d => arg_type(d, &|_| Val::Unknown),
        });
        match (declared, given) {
            (Some(d), Some(g)) => {
                declared::merge(&d, &g, &mut self.solver, &Origin::of(graph, n)).unwrap_or_else(|e| {
                    let title = format!("the input `{}` is declared {d} but is given {g}", node.target());
                    let mut diagnostic = Diagnostic::new(Code::E0301, title).at_opt(node.meta.span, "declared here");
                    diagnostic.notes.extend(e.notes());
                    self.diagnostics.push(e.label(diagnostic));
                    Val::Unknown
                })
            }
            (Some(t), None) | (None, Some(t)) => t,
            (None, None) => default.unwrap_or(Val::Unknown),
        }
    }

    /// The input's type, unless no machine could hold it.
    fn check_input(&mut self, graph: &Graph, n: NodeId, ty: Type) -> Type {
        match check_bytes(&ty, graph[n].target()) {
            Ok(()) => ty,
            Err(e) => {
                let title = match e.code {
                    Code::E0306 => format!(
                        "input `{}` is {ty}, which is more bytes than a machine can address",
                        graph[n].target()
                    ),
                    _ => format!("input `{}` has a negative size: {ty}", graph[n].target()),
                };
                self.diagnostics
                    .push(Diagnostic::new(e.code, title).at_opt(graph[n].meta.span, "declared here"));
                Val::Unknown
            }
        }
    }

    fn lookup(&self, types: &Types, n: NodeId) -> Type {
        self.solver.apply(&types[n])
    }

    fn node(&mut self, graph_name: &Arc<str>, graph: &Graph, n: NodeId, types: &Types) -> Type {
        let node = &graph[n];
        match node.op() {
            Opcode::Output => node
                .args()
                .first()
                .map_or(Val::None, |a| arg_type(a, &|i| self.lookup(types, i))),
            Opcode::GetAttr => attribute_type(self.module, node.target()),
            _ => {
                let resolved = resolve::resolve_plain(self.module, graph_name, graph, n, &|i| self.lookup(types, i));
                match resolved {
                    Ok(r) => self.call(graph, n, &r, types),
                    Err(e) => {
                        if e.code == Code::E0201 {
                            self.unknowns.add(self.module, graph, n, e);
                        } else {
                            self.diagnostics.push(e);
                        }
                        Val::Unknown
                    }
                }
            }
        }
    }

    fn call(&mut self, graph: &Graph, n: NodeId, resolved: &Resolved, types: &Types) -> Type {
        if let Callee::Graph(name) = &resolved.callee {
            return self.graph_call(graph, n, name, resolved);
        }
        if resolved.op().is_some_and(|op| op.control().is_some()) {
            return self.control(graph, n, resolved, types);
        }
        let mut sizes = Sizes::default();
        match call_type(resolved, &mut sizes) {
            Ok(ty) => {
                let mut ok = true;
                for (a, b, what) in sizes.equations {
                    let origin = Origin::new(graph, n, what);
                    if let Err(e) = self.solver.equate(&a, &b, &origin) {
                        ok = false;
                        self.diagnostics.push(report::contradiction(graph, n, &origin, &e));
                    }
                }
                if ok { self.solver.apply(&ty) } else { Val::Unknown }
            }
            Err(e) => {
                let ty = |i: NodeId| self.lookup(types, i);
                let mut d = report::op_error(graph, n, resolved, e, &ty);
                // A size that an equation determined looks like any other in the message: say where it comes from.
                for i in graph[n].inputs() {
                    d = self.solver.explain(&types[i], d);
                }
                self.diagnostics.push(d);
                Val::Unknown
            }
        }
    }

    fn graph_call(&mut self, graph: &Graph, n: NodeId, name: &Arc<str>, resolved: &Resolved) -> Type {
        let Some(callee) = self.module.graphs.get(name) else {
            return Val::Unknown;
        };
        let inputs = match graph_inputs(callee, &resolved.arg_types, &resolved.kwarg_types) {
            Ok(v) => v,
            Err(e) => {
                let d = Diagnostic::new(Code::E0203, format!("arguments do not fit the graph `{name}`: {e}"));
                self.diagnostics.push(d.at_opt(graph[n].meta.span, ""));
                return Val::Unknown;
            }
        };
        if let Some((_, ty)) = self.memo.get(name).and_then(|m| m.iter().find(|(i, _)| *i == inputs)) {
            return ty.clone();
        }
        let ty = self.graph(name, Some(&inputs));
        self.memo.entry(name.clone()).or_default().push((inputs, ty.clone()));
        ty
    }

    fn check_declared(&mut self, graph: &Graph, n: NodeId, found: Type) -> Type {
        let meta = &graph[n].meta;
        let Some(declared) = meta.ty.as_ref().filter(|_| meta.declared) else {
            return found;
        };
        match declared::merge(declared, &found, &mut self.solver, &Origin::of(graph, n)) {
            Ok(ty) => ty,
            Err(e) => {
                let d = report::declared(graph, n, declared, &found, &e);
                self.diagnostics.push(d);
                found
            }
        }
    }

    fn finish(mut self) -> (IndexMap<Arc<str>, Types>, Inference) {
        self.unknowns.report(&mut self.diagnostics);
        for (origin, e) in self.solver.check_guards() {
            self.diagnostics.push(report::guard(&origin, &e));
        }
        let mut done = std::mem::take(&mut self.done);
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

/// The values of a graph's placeholders, in order, for a call with these arguments; defaults are filled in.
pub fn graph_inputs<T: Clone>(
    callee: &Graph,
    args: &[Val<T>],
    kwargs: &[(Arc<str>, Val<T>)],
) -> Result<Vec<Val<T>>, String> {
    let params = callee.placeholders();
    if args.len() > params.len() {
        return Err(format!("it takes {} but {} were given", params.len(), args.len()));
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
                Some(d) => literal(d).ok_or_else(|| format!("the default of `{name}` is not a literal"))?,
                None => return Err(format!("nothing is given for `{name}`")),
            },
        });
    }
    Ok(out)
}

/// An argument without nodes as a value with any leaf.
pub fn literal<T>(arg: &Arg) -> Option<Val<T>> {
    arg.try_map(&mut |_| Err(())).ok()
}

#[cfg(test)]
mod tests;
