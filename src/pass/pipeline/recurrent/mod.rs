//! Recognises unrolled recurrent layers, as `run_decompositions` of `torch.export` leaves them: twenty nodes per step.
//!
//! A node that computes one step of a cell ([`step`]) extends the chain of the state before it if it has the same
//! weights and takes the next slice of one product of all inputs. A chain that takes all slices, in order or in
//! reverse, is a layer. Other uses of its states read the layer's result. An LSTM whose cell states have other uses
//! stays unrolled. The pass is linear in the number of steps.
//!
#![doc = include_str!("../../examples/recurrent.md")]

mod step;
#[cfg(test)]
mod tests;

use super::dce;
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId};
use crate::op::{Build, OpBuilder, OpId, OpResult, Traced};
use crate::pass::build::{GraphBuilder, NodeOrigin};
use crate::pass::{PassContext, each_graph};
use crate::types::{Dim, Val};
use cranelift_entity::EntityRef;
use std::collections::{HashMap, HashSet};
use step::{CellStep, LinearProduct, StepMatcher};

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let rewrites = each_graph(module, |_, graph| {
        let layers = find_layers(graph);
        let rewritten = layers.iter().filter_map(|layer| layer.rewrite(graph));
        Ok(rewritten.count())
    })?;
    if rewrites > 0 {
        dce::run(module, cx)?;
    }
    Ok(rewrites)
}

struct Layer {
    /// In time order.
    states: Vec<NodeId>,
    /// The nodes that join all states, and whether in the order of the layer's result.
    joined: Vec<(NodeId, bool)>,
    first: CellStep,
    end: CellStep,
    inputs: LinearProduct,
    /// Whether the first step takes the last input.
    reversed: bool,
}

/// The layers of a graph, in graph order.
fn find_layers(graph: &Graph) -> Vec<Layer> {
    let m = StepMatcher { graph };
    let mut steps: HashMap<NodeId, CellStep> = HashMap::new();
    let mut next: HashMap<NodeId, NodeId> = HashMap::new();
    let mut first = vec![];
    for n in graph.iter() {
        let Some(step) = m.step(n) else { continue };
        let goes_on = steps.get(&step.before).is_some_and(|s| is_next_step(&m, s, &step));
        // A state that two steps continue does not form a chain.
        if !goes_on || next.insert(step.before, n).is_some() {
            first.push(n);
        }
        steps.insert(n, step);
    }
    let layers = first.into_iter().filter_map(|n| {
        let chain = std::iter::successors(Some(n), |n| next.get(n).copied());
        match_layer(&m, chain.collect(), &steps)
    });
    layers.collect()
}

/// Whether `b` is the step after `a`.
fn is_next_step(m: &StepMatcher, a: &CellStep, b: &CellStep) -> bool {
    let weights = |p: LinearProduct| (p.weight, p.bias);
    a.cell == b.cell
        && a.out == b.out
        && a.inputs == b.inputs
        && weights(a.product) == weights(b.product)
        && a.at.abs_diff(b.at) == 1
        && a.c.map(|c| m.strip(c)) == b.c_before.map(|c| m.strip(c))
}

/// The layer that a chain of states forms.
fn match_layer(m: &StepMatcher, states: Vec<NodeId>, steps: &HashMap<NodeId, CellStep>) -> Option<Layer> {
    let (first, end) = (steps[states.first()?], steps[states.last()?]);
    let count = states.len() as i64;
    let descending = first.at != 0;
    let place = |i: i64| if descending { count - 1 - i } else { i };
    let in_order = (0..count).zip(&states).all(|(i, h)| steps[h].at == place(i));
    // A cell state that has uses besides its tanh and the next step would have to be computed again.
    let mut inner = states[..states.len() - 1].iter().filter_map(|h| steps[h].c);
    let leaks = inner.any(|c| m.graph[c].users().count() > 2);
    let (inputs, flipped) = m.inputs(first.inputs)?;
    let whole = m.shape(first.inputs)?.first() == Some(&states.len());
    let biased = inputs.bias.is_some() == first.product.bias.is_some();
    let ends_alone = m.shape(*states.first()?)?.len() >= 2;
    (count >= 2 && in_order && !leaks && whole && biased && ends_alone).then(|| Layer {
        joined: find_joins(m, &states, descending != flipped),
        first,
        end,
        inputs,
        reversed: descending != flipped,
        states,
    })
}

/// The nodes that join all states along a new dim or a leading dim of size 1.
fn find_joins(m: &StepMatcher, states: &[NodeId], reversed: bool) -> Vec<(NodeId, bool)> {
    let join = |n: NodeId| {
        let args = m.call(n, &[OpId::Cat])?;
        let items: Vec<NodeId> = args[0]
            .items()?
            .iter()
            .map(|a| a.as_leaf().map(|&n| m.strip(n)))
            .collect::<Option<_>>()?;
        let shape = m.shape(n)?;
        if args[1].as_int() != Some(0) || shape.len() != 3 || shape[0] != states.len() || items.len() != states.len() {
            return None;
        }
        let forward = items == states;
        (forward || items.iter().rev().eq(states)).then_some((n, forward != reversed))
    };
    let users = m.graph[states[0]].users();
    let through = users.flat_map(|u| m.graph[u].users().chain([u]).collect::<Vec<_>>());
    let candidates: HashSet<NodeId> = through.collect();
    let mut joins: Vec<_> = candidates.into_iter().filter_map(join).collect();
    joins.sort();
    joins
}

impl Layer {
    fn rewrite(&self, graph: &mut Graph) -> Option<()> {
        let source = NodeOrigin::from_node(graph, *self.states.last()?, "recurrent");
        let point = graph.insert_point();
        // The layer's operands are all available before its first state is complete, and users of its states come
        // later.
        graph.set_insert_point(InsertPoint::Before(self.states[0]));
        let mut b = GraphBuilder::new(graph, source, |_| true);
        let built = self
            .build(&mut b)
            .and_then(|(out, h, c)| Ok((self.replacements(&mut b, &out, h)?, c)));
        graph.set_insert_point(point);
        let (states, c) = built.ok()?;
        let node = |t: &Traced| NodeId::new(t.id as usize);
        let pairs = states.iter().map(|(n, t)| (*n, t)).chain(self.end.c.zip(c.as_ref()));
        for (old, new) in pairs {
            if graph[old].meta.ty == Some(Val::Leaf(new.ty.clone())) {
                graph.replace_all_uses_with(old, node(new));
            }
        }
        Some(())
    }

    /// The replacements of the joins and of each state that has other uses.
    fn replacements(&self, b: &mut GraphBuilder<'_>, out: &Traced, last: Traced) -> OpResult<Vec<(NodeId, Traced)>> {
        let mut pairs = vec![];
        for &(n, in_order) in &self.joined {
            let whole = match in_order {
                true => out.clone(),
                false => flip(b, out)?,
            };
            pairs.push((n, whole));
        }
        for (i, &h) in self.states.iter().enumerate() {
            let shape = b.traced(h).and_then(|t| t.shape().ok().map(<[Dim]>::to_vec));
            let Some(shape) = shape else { continue };
            let end = i + 1 == self.states.len();
            let state = match end {
                true => last.clone(),
                false => {
                    let time = if self.reversed { self.states.len() - 1 - i } else { i };
                    let args = [out.into(), Val::int(0), Val::int(time as i64)];
                    (b as &mut dyn Build).op(OpId::Select, args)?
                }
            };
            pairs.push((h, (b as &mut dyn Build).reshape(&state, &shape)?));
        }
        Ok(pairs)
    }

    /// The layer's weights and biases, in the order of the op's parameters.
    fn params(&self) -> Vec<NodeId> {
        let mut params = vec![self.inputs.weight, self.first.product.weight];
        params.extend(self.inputs.bias.into_iter().chain(self.first.product.bias));
        params.extend(self.first.out);
        params
    }

    /// Builds the layer's op. Returns all states, the last state and the last cell state.
    fn build(&self, b: &mut GraphBuilder<'_>) -> OpResult<(Traced, Traced, Option<Traced>)> {
        let fail = || crate::op::OpError::shape("a layer has no tensors");
        let traced = |b: &GraphBuilder<'_>, n: NodeId| b.traced(n).ok_or_else(fail);
        let state = traced(b, self.states[0])?;
        let [.., batch, hidden] = state.shape()? else {
            return Err(fail());
        };
        let (batch, hidden) = (batch.clone(), hidden.clone());
        let x = traced(b, self.inputs.x)?;
        let width = x.shape()?.last().cloned().ok_or_else(fail)?;
        let steps = Dim::Const(self.states.len() as i64);
        let (h0, c0) = (traced(b, self.first.before)?, self.first.c_before);
        let c0 = c0.map(|c| traced(b, c)).transpose()?;
        let params: Vec<Val<Traced>> = self.params().iter().map(|&p| b.trace(&Val::Leaf(p))).collect();

        let b: &mut dyn Build = b;
        let mut x = b.reshape(&x, &[steps, batch.clone(), width])?;
        if self.reversed {
            x = flip(b, &x)?;
        }
        let h0 = b.reshape(&h0, &[Dim::Const(1), batch.clone(), hidden])?;
        let hx = match c0 {
            Some(c) => {
                let hidden = c.shape()?.last().cloned().ok_or_else(fail)?;
                Val::List(vec![h0.into(), b.reshape(&c, &[Dim::Const(1), batch, hidden])?.into()])
            }
            None => h0.into(),
        };
        let mut args = vec![x.into(), hx, Val::List(params), Val::Bool(self.inputs.bias.is_some())];
        // One layer without dropout, not in training, in one direction, with the time first.
        args.extend([Val::int(1), Val::Float(0.0)]);
        args.extend([false; 3].map(Val::Bool));
        let result = b.call(self.first.cell, args)?;
        let item = |i: usize| result.items().and_then(|v| v.get(i)?.as_leaf().cloned());
        let (mut out, h) = (item(0).ok_or_else(fail)?, item(1).ok_or_else(fail)?);
        if self.reversed {
            out = flip(b, &out)?;
        }
        Ok((out, h, item(2)))
    }
}

fn flip(b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
    b.flip(x, Val::List(vec![Val::int(0)]))
}
