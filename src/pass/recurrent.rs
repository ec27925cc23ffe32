//! Finds recurrent layers that were unrolled, as `run_decompositions` of `torch.export` leaves them: twenty nodes a step.
//!
//! A layer is recognised from where its steps are joined (`cat`) backwards: each state must be one step of the LSTM or GRU
//! cell from the state before it, with the same weights, and the inputs' products must be slices of one product in order
//! (or, for the layer that runs backwards, in reverse). States that are used in other places keep the layer unrolled. The
//! work is linear in the number of steps.
//!
#![doc = include_str!("examples/recurrent.md")]

use super::build::{GraphBuilder, Source, full_args};
use super::{Context, canonical_op, dce, each_graph};
use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId};
use crate::op::{Build, OpResult, Traced};
use crate::types::{Dim, Val};
use cranelift_entity::EntityRef;

/// See the module.
pub fn run(module: &mut GraphModule, cx: &mut Context) -> Result<usize, Diagnostic> {
    let found = each_graph(module, |_, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            if !graph.is_live(n) {
                continue;
            }
            if let Some(layer) = (Matcher { graph }).layer(n) {
                changed += layer.rewrite(graph).is_some() as usize;
            }
        }
        Ok(changed)
    })?;
    if found > 0 {
        dce::run(module, cx)?;
    }
    Ok(found)
}

/// One step: a state from the state before it.
#[derive(Clone, Copy)]
struct Step {
    /// The row of the op table: `lstm` or `gru`.
    cell: &'static str,
    /// The cell state that the step gives, of an LSTM.
    c: Option<NodeId>,
    before: NodeId,
    c_before: Option<NodeId>,
    /// The product of the state with its weights.
    product: Product,
    /// The inputs' products of all steps, `[T, B, gates]`, and this step's place in them.
    inputs: NodeId,
    at: i64,
}

/// `x @ weight.T + bias`.
#[derive(Clone, Copy, PartialEq)]
struct Product {
    x: NodeId,
    weight: NodeId,
    bias: Option<NodeId>,
}

struct Layer {
    /// Where the states are joined.
    joined: NodeId,
    /// The last state in time.
    last: NodeId,
    first: Step,
    end: Step,
    inputs: Product,
    steps: usize,
    reversed: bool,
}

struct Matcher<'g> {
    graph: &'g Graph,
}

impl Matcher<'_> {
    /// The arguments of `n`, one per parameter, if it calls one of these ops.
    fn call(&self, n: NodeId, ops: &[&str]) -> Option<Vec<Arg>> {
        let op = canonical_op(self.graph, n).filter(|op| ops.contains(&op.name))?;
        full_args(op, self.graph, n).ok()
    }

    /// The tensor operands of a call with two, in both orders.
    fn both(&self, n: NodeId, op: &str) -> Option<[(NodeId, NodeId); 2]> {
        let args = self.call(n, &[op])?;
        // `add` and `sub` have a factor.
        if args.get(2).is_some_and(|a| a.as_f64() != Some(1.0)) {
            return None;
        }
        let (a, b) = (*args[0].as_leaf()?, *args[1].as_leaf()?);
        Some([(a, b), (b, a)])
    }

    fn shape(&self, n: NodeId) -> Option<Vec<usize>> {
        self.graph[n].meta.ty.as_ref()?.as_leaf()?.fixed_shape()
    }

    /// The value behind views that keep the order of its elements.
    fn strip(&self, mut n: NodeId) -> NodeId {
        while let Some(Val::Leaf(x)) = self
            .call(n, &["view", "reshape", "squeeze", "unsqueeze", "clone"])
            .and_then(|a| a.first().cloned())
        {
            n = x;
        }
        n
    }

    /// What is split, if `n` is piece `k` of a tensor split into `of` equal pieces along its last dim.
    fn piece(&self, n: NodeId, k: i64, of: usize) -> Option<NodeId> {
        let args = self.call(n, &[super::build::ITEM])?;
        let split = *args[0].as_leaf().filter(|_| args[1].as_int() == Some(k))?;
        let x = *self.call(split, &["split_with_sizes", "split", "chunk"])?[0].as_leaf()?;
        let (whole, part) = (self.shape(x)?, self.shape(n)?);
        let last = whole.len().checked_sub(1)?;
        (part.len() == whole.len() && part[..last] == whole[..last] && part[last] * of == whole[last]).then_some(x)
    }

    /// What `f` is taken of.
    fn of(&self, n: NodeId, f: &str) -> Option<NodeId> {
        self.call(n, &[f])?[0].as_leaf().copied()
    }

    fn product(&self, n: NodeId) -> Option<Product> {
        let n = self.strip(n);
        let (x, w, bias) = if let Some(args) = self.call(n, &["mm"]) {
            (*args[0].as_leaf()?, *args[1].as_leaf()?, None)
        } else {
            let args = self.call(n, &["addmm"])?;
            if args[3..].iter().any(|a| a.as_f64() != Some(1.0)) {
                return None;
            }
            (*args[1].as_leaf()?, *args[2].as_leaf()?, Some(*args[0].as_leaf()?))
        };
        let (args, rank) = (self.call(w, &["permute", "transpose", "t"])?, self.shape(w)?.len());
        (rank == 2 && self.swaps(&args)).then_some(Product {
            x,
            weight: *args[0].as_leaf()?,
            bias,
        })
    }

    /// Whether the arguments of a view of a matrix swap its dims.
    fn swaps(&self, args: &[Arg]) -> bool {
        let dim = |a: &Arg| a.as_int().map(|d| d.rem_euclid(2));
        match &args[1..] {
            [] => true,
            [dims] => dims.items().is_some_and(|d| d.iter().map(dim).eq([Some(1), Some(0)])),
            [a, b] => matches!((dim(a), dim(b)), (Some(0), Some(1)) | (Some(1), Some(0))),
            _ => false,
        }
    }

    /// The inputs' products and the place in them that `n` is a slice of.
    fn slice(&self, n: NodeId) -> Option<(NodeId, i64)> {
        let n = self.strip(n);
        let (args, step) = match self.call(n, &["select"]) {
            Some(args) => (args, false),
            None => (self.call(n, &["slice"])?, true),
        };
        let x = *args[0].as_leaf()?;
        let at = args[2].as_int()?;
        let one = !step || (args[3].as_int() == at.checked_add(1) && args[4].as_int() == Some(1));
        (args[1].as_int() == Some(0) && at >= 0 && one).then_some((x, at))
    }

    fn step(&self, h: NodeId) -> Option<Step> {
        self.lstm(h).or_else(|| self.gru(h))
    }

    /// `h = sigmoid(o) * tanh(c)`, `c = sigmoid(f) * c0 + sigmoid(i) * tanh(g)`, `[i, f, g, o] = W x + U h0`.
    fn lstm(&self, h: NodeId) -> Option<Step> {
        let (c, o) = self
            .both(h, "mul")?
            .into_iter()
            .find_map(|(a, b)| Some((self.of(a, "tanh")?, self.of(b, "sigmoid")?)))?;
        let gates = self.piece(o, 3, 4)?;
        let gate = |n: NodeId, f: &str, k: i64| Some(self.piece(self.of(n, f)?, k, 4)? == gates);
        let new = |n: NodeId| {
            let sides = self.both(n, "mul")?;
            let is = |(i, g)| gate(i, "sigmoid", 0) == Some(true) && gate(g, "tanh", 2) == Some(true);
            sides.into_iter().any(is).then_some(())
        };
        let kept = |n: NodeId| {
            let sides = self.both(n, "mul")?;
            let old = sides.into_iter().find(|(f, _)| gate(*f, "sigmoid", 1) == Some(true));
            old.map(|(_, c)| c)
        };
        let c_before = self
            .both(c, "add")?
            .into_iter()
            .find_map(|(a, b)| new(b).and_then(|()| kept(a)))?;
        let (product, (inputs, at)) = self
            .both(gates, "add")?
            .into_iter()
            .find_map(|(a, b)| Some((self.product(a)?, self.slice(b)?)))?;
        Some(Step {
            cell: "lstm",
            c: Some(c),
            before: self.strip(product.x),
            c_before: Some(c_before),
            product,
            inputs,
            at,
        })
    }

    /// `h = (h0 - n) * sigmoid(z) + n`, `n = tanh(xn + hn * sigmoid(r))`, `[r, z, n] = W x` and `U h0`.
    fn gru(&self, h: NodeId) -> Option<Step> {
        let (kept, new) = self
            .both(h, "add")?
            .into_iter()
            .find(|(a, b)| self.of(*b, "tanh").is_some() && self.both(*a, "mul").is_some())?;
        let sides = self.both(kept, "mul")?;
        let (difference, z) = sides
            .into_iter()
            .find_map(|(a, b)| Some((self.both(a, "sub")?[0], self.of(b, "sigmoid")?)))?;
        let (xn, reset) = self
            .both(self.of(new, "tanh")?, "add")?
            .into_iter()
            .find(|(_, b)| self.both(*b, "mul").is_some())?;
        let (hn, r) = self
            .both(reset, "mul")?
            .into_iter()
            .find_map(|(a, b)| Some((a, self.of(b, "sigmoid")?)))?;
        let (state, input) = (self.piece(hn, 2, 3)?, self.piece(xn, 2, 3)?);
        let gate = |n: NodeId, k: i64| {
            let is = |(a, b)| self.piece(a, k, 3) == Some(state) && self.piece(b, k, 3) == Some(input);
            self.both(n, "add").is_some_and(|s| s.into_iter().any(is))
        };
        let product = self.product(state)?;
        let (inputs, at) = self.slice(input)?;
        let before = self.strip(product.x);
        let sound = difference.1 == new && self.strip(difference.0) == before && gate(r, 0) && gate(z, 1);
        sound.then_some(Step {
            cell: "gru",
            c: None,
            before,
            c_before: None,
            product,
            inputs,
            at,
        })
    }

    /// The layer whose states `n` joins.
    fn layer(&self, n: NodeId) -> Option<Layer> {
        let args = self.call(n, &["cat"])?;
        let mut states: Vec<NodeId> = args[0]
            .items()?
            .iter()
            .map(|a| a.as_leaf().copied())
            .collect::<Option<_>>()?;
        let shape = self.shape(n)?;
        if args[1].as_int() != Some(0) || states.len() < 2 || shape.len() != 3 || shape[0] != states.len() {
            return None;
        }
        let ahead = self.step(states[1])?.before == self.strip(states[0]);
        if !ahead {
            states.reverse();
        }
        let steps: Vec<Step> = states.iter().map(|&h| self.step(h)).collect::<Option<_>>()?;
        let (first, end) = (steps[0], *steps.last()?);
        let count = steps.len() as i64;
        let backwards = first.at != 0;
        for (i, s) in steps.iter().enumerate() {
            let at = if backwards { count - 1 - i as i64 } else { i as i64 };
            let weights = |p: Product| (p.weight, p.bias);
            let same = s.cell == first.cell && s.inputs == first.inputs && weights(s.product) == weights(first.product);
            if !same || s.at != at {
                return None;
            }
            if i > 0 {
                let linked = s.before == self.strip(states[i - 1])
                    && s.c_before.map(|c| self.strip(c)) == steps[i - 1].c.map(|c| self.strip(c));
                // A state that is used beside its step and the join would be computed again.
                let users = self.graph[states[i - 1]].users().count();
                let most = if first.cell == "gru" { 3 } else { 2 };
                if !linked || users > most || steps[i - 1].c.is_some_and(|c| self.graph[c].users().count() > 2) {
                    return None;
                }
            }
        }
        // Joined in the order of time, or of the inputs.
        let forward = ahead && !backwards;
        let reversed = !ahead && backwards;
        let inputs = self.product(first.inputs)?;
        let whole = self.shape(first.inputs)?.first() == Some(&states.len());
        let biased = inputs.bias.is_some() == first.product.bias.is_some();
        ((forward || reversed) && whole && biased).then_some(Layer {
            joined: n,
            last: *states.last()?,
            first,
            end,
            inputs,
            steps: states.len(),
            reversed,
        })
    }
}

impl Layer {
    fn rewrite(&self, graph: &mut Graph) -> Option<()> {
        let source = Source::of(graph, self.joined, "recurrent");
        let point = graph.insert_point();
        // Everything the layer needs is there before its last state, and everything that uses it comes later.
        graph.set_insert_point(InsertPoint::Before(self.last));
        let made = self.build(&mut GraphBuilder::new(graph, source, |_| true));
        graph.set_insert_point(point);
        let (out, h, c) = made.ok()?;
        let node = |t: &Traced| NodeId::new(t.id as usize);
        let pairs = [
            (Some(self.joined), Some(out)),
            (Some(self.last), Some(h)),
            (self.end.c, c),
        ];
        for (old, new) in pairs {
            let (Some(old), Some(new)) = (old, new) else { continue };
            if graph[old].meta.ty == Some(Val::Leaf(new.ty.clone())) {
                graph.replace_all_uses_with(old, node(&new));
            }
        }
        Some(())
    }

    /// The layer's op: all states, the last state, the last cell state.
    fn build(&self, b: &mut GraphBuilder<'_>) -> OpResult<(Traced, Traced, Option<Traced>)> {
        let fail = || crate::op::OpError::shape("a layer of no tensors");
        let traced = |b: &GraphBuilder<'_>, n: NodeId| b.traced(n).ok_or_else(fail);
        let (batch, hidden) = {
            let t = traced(b, self.joined)?;
            (t.shape()?[1].clone(), t.shape()?[2].clone())
        };
        let x = traced(b, self.inputs.x)?;
        let width = x.shape()?.last().cloned().ok_or_else(fail)?;
        let steps = Dim::Const(self.steps as i64);
        let (h0, c0) = (traced(b, self.first.before)?, self.first.c_before);
        let c0 = c0.map(|c| traced(b, c)).transpose()?;
        let mut params = vec![self.inputs.weight, self.first.product.weight];
        params.extend(self.inputs.bias.into_iter().chain(self.first.product.bias));
        let params: Vec<Val<Traced>> = params.iter().map(|&p| b.trace(&Val::Leaf(p))).collect();

        let b: &mut dyn Build = b;
        let mut x = b.reshape(&x, &[steps, batch.clone(), width])?;
        if self.reversed {
            x = b.op("flip", [(&x).into(), Val::List(vec![Val::int(0)])])?;
        }
        let state = [Dim::Const(1), batch, hidden];
        let h0 = b.reshape(&h0, &state)?;
        let hx = match c0 {
            Some(c) => Val::List(vec![h0.into(), b.reshape(&c, &state)?.into()]),
            None => h0.into(),
        };
        let biased = Val::Bool(self.inputs.bias.is_some());
        let off = Val::Bool(false);
        let args = vec![
            x.into(),
            hx,
            Val::List(params),
            biased,
            Val::int(1),
            Val::Float(0.0),
            off.clone(),
            off.clone(),
            off,
        ];
        let result = b.call(self.first.cell, args)?;
        let item = |i: usize| result.items().and_then(|v| v.get(i)?.as_leaf().cloned());
        let (mut out, h) = (item(0).ok_or_else(fail)?, item(1).ok_or_else(fail)?);
        if self.reversed {
            out = b.op("flip", [(&out).into(), Val::List(vec![Val::int(0)])])?;
        }
        Ok((out, h, item(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::{InferOptions, infer};
    use crate::interp;
    use crate::source::FileId;
    use crate::syntax::parse_text;
    use crate::tensor::{Scalar, Tensor};
    use crate::types::DType;
    use std::fmt::Write;

    /// An unrolled LSTM of `steps` steps, batch 2, width 3, 4 hidden units; backwards if `reversed`. Its last cell state is
    /// a result, and with `leak` so is the first.
    fn unrolled(steps: usize, reversed: bool, leak: bool) -> GraphModule {
        let mut t = format!(
            "graph g {{
                %x : f32[{steps}, 2, 3] = placeholder x
                %wi : f32[16, 3] = placeholder wi
                %wh : f32[16, 4] = placeholder wh
                %bi : f32[16] = placeholder bi
                %bh : f32[16] = placeholder bh
                %h0 : f32[2, 4] = placeholder h0
                %c0 : f32[1, 2, 4] = placeholder c0
                %xv = call_function view(%x, [{}, 3])
                %wit = call_function permute(%wi, [1, 0])
                %xp = call_function addmm(%bi, %xv, %wit)
                %xs = call_function view(%xp, [{steps}, 2, 16])
                %s0 = call_function unsqueeze(%h0, 0)\n",
            steps * 2
        );
        let mut names = vec![];
        for i in 0..steps {
            let (h, c) = if i == 0 {
                ("s0".to_string(), "c0".to_string())
            } else {
                (format!("h{i}"), format!("c{i}"))
            };
            let (at, n) = (if reversed { steps - 1 - i } else { i }, i + 1);
            let _ = write!(
                t,
                "%q{n} = call_function slice(%xs, 0, {at}, {})
                %e{n} = call_function squeeze(%q{n}, [0])
                %a{n} = call_function view(%{h}, [2, 4])
                %w{n} = call_function permute(%wh, [1, 0])
                %p{n} = call_function addmm(%bh, %a{n}, %w{n})
                %v{n} = call_function view(%p{n}, [1, 2, 16])
                %g{n} = call_function add(%v{n}, %e{n})
                %y{n} = call_function split_with_sizes(%g{n}, [4, 4, 4, 4], 2)
                %y{n}a = call_function item_of(%y{n}, 0)
                %y{n}b = call_function item_of(%y{n}, 1)
                %y{n}c = call_function item_of(%y{n}, 2)
                %y{n}d = call_function item_of(%y{n}, 3)
                %i{n} = call_function sigmoid(%y{n}a)
                %f{n} = call_function sigmoid(%y{n}b)
                %t{n} = call_function tanh(%y{n}c)
                %o{n} = call_function sigmoid(%y{n}d)
                %k{n} = call_function mul(%f{n}, %{c})
                %m{n} = call_function mul(%i{n}, %t{n})
                %c{n} = call_function add(%k{n}, %m{n})
                %u{n} = call_function tanh(%c{n})
                %h{n} = call_function mul(%o{n}, %u{n})\n",
                at + 1
            );
            names.push(format!("%h{n}"));
        }
        if reversed {
            names.reverse();
        }
        let leaked = if leak { ", %c1" } else { "" };
        let _ = write!(
            t,
            "%out = call_function cat([{}])\noutput (%out, %h{steps}, %c{steps}{leaked})\n}}",
            names.join(", ")
        );
        let (file, d) = parse_text(FileId(0), &t);
        assert!(!d.has_errors(), "{d:?}");
        let (mut m, d) = crate::graph::build(&file, "g");
        assert!(!d.has_errors(), "{d:?}");
        let d = infer(&mut m, &InferOptions::default());
        assert!(!d.has_errors(), "{d:?}");
        m
    }

    fn results(m: &GraphModule) -> Vec<f64> {
        let g = m.entry().unwrap();
        let inputs = g.placeholders().into_iter().enumerate().map(|(k, p)| {
            let shape = g[p].meta.ty.as_ref().unwrap().as_leaf().unwrap().fixed_shape().unwrap();
            Val::Leaf(Tensor::from_fn(DType::F32, &shape, |i| {
                Scalar::F64(((i * 7 + k * 3) % 11) as f64 / 5.0 - 1.0)
            }))
        });
        let v = interp::run(m, inputs.collect()).unwrap_or_else(|d| panic!("{d:?}"));
        let leaves = v.leaves();
        leaves
            .iter()
            .flat_map(|t| (0..t.numel()).map(|i| t.get(i).to_f64()).collect::<Vec<_>>())
            .collect()
    }

    fn calls(m: &GraphModule, op: &str) -> usize {
        let g = m.entry().unwrap();
        g.iter().filter(|&n| g[n].target() == op).count()
    }

    fn rolled(m: &GraphModule) -> GraphModule {
        let mut m = m.clone();
        let options = super::super::PassOptions::default();
        let mut cx = Context {
            options: &options,
            remarks: vec![],
        };
        run(&mut m, &mut cx).unwrap();
        m
    }

    #[test]
    fn layers_forwards_and_backwards_are_found() {
        for reversed in [false, true] {
            let before = unrolled(5, reversed, false);
            let after = rolled(&before);
            assert_eq!(
                (calls(&after, "lstm"), calls(&after, "tanh")),
                (1, 0),
                "reversed: {reversed}"
            );
            let (a, b) = (results(&before), results(&after));
            assert_eq!(a.len(), b.len());
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
        }
    }

    #[test]
    fn states_that_are_used_elsewhere_keep_it_unrolled() {
        assert_eq!(calls(&rolled(&unrolled(5, false, true)), "lstm"), 0);
    }
}
