//! Turns writes into values.
//!
//! Values that share memory have a *root* (the value that owns it) and the views that lead from the root to them. A
//! write gives the root a new value, made by writing the new elements back through the views; whoever reads a value of
//! that root afterwards gets it by applying its views to the root's newest value. Where torch's `reshape` copies
//! because no strides can say the result, so does this.
//!
//! Inputs and buffers that were written get their last values among the leading results
//! ([`Graph::mutations`](crate::graph::Graph::mutations)).
//!
#![doc = include_str!("examples/functionalize.md")]

use super::build::{GraphBuilder, Source, replace_with_value};
use super::decompose::decompose_node;
use super::normalize::Normalize;
use super::{Context, each_graph};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, Mutation, NodeId, Opcode};
use crate::infer::{self, Operand, Resolved};
use crate::interp::cell::reshape_strides;
use crate::op::view::{DimMap, write_through};
use crate::op::{Build, Call, Meaning, Op, OpError, OpResult, Sizes, Traced, running};
use crate::tensor::contiguous_strides;
use crate::types::{TensorType, Type, Val};
use cranelift_entity::EntityRef;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
pub fn run(module: &mut GraphModule, _cx: &mut Context) -> Result<usize, Diagnostic> {
    functionalize(module)
}

/// Makes every graph of the module functional, and gives how many writes there were.
pub fn functionalize(module: &mut GraphModule) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let writes = |&n: &NodeId| {
            graph[n].op().is_call()
                && infer::resolve_node(module, graph, n)
                    .is_ok_and(|r| r.inplace() || !r.out.is_empty() || updates_statistics(&r))
        };
        let count = graph.ids().iter().filter(|n| writes(n)).count();
        if count == 0 {
            return Ok(0);
        }
        let mut pass = Functionalize {
            normalize: Normalize::new(module),
            places: HashMap::new(),
            roots: HashMap::new(),
            attributes: HashMap::new(),
            newest: HashMap::new(),
        };
        for n in graph.ids() {
            if graph.is_live(n) {
                pass.node(graph, n)?;
            }
        }
        pass.results(graph);
        Ok(count)
    })
}

/// A view from one value to the next.
#[derive(Clone, Debug)]
struct Step {
    op: &'static Op,
    /// One per parameter; the first is replaced by the value the view is taken of.
    args: Vec<Arg>,
    ty: Type,
}

/// How a value lies in its root.
#[derive(Clone, Debug)]
struct Place {
    root: NodeId,
    steps: Vec<Step>,
    /// The root's version that the value shows.
    version: u64,
    /// Strides over the root's elements, where they are known.
    strides: Option<Vec<i64>>,
}

struct Root {
    value: NodeId,
    version: u64,
}

struct Functionalize<'m> {
    normalize: Normalize<'m>,
    places: HashMap<NodeId, Place>,
    roots: HashMap<NodeId, Root>,
    /// The first `get_attr` of each attribute: they all share its memory.
    attributes: HashMap<Arc<str>, NodeId>,
    /// The node that stands for a node from here on: its value after a write, or under its new shape.
    newest: HashMap<NodeId, NodeId>,
}

impl Functionalize<'_> {
    fn node(&mut self, graph: &mut Graph, n: NodeId) -> Result<(), Diagnostic> {
        self.refresh_inputs(graph, n)?;
        match graph[n].op() {
            Opcode::Placeholder | Opcode::Output => return Ok(()),
            Opcode::GetAttr => {
                let root = *self.attributes.entry(graph[n].target().into()).or_insert(n);
                if root != n {
                    let place = self.place(graph, root);
                    self.places.insert(n, Place { version: 0, ..place });
                }
                return Ok(());
            }
            _ => {}
        }
        let resolved = infer::resolve_node(self.normalize.module(), graph, n)?;
        let Some(op) = resolved.op() else { return Ok(()) };
        match resolved.written() {
            Some(_) if matches!(graph[n].meta.ty, Some(Val::List(_) | Val::Tuple(_))) && !resolved.out.is_empty() => {
                self.write_several(graph, n, op, &resolved)
            }
            Some(target) => self.write(graph, n, op, &resolved, &target),
            None if updates_statistics(&resolved) => self.statistics(graph, n, op, &resolved),
            None if op.aliases && !resolved.copies() || is_disabled_dropout(&resolved) => {
                self.alias(graph, n, op, &resolved)
            }
            None => Ok(()),
        }
        .map_err(|e| match e {
            Fail::Op(e) => {
                let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
                infer::op_error(graph, n, &resolved, e, &ty)
            }
            Fail::Diagnostic(d) => *d,
        })
    }

    /// Makes the node's arguments show every write so far.
    fn refresh_inputs(&mut self, graph: &mut Graph, n: NodeId) -> Result<(), Diagnostic> {
        for i in graph[n].inputs() {
            let now = self.refresh(graph, i, n).map_err(|e| {
                Diagnostic::new(e.code, e.title).at_opt(graph[n].meta.span, "reads a value that was written")
            })?;
            if now != i {
                graph.replace_input_with(n, i, now);
            }
        }
        Ok(())
    }

    /// The node that has the value of `i` now; made before `user` if need be.
    fn refresh(&mut self, graph: &mut Graph, i: NodeId, user: NodeId) -> OpResult<NodeId> {
        let mut at = i;
        while let Some(&next) = self.newest.get(&at) {
            at = next;
        }
        let Some(place) = self.places.get(&at).cloned() else {
            return Ok(at);
        };
        let root = &self.roots[&place.root];
        if root.version == place.version {
            return Ok(at);
        }
        let (mut value, version) = (root.value, root.version);
        let source = Source::of(graph, at, "functionalize");
        at_point(graph, InsertPoint::Before(user), |graph| {
            let mut b = GraphBuilder::new(graph, source, |_| true);
            for step in &place.steps {
                let call = traced_step(&b, step, value);
                value = b.node(&call, step.ty.clone());
            }
        });
        self.places.insert(value, Place { version, ..place });
        if value != at {
            self.newest.insert(at, value);
        }
        Ok(value)
    }

    /// Where a value lies; a value that is no view is its own root.
    fn place(&mut self, graph: &Graph, n: NodeId) -> Place {
        if let Some(p) = self.places.get(&n) {
            return p.clone();
        }
        self.roots.insert(n, Root { value: n, version: 0 });
        let shape = tensor_type(graph, n).and_then(|t| t.fixed_shape());
        let place = Place {
            root: n,
            steps: vec![],
            version: 0,
            strides: shape.map(|s| contiguous_strides(&s).into_iter().map(|s| s as i64).collect()),
        };
        self.places.insert(n, place.clone());
        place
    }

    /// A node whose result may share memory with its first argument.
    fn alias(&mut self, graph: &mut Graph, n: NodeId, op: &'static Op, resolved: &Resolved) -> Result<(), Fail> {
        if matches!(op.meaning, Meaning::Decompose(_)) && !matches!(op.name, "to" | "type_as") && op.aliases {
            // `split`, `chunk`, `getattr(x, "T")`: views one by one.
            self.normalize.rewrite(graph, n, resolved).map_err(Fail::from)?;
            let made = graph.id_bound();
            if decompose_node(graph, n, op, |_| false)? {
                for i in (made..graph.id_bound()).map(NodeId::new) {
                    self.node(graph, i).map_err(Fail::from)?;
                }
            }
            return Ok(());
        }
        self.normalize.rewrite(graph, n, resolved).map_err(Fail::from)?;
        let Some(Val::Leaf(x)) = graph[n].args().first().cloned() else {
            return Ok(());
        };
        let (Some(from), Some(to)) = (tensor_type(graph, x), tensor_type(graph, n)) else {
            return Ok(());
        };
        if op.view.is_none() {
            // A conversion that converts nothing gives its operand.
            let copies = super::build::full_args(op, graph, n)?.contains(&Val::Bool(true)) && op.name == "to";
            if from == to && !copies {
                let place = self.place(graph, x);
                self.places.insert(n, place);
            }
            return Ok(());
        }
        let parent = self.place(graph, x);
        if let Some(place) = self.through(graph, n, op, &parent, &from)? {
            self.places.insert(n, place);
        }
        Ok(())
    }

    /// The place of the view `n` of a value at `parent`; `None` where torch copies.
    fn through(
        &self,
        graph: &Graph,
        n: NodeId,
        op: &'static Op,
        parent: &Place,
        from: &TensorType,
    ) -> OpResult<Option<Place>> {
        let args = super::build::full_args(op, graph, n)?;
        let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
        let call: Call<TensorType> = Call {
            op,
            args: args.iter().map(|a| infer::arg_type(a, &ty)).collect(),
        };
        let Some(rule) = op.view else { return Ok(None) };
        let view = rule(&call, &mut Sizes::default())?;
        let known = |d: &[crate::types::Dim]| -> Option<Vec<usize>> {
            d.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect()
        };
        let strides = match (&view.map, &parent.strides, known(&view.shape), from.fixed_shape()) {
            (DimMap::Reshape, Some(s), Some(new), Some(old)) => {
                let in_order = contiguous_strides(&old).iter().zip(s).all(|(a, b)| *a as i64 == *b);
                if op.name == "contiguous" && !in_order {
                    return Ok(None);
                }
                match reshape_strides(&old, s, &new) {
                    Some(s) => Some(s),
                    None => return Ok(None),
                }
            }
            (DimMap::Affine(map), Some(s), Some(new), _) => {
                let mut out = vec![0; new.len()];
                for (x, s) in map.iter().zip(s) {
                    x.terms.iter().for_each(|&(d, c)| out[d] += c * s);
                }
                Some(out)
            }
            (DimMap::Strided { strides, .. }, ..) => strides.iter().map(|d| d.as_const()).collect(),
            _ => None,
        };
        let mut steps = parent.steps.clone();
        steps.push(Step { op, args, ty: ty(n) });
        Ok(Some(Place {
            root: parent.root,
            steps,
            version: parent.version,
            strides,
        }))
    }

    /// A node that writes its result to `target`: it becomes the op without the write.
    fn write(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
        target: &Operand,
    ) -> Result<(), Fail> {
        let Operand::Node(x) = *target else {
            return Err(OpError::new(Code::E0601, "a write to an item of a list cannot be made functional").into());
        };
        self.normalize.rewrite(graph, n, resolved).map_err(Fail::from)?;
        let ty = infer::infer_node(self.normalize.module(), graph, n).map_err(Fail::from)?;
        graph.meta_mut(n).ty = Some(ty.clone());
        if op.view.is_some() && op.aliases && resolved.out.is_empty() {
            // `x.unsqueeze_(0)`: from here on, `x` is the view.
            let parent = self.place(graph, x);
            let from = tensor_type(graph, x).ok_or_else(|| OpError::shape("a view of no tensor"))?;
            if let Some(place) = self.through(graph, n, op, &parent, &from)? {
                self.places.insert(n, place);
            }
            self.newest.insert(x, n);
            return Ok(());
        }
        let wanted = graph[x].meta.ty.clone().unwrap_or(Val::Unknown);
        let value = self.converted(graph, n, &ty, &wanted)?;
        let place = self.place(graph, x);
        self.store(graph, x, value, place)
    }

    /// A node that writes its results to several tensors: `topk(x, 3, out=(values, indices))`.
    fn write_several(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        op: &'static Op,
        resolved: &Resolved,
    ) -> Result<(), Fail> {
        let targets: Vec<NodeId> = resolved
            .out
            .iter()
            .map(|(o, _)| match o {
                Operand::Node(x) => Ok(*x),
                _ => Err(OpError::new(
                    Code::E0601,
                    "a write to an item of a list cannot be made functional",
                )),
            })
            .collect::<OpResult<_>>()?;
        self.normalize.rewrite(graph, n, resolved).map_err(Fail::from)?;
        let args = super::build::full_args(op, graph, n)?;
        let wanted: Vec<_> = targets.iter().map(|&x| tensor_type(graph, x)).collect();
        let source = Source::of(graph, n, "functionalize");
        let values = at_point(graph, InsertPoint::Before(n), |graph| -> OpResult<_> {
            let mut b = GraphBuilder::new(graph, source, |_| true);
            let traced = args.iter().map(|a| b.trace(a)).collect();
            let results = b.call(op.name, traced)?;
            let results = results.items().unwrap_or_default().to_vec();
            let b: &mut dyn crate::op::Build = &mut b;
            let cast = |(v, want): (Val<Traced>, Option<TensorType>)| match (v, want) {
                (Val::Leaf(t), Some(want)) => b.to_dtype(&t, want.dtype).map(|t| node_of(&t)),
                _ => Err(OpError::arg("out", "`out` must be tensors")),
            };
            results
                .into_iter()
                .zip(wanted)
                .map(cast)
                .collect::<OpResult<Vec<NodeId>>>()
        })?;
        if values.len() != targets.len() {
            return Err(infer::wrong_number(targets.len(), values.len()).into());
        }
        for (&x, &value) in targets.iter().zip(&values) {
            let place = self.place(graph, x);
            self.store(graph, x, value, place)?;
        }
        let all = Val::Tuple(values.into_iter().map(Val::Leaf).collect());
        replace_with_value(graph, n, &all);
        // Its uses were just replaced, so that it can go.
        let _ = graph.erase_node(n);
        Ok(())
    }

    /// A batch normalisation in training: its functional form, and the running statistics written.
    fn statistics(&mut self, graph: &mut Graph, n: NodeId, op: &'static Op, resolved: &Resolved) -> Result<(), Fail> {
        self.normalize.rewrite(graph, n, resolved).map_err(Fail::from)?;
        let args = super::build::full_args(op, graph, n)?;
        let source = Source::of(graph, n, "functionalize");
        let (own, writes) = at_point(graph, InsertPoint::Before(n), |graph| -> OpResult<_> {
            let mut b = GraphBuilder::new(graph, source, |_| true);
            let call = Call {
                op,
                args: args.iter().map(|a| b.trace(a)).collect(),
            };
            let form = running::functional(&call).ok_or_else(|| OpError::shape("no statistics to update"))??;
            let results = b.call(form.call.op.name, form.call.args.clone())?;
            let results = results.items().unwrap_or_default();
            Ok((GraphBuilder::arg(&form.own(&call, results)), form.writes(results)))
        })?;
        for (param, new) in writes {
            if let (Val::Leaf(x), Val::Leaf(t)) = (&args[param], new) {
                let place = self.place(graph, *x);
                self.store(graph, *x, node_of(&t), place)?;
            }
        }
        replace_with_value(graph, n, &own);
        // Its uses were just replaced, so that it can go.
        let _ = graph.erase_node(n);
        Ok(())
    }

    /// The value of node `n`, of type `ty`, in the dtype of the tensor it is written to.
    fn converted(&mut self, graph: &mut Graph, n: NodeId, ty: &Type, wanted: &Type) -> OpResult<NodeId> {
        let (Val::Leaf(have), Val::Leaf(want)) = (ty, wanted) else {
            return Ok(n);
        };
        if have.dtype == want.dtype {
            return Ok(n);
        }
        let source = Source::of(graph, n, "functionalize");
        let point = after(graph, n);
        let cast = at_point(graph, point, |graph| {
            let mut b = GraphBuilder::new(graph, source, |_| true);
            let x = b.traced(n).ok_or_else(|| OpError::shape("a cast of no tensor"))?;
            let b: &mut dyn crate::op::Build = &mut b;
            b.to_dtype(&x, want.dtype)
        })?;
        let cast = node_of(&cast);
        graph.replace_uses_where(n, cast, |_, u| u != cast);
        Ok(cast)
    }

    /// Gives the root of `place` a new value in which `value` stands at that place.
    fn store(&mut self, graph: &mut Graph, x: NodeId, value: NodeId, place: Place) -> Result<(), Fail> {
        let root = &self.roots[&place.root];
        let (base, version) = (root.value, root.version + 1);
        let source = Source::of(graph, value, "functionalize");
        let point = after(graph, value);
        let new_base = at_point(graph, point, |graph| -> OpResult<NodeId> {
            let mut b = GraphBuilder::new(graph, source, |_| true);
            // The values the views are taken of, from the root down.
            let mut calls = vec![];
            let mut at = base;
            for (i, step) in place.steps.iter().enumerate() {
                let call = traced_step(&b, step, at);
                if i + 1 < place.steps.len() {
                    at = b.node(&call, step.ty.clone());
                }
                calls.push(call);
            }
            let mut new = b.traced(value).ok_or_else(|| OpError::shape("a write of no tensor"))?;
            for call in calls.iter().rev() {
                new = write_through(&mut b, call, &new)?;
            }
            Ok(node_of(&new))
        })?;
        self.roots.insert(
            place.root,
            Root {
                value: new_base,
                version,
            },
        );
        let root_place = Place {
            steps: vec![],
            version,
            ..place.clone()
        };
        self.places.insert(new_base, root_place);
        self.places.insert(value, Place { version, ..place });
        if x != value {
            self.newest.insert(x, value);
        }
        Ok(())
    }

    /// Adds the last values of inputs and buffers that were written to the results.
    fn results(&mut self, graph: &mut Graph) {
        let Some(output) = graph.output() else { return };
        let (mut values, mut mutations) = (vec![], vec![]);
        for n in graph.ids() {
            let Some(root) = self.roots.get(&n).filter(|r| r.version > 0) else {
                continue;
            };
            let name: Arc<str> = graph[n].target().into();
            mutations.push(match graph[n].op() {
                Opcode::Placeholder => Mutation::Input(graph[n].name().into()),
                Opcode::GetAttr => Mutation::Buffer(name),
                _ => continue,
            });
            values.push(Val::Leaf(root.value));
        }
        if values.is_empty() {
            return;
        }
        let old = graph[output].args().first().cloned().unwrap_or(Val::None);
        let old = match old {
            Val::Tuple(v) => v,
            v => vec![v],
        };
        let known = graph.mutations.len().min(old.len());
        let (lead, rest) = old.split_at(known);
        let all = [lead, &values, rest].concat();
        graph.set_args(output, vec![Val::Tuple(all)]);
        graph.mutations.extend(mutations);
    }
}

/// An error without its place, or with it.
enum Fail {
    Op(OpError),
    Diagnostic(Box<Diagnostic>),
}

impl From<OpError> for Fail {
    fn from(e: OpError) -> Fail {
        Fail::Op(e)
    }
}

impl From<Diagnostic> for Fail {
    fn from(d: Diagnostic) -> Fail {
        Fail::Diagnostic(Box::new(d))
    }
}

fn traced_step(b: &GraphBuilder<'_>, step: &Step, of: NodeId) -> Call<Traced> {
    let mut args: Vec<Val<Traced>> = step.args.iter().map(|a| b.trace(a)).collect();
    args[0] = b.trace(&Val::Leaf(of));
    Call { op: step.op, args }
}

fn node_of(t: &Traced) -> NodeId {
    NodeId::from_u32(t.id)
}

fn tensor_type(graph: &Graph, n: NodeId) -> Option<TensorType> {
    graph[n].meta.ty.as_ref()?.as_leaf().cloned()
}

fn after(graph: &Graph, n: NodeId) -> InsertPoint {
    graph.next(n).map_or(InsertPoint::End, InsertPoint::Before)
}

fn at_point<R>(graph: &mut Graph, point: InsertPoint, f: impl FnOnce(&mut Graph) -> R) -> R {
    let before = graph.insert_point();
    graph.set_insert_point(point);
    let r = f(graph);
    graph.set_insert_point(before);
    r
}

/// Whether the call is a batch normalisation in training that has running statistics.
fn updates_statistics(resolved: &Resolved) -> bool {
    resolved.types().is_some_and(|c| running::functional(&c).is_some())
}

/// Whether the node is a dropout that drops nothing: torch gives the operand itself.
fn is_disabled_dropout(resolved: &Resolved) -> bool {
    let Some(call) = resolved.types().filter(|c| c.op.name.contains("dropout")) else {
        return false;
    };
    let off = |name: &str| {
        call.op
            .schema
            .index_of(name)
            .is_some_and(|i| call.args[i] == Val::Bool(false))
    };
    off("train") || off("training")
}
