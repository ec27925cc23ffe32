//! The types of nodes.

use super::{Infer, declared, graph_inputs, report, resolve};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, NodeId, Opcode};
use crate::infer::call::call_type;
use crate::infer::call::check_bytes;
use crate::infer::memory::MemoryFacts;
use crate::infer::resolved::{Callee, Operand, Resolved, arg_type, attribute_type};
use crate::infer::solve::EquationOrigin;
use crate::op::Sizes;
use crate::types::{ScalarKind, Type, Val};
use std::sync::Arc;

impl Infer<'_> {
    /// A placeholder's type: the declared type, refined by the given one.
    pub(super) fn infer_placeholder(&mut self, graph: &Graph, n: NodeId, provided: Option<&Type>) -> Type {
        let node = &graph[n];
        let declared = node.meta.ty.clone();
        let provided = match provided {
            Some(Val::Unknown) | None => None,
            Some(t) => Some(t.clone()),
        };
        let default = node.args().first().map(|d| match d {
            Val::Int(_) => Val::Any(ScalarKind::Int),
            Val::Float(_) => Val::Any(ScalarKind::Float),
            Val::Bool(_) => Val::Any(ScalarKind::Bool),
            Val::Str(_) => Val::Any(ScalarKind::Str),
            d => arg_type(d, &|_| Val::Unknown),
        });
        match (declared, provided) {
            (Some(d), Some(g)) => {
                declared::merge_types(&d, &g, &mut self.solver, &EquationOrigin::from_annotation(graph, n))
                    .unwrap_or_else(|e| {
                        let title = format!("the input `{}` is declared {d}, but {g} was given", node.target());
                        let mut diagnostic =
                            Diagnostic::new(Code::E0301, title).at_opt(node.meta.span, "declared here");
                        diagnostic.notes.extend(e.notes());
                        self.diagnostics.push(e.label(diagnostic));
                        Val::Unknown
                    })
            }
            (Some(t), None) | (None, Some(t)) => t,
            (None, None) => default.unwrap_or(Val::Unknown),
        }
    }

    /// The type of an input, or an error if its sizes are negative or it does not fit into the address space.
    pub(super) fn check_input(&mut self, graph: &Graph, n: NodeId, ty: Type) -> Type {
        match check_bytes(&ty, graph[n].target()) {
            Ok(()) => ty,
            Err(e) => {
                let title = match e.code {
                    Code::E0306 => format!("input `{}`, {ty}, exceeds the address space", graph[n].target()),
                    _ => format!("input `{}` has a negative size: {ty}", graph[n].target()),
                };
                self.diagnostics
                    .push(Diagnostic::new(e.code, title).at_opt(graph[n].meta.span, "declared here"));
                Val::Unknown
            }
        }
    }

    pub(super) fn type_of_node(
        &mut self,
        graph_name: &Arc<str>,
        graph: &Graph,
        n: NodeId,
        known: &mut MemoryFacts,
    ) -> Type {
        let types = &known.types;
        let node = &graph[n];
        if self.gaps.covers(node.meta.span) || node.op().is_call() && self.gaps.may_declare(node.target()) {
            return Val::Unknown;
        }
        match node.op() {
            Opcode::Output => node
                .args()
                .first()
                .map_or(Val::None, |a| arg_type(a, &|i| self.lookup(types, i))),
            Opcode::GetAttr => attribute_type(self.module, node.target()),
            Opcode::CallModule if self.wrong_modules.contains(node.target()) => Val::Unknown,
            _ => self.type_of_call(graph_name, graph, n, known),
        }
    }

    fn type_of_call(&mut self, graph_name: &Arc<str>, graph: &Graph, n: NodeId, known: &mut MemoryFacts) -> Type {
        let types = &known.types;
        match resolve::resolve_plain(self.module, graph_name, graph, n, &|i| self.lookup(types, i)) {
            Ok(r) => {
                self.note_implied(&r);
                let ty = self.infer_call(graph, n, &r, known);
                known.record_call(n, &r, &ty);
                ty
            }
            Err(e) => {
                if e.code == Code::E0201 {
                    let ty = |i| self.solver.apply(&types[i]);
                    let fits = |path: &str| resolve::args_fit_op(graph, n, &ty, path);
                    self.unknowns.add(self.module, graph, n, e, &fits);
                } else {
                    self.diagnostics.push(e);
                }
                Val::Unknown
            }
        }
    }

    /// Records the types of weights that only their module's declaration determines.
    fn note_implied(&mut self, resolved: &Resolved) {
        let known = &self.module.attributes;
        let args = resolved.args.iter().zip(&resolved.arg_types);
        let kwargs = resolved.kwargs.iter().zip(&resolved.kwarg_types);
        for (v, t) in args.chain(kwargs.map(|((_, v), (_, t))| (v, t))) {
            let pairs: Vec<(&Val<Operand>, &Type)> = match (v, t) {
                (Val::List(v), Val::List(t)) => v.iter().zip(t).collect(),
                pair => vec![pair],
            };
            for (v, t) in pairs {
                if let (Val::Leaf(Operand::Attr(path)), Val::Leaf(_)) = (v, t)
                    && !known.contains_key(path)
                {
                    self.implied.entry(path.clone()).or_insert_with(|| t.clone());
                }
            }
        }
    }

    fn infer_call(&mut self, graph: &Graph, n: NodeId, resolved: &Resolved, known: &MemoryFacts) -> Type {
        let types = &known.types;
        if let Callee::Graph(name) = &resolved.callee {
            return self.graph_call(graph, n, name, resolved);
        }
        if resolved.op().is_some_and(|op| op.control().is_some()) {
            return self.infer_control(graph, n, resolved, types);
        }
        let mut sizes = Sizes::default();
        let inferred = call_type(resolved, &mut sizes).and_then(|ty| known.in_memory(resolved, ty));
        match inferred {
            Ok(ty) => {
                let mut ok = true;
                for (a, b, demand) in sizes.equations {
                    let origin = EquationOrigin::new(graph, n, demand);
                    if let Err(e) = self.solver.equate(&a, &b, &origin) {
                        ok = false;
                        self.diagnostics
                            .push(report::contradiction_error(graph, n, &origin, &e));
                    }
                }
                if ok { self.solver.apply(&ty) } else { Val::Unknown }
            }
            Err(e) => {
                let ty = |i: NodeId| self.lookup(types, i);
                let mut d = report::op_error(graph, n, resolved, e, &ty);
                // A size that an equation determined looks like any other in the message, so add where it comes from.
                for i in graph[n].inputs() {
                    d = self.solver.explain(&types[i], d);
                }
                d = self.declared_sizes(graph, n, resolved, d);
                self.diagnostics.push(d);
                Val::Unknown
            }
        }
    }

    /// Adds the declaration that determines the sizes of a module's weights.
    fn declared_sizes(&self, graph: &Graph, n: NodeId, resolved: &Resolved, d: Diagnostic) -> Diagnostic {
        let implied = resolved
            .args
            .iter()
            .zip(&resolved.arg_types)
            .find_map(|(v, t)| match (v, t) {
                (Val::Leaf(Operand::Attr(path)), Val::Leaf(_)) if self.implied.contains_key(path) => Some((path, t)),
                _ => None,
            });
        let (Some((path, ty)), Some(decl)) = (implied, self.module.modules.get(graph[n].target())) else {
            return d;
        };
        let text = format!("this makes `{path}` {ty}");
        match decl.span {
            Some(s) => d.see(s, text),
            None => d.note(format!(
                "the declaration of `{}` makes `{path}` {ty}",
                graph[n].target()
            )),
        }
    }

    fn graph_call(&mut self, graph: &Graph, n: NodeId, name: &Arc<str>, resolved: &Resolved) -> Type {
        let Some(callee) = self.module.graphs.get(name) else {
            return Val::Unknown;
        };
        let inputs = match graph_inputs(callee, &resolved.arg_types, &resolved.kwarg_types) {
            Ok(v) => v,
            Err(e) => {
                let d = Diagnostic::new(Code::E0203, format!("invalid arguments for the graph `{name}`: {e}"));
                let names = callee.placeholders().into_iter().map(|p| callee[p].target());
                let d = d.note(format!("its parameters are ({})", names.collect::<Vec<_>>().join(", ")));
                self.diagnostics.push(d.at_opt(graph[n].meta.span, ""));
                return Val::Unknown;
            }
        };
        if let Some((_, ty)) = self.memo.get(name).and_then(|m| m.iter().find(|(i, _)| *i == inputs)) {
            return ty.clone();
        }
        let ty = self.infer_graph(name, Some(&inputs));
        self.memo.entry(name.clone()).or_default().push((inputs, ty.clone()));
        ty
    }

    pub(super) fn check_declared(&mut self, graph: &Graph, n: NodeId, inferred: Type) -> Type {
        let meta = &graph[n].meta;
        let Some(declared) = meta.ty.as_ref().filter(|_| meta.declared) else {
            return inferred;
        };
        match declared::merge_types(
            declared,
            &inferred,
            &mut self.solver,
            &EquationOrigin::from_annotation(graph, n),
        ) {
            Ok(ty) => {
                if graph[n].op().is_call() && declared::says_more(declared, &inferred) {
                    self.claims.extend(self.stack.last().map(|g| (g.clone(), n)));
                }
                ty
            }
            Err(e) => {
                let d = report::annotation_error(graph, n, declared, &inferred, &e);
                self.diagnostics.push(d);
                inferred
            }
        }
    }
}
