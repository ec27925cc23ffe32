//! Reads a graph whose passes ran on symbolic sizes for given sizes.
//!
//! What such a graph computes from constants and sizes alone (`arange(n)`, a table of the distances between positions) becomes a
//! constant, as the pass `fold` makes it of a graph with known sizes. Calls are checked, because inference has seen no known sizes.

use super::GraphReader;
use super::facts::NodeFacts;
use crate::graph::purity::canonical_effect;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::check_bytes;
use crate::interp;
use crate::lower::ir::known::{CallKey, call_key};
use crate::lower::ir::{Def, ValueId};
use crate::op::{self, Call, Effect, OpId, OpResult, Sizes, Traced};
use crate::pass::uniform_value;
use crate::source::Loc;
use crate::tensor::{Tensor, byte_len};
use crate::types::{Dim, TensorType, Type, Val};
use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum size of a uniform tensor that a constant is computed from, as in the pass `fold`.
const MAX_UNIFORM: usize = 1 << 24;

/// The sizes that a graph is lowered for.
pub(crate) struct Binding<'a> {
    /// The values of the symbolic sizes.
    pub(super) dims: &'a HashMap<String, i64>,
    /// For a graph that was optimised with symbolic sizes.
    pub(super) sized: Option<&'a SizedNodes>,
}

/// Source locations by the names of nodes.
type Places = Arc<HashMap<Arc<str>, Loc>>;

impl<'a> Binding<'a> {
    /// The binding for a graph that was optimised for these sizes.
    pub(crate) fn new(dims: &'a HashMap<String, i64>) -> Binding<'a> {
        Binding { dims, sized: None }
    }

    /// The binding for a graph that was optimised with symbolic sizes.
    pub(crate) fn of_symbols(dims: &'a HashMap<String, i64>, sized: &'a SizedNodes) -> Binding<'a> {
        let sized = Some(sized);
        Binding { dims, sized }
    }

    /// Whether the program need not report how it was fused. Only the texts of a compilation show that.
    pub(in crate::lower) fn skips_report(&self) -> bool {
        self.sized.is_some()
    }

    /// The source locations of the graph's nodes.
    pub(in crate::lower) fn places_in(&self, graph: &Graph) -> Places {
        self.sized.map_or_else(|| find_places(graph), |s| s.places.clone())
    }
}

fn find_places(graph: &Graph) -> Places {
    let placed = |n| Some((graph[n].name().into(), graph[n].meta.loc.clone()?));
    Arc::new(graph.iter().filter_map(placed).collect())
}

/// The nodes of a graph whose values depend on constants and symbolic sizes alone.
#[derive(Default)]
pub(crate) struct SizedNodes {
    nodes: FxHashSet<NodeId>,
    /// Larger results are not folded.
    limit: usize,
    places: Places,
    pub(super) facts: SecondaryMap<NodeId, NodeFacts>,
}

impl SizedNodes {
    /// Whether the value of a node becomes a constant if it is small.
    pub(super) fn is_folded(&self, n: NodeId) -> bool {
        self.nodes.contains(&n)
    }

    /// Finds the nodes of an optimised graph. `limit` is the size in bytes up to which results are folded; with 0, none is.
    pub(crate) fn find_in(module: &GraphModule, graph: &Graph, limit: usize) -> SizedNodes {
        // Whether the value of a node depends on sizes; nodes that depend on inputs are missing.
        let mut known: FxHashMap<NodeId, bool> = FxHashMap::default();
        let mut nodes = FxHashSet::default();
        for n in graph.iter() {
            let Some(is_sized) = depends_on_sizes(module, graph, n, &known) else {
                continue;
            };
            known.insert(n, is_sized);
            if is_sized && graph[n].op().is_call() && is_stored(graph, n) {
                nodes.insert(n);
            }
        }
        let mut facts = SecondaryMap::new();
        graph.iter().for_each(|n| facts[n] = NodeFacts::of_node(graph, n));
        SizedNodes {
            nodes,
            limit,
            places: find_places(graph),
            facts,
        }
    }
}

/// Whether a node that depends on nothing but constants and sizes depends on sizes. `None` for other nodes.
fn depends_on_sizes(module: &GraphModule, graph: &Graph, n: NodeId, known: &FxHashMap<NodeId, bool>) -> Option<bool> {
    let node = &graph[n];
    match node.op() {
        Opcode::GetAttr => (!graph.writes_buffer(node.target())).then_some(false),
        Opcode::CallFunction => {
            // Numbers of symbolic sizes, whatever tensor they are the sizes of.
            if let Some(ty) = node.meta.ty.as_ref().filter(|t| t.leaves().is_empty()) {
                return Some(has_symbol(ty));
            }
            let op = op::by_name(node.target())?;
            let pure = canonical_effect(op, graph, n, module) == Effect::Pure && op.control().is_none();
            let inputs = node.inputs().into_iter().map(|i| known.get(&i).copied());
            let inputs = inputs.collect::<Option<Vec<bool>>>().filter(|_| pure)?;
            let mut args = node.args().iter().chain(node.kwargs().iter().map(|(_, v)| v));
            Some(inputs.contains(&true) || args.any(has_symbol))
        }
        _ => None,
    }
}

fn has_symbol<T>(v: &Val<T>) -> bool {
    match v {
        Val::Int(d) => matches!(d, Dim::Poly(_)),
        v => v.items().is_some_and(|items| items.iter().any(has_symbol)),
    }
}

/// Whether the value is one tensor that some kernel reads. A constant that is only returned would be copied for each call, which takes
/// longer than computing it.
fn is_stored(graph: &Graph, n: NodeId) -> bool {
    let is_read = graph[n].users().any(|u| graph[u].op() != Opcode::Output);
    is_read && matches!(graph[n].meta.ty, Some(Type::Leaf(_)))
}

impl GraphReader<'_> {
    /// The values of a call of an op.
    pub(super) fn read_call(
        &mut self,
        n: NodeId,
        call: Call<Traced>,
        facts: &NodeFacts,
        key: Option<CallKey>,
    ) -> OpResult<Val<ValueId>> {
        if let Some(sized) = self.binding.sized {
            self.check_call(&call, facts)?;
            if self.depth == 0 && sized.nodes.contains(&n) {
                return self.read_sized(call, sized.limit);
            }
        }
        let by_types = key.and_then(|key| Some((key, call_key(&call)?)));
        let result = self.tir.push_call(call)?;
        if let Some((of_node, of_call)) = by_types
            && let Some(meaning) = self.tir.known.meaning(&of_call)
        {
            self.tir.known.set_meaning(of_node, meaning);
        }
        Ok(result.map(|t| ValueId(t.id)))
    }

    /// Returns an error if inference would report one for this call.
    fn check_call(&mut self, call: &Call<Traced>, facts: &NodeFacts) -> OpResult<()> {
        if !facts.has_demands && !facts.has_own_rule {
            return Ok(());
        }
        let key = call_key(call);
        if key.as_ref().is_some_and(|k| self.tir.known.is_checked(k)) {
            return Ok(());
        }
        let types: Call<TensorType> = call.map(|t| t.ty.clone());
        types.op.check_demands(&types)?;
        if facts.has_own_rule {
            check_bytes(&types.op.result_type(&types, &mut Sizes::default())?, types.op.name)?;
        }
        key.into_iter().for_each(|k| self.tir.known.set_checked(k));
        Ok(())
    }

    /// The value of a call whose operands are constants, if possible as a constant.
    fn read_sized(&mut self, call: Call<Traced>, limit: usize) -> OpResult<Val<ValueId>> {
        let is_uniform = call.op.is(OpId::Full);
        let value = self.evaluate_call(&call, if is_uniform { MAX_UNIFORM } else { limit });
        let (call, value) = match value {
            Some(value) if !is_uniform => match uniform_value(&value) {
                Some(v) => (call_full(&value, &v)?, value),
                None => {
                    let v = self
                        .tir
                        .push(value.dtype(), value.shape(), Def::Constant(value.clone()))?;
                    return Ok(Val::Leaf(v));
                }
            },
            Some(value) => (call, value),
            None => return Ok(self.tir.push_call(call)?.map(|t| ValueId(t.id))),
        };
        let result = self.tir.push_call(call)?.map(|t| ValueId(t.id));
        if let Val::Leaf(v) = result {
            self.folded.insert(v, value);
        }
        Ok(result)
    }

    /// The result of a call on constants, if it has at most `limit` bytes.
    fn evaluate_call(&self, call: &Call<Traced>, limit: usize) -> Option<Tensor> {
        let types = call.map(|t| t.ty.clone());
        let ty = call.op.result_type(&types, &mut Sizes::default()).ok()?;
        let ty = ty.as_leaf()?;
        byte_len(ty.dtype, &ty.fixed_shape()?).filter(|&bytes| bytes <= limit)?;
        let mut read = 0usize;
        let mut constant = |t: &Traced| -> Result<Val<Tensor>, ()> {
            let value = self.constant_value(ValueId(t.id)).ok_or(())?;
            read += value.byte_count();
            Ok(Val::Leaf(value))
        };
        let args = call.args.iter().map(|a| a.try_map(&mut constant));
        let args = args.collect::<Result<Vec<_>, ()>>().ok()?;
        if read > limit.saturating_mul(16) {
            return None;
        }
        // An error here is also an error at run time, where it is reported with its location.
        let value = interp::evaluate_call(&Call { op: call.op, args }).ok()?;
        value.as_leaf().filter(|t| t.ty() == *ty).cloned()
    }

    fn constant_value(&self, v: ValueId) -> Option<Tensor> {
        match &self.tir.value(v).def {
            Def::Constant(t) => Some(t.clone()),
            _ => self.folded.get(&v).cloned(),
        }
    }
}

/// A call of `full` that makes a tensor of the type of `t` with the element `v`.
fn call_full(t: &Tensor, v: &Arg) -> OpResult<Call<Traced>> {
    let shape = t.shape().iter().map(|&d| Val::int(d as i64)).collect();
    let value = v.try_map(&mut |_| Err(op::OpError::refused("a number is not a node")))?;
    let args = vec![Val::List(shape), value, Val::DType(t.dtype())];
    Ok(super::build::with_defaults(OpId::Full.op(), args))
}
