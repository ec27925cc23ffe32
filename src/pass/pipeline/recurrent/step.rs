//! Recognises one step of an unrolled recurrent layer.

use crate::graph::{Arg, Graph, NodeId};
use crate::op::OpId;
use crate::pass::build::full_args;
use crate::pass::canonical_op;
use crate::types::Val;

/// One step: computes a state from the state before it.
#[derive(Clone, Copy)]
pub(super) struct CellStep {
    /// The row of the op table: `lstm`, `gru`, `rnn_tanh` or `rnn_relu`.
    pub cell: OpId,
    /// The new cell state, for an LSTM.
    pub c: Option<NodeId>,
    pub before: NodeId,
    pub c_before: Option<NodeId>,
    /// The matrix that projects an LSTM's output: the state is the projection.
    pub out: Option<NodeId>,
    /// The product of the state with its weights.
    pub product: LinearProduct,
    /// The products of the inputs of all steps, `[T, B, gates]`, and this step's index in them.
    pub inputs: NodeId,
    pub at: i64,
}

/// `x @ weight.T + bias`.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct LinearProduct {
    pub x: NodeId,
    pub weight: NodeId,
    pub bias: Option<NodeId>,
}

pub(super) struct StepMatcher<'g> {
    pub graph: &'g Graph,
}

impl StepMatcher<'_> {
    /// The arguments of `n`, one per parameter, if it calls one of these ops.
    pub(super) fn call(&self, n: NodeId, ops: &[OpId]) -> Option<Vec<Arg>> {
        let op = canonical_op(self.graph, n).filter(|op| op.id().is_some_and(|id| ops.contains(&id)))?;
        full_args(op, self.graph, n).ok()
    }

    /// The tensor operands of a binary call, in both orders.
    fn both_orders(&self, n: NodeId, op: OpId) -> Option<[(NodeId, NodeId); 2]> {
        let args = self.call(n, &[op])?;
        // `add` and `sub` have a third operand, a factor.
        if args.get(2).is_some_and(|a| a.as_f64() != Some(1.0)) {
            return None;
        }
        let (a, b) = (*args[0].as_leaf()?, *args[1].as_leaf()?);
        Some([(a, b), (b, a)])
    }

    pub(super) fn shape(&self, n: NodeId) -> Option<Vec<usize>> {
        self.graph[n].meta.ty.as_ref()?.as_leaf()?.fixed_shape()
    }

    /// The value under views that keep the order of its elements.
    pub(super) fn strip(&self, mut n: NodeId) -> NodeId {
        while let Some(Val::Leaf(x)) = self
            .call(
                n,
                &[OpId::View, OpId::Reshape, OpId::Squeeze, OpId::Unsqueeze, OpId::Clone],
            )
            .and_then(|a| a.first().cloned())
        {
            n = x;
        }
        n
    }

    /// The tensor that is split, if `n` is piece `k` of `count` equal pieces along its last dim.
    fn piece(&self, n: NodeId, k: i64, count: usize) -> Option<NodeId> {
        let args = self.call(n, &[OpId::ItemOf])?;
        let split = *args[0].as_leaf().filter(|_| args[1].as_int() == Some(k))?;
        let x = *self.call(split, &[OpId::SplitWithSizes, OpId::Split, OpId::Chunk])?[0].as_leaf()?;
        let (whole, part) = (self.shape(x)?, self.shape(n)?);
        let last = whole.len().checked_sub(1)?;
        (part.len() == whole.len() && part[..last] == whole[..last] && part[last] * count == whole[last]).then_some(x)
    }

    /// The operand of `n`, if `n` is a call of `f`.
    fn operand_of(&self, n: NodeId, f: OpId) -> Option<NodeId> {
        self.call(n, &[f])?[0].as_leaf().copied()
    }

    fn product(&self, n: NodeId) -> Option<LinearProduct> {
        let n = self.strip(n);
        let (x, w, bias) = if let Some(args) = self.call(n, &[OpId::Mm]) {
            (*args[0].as_leaf()?, *args[1].as_leaf()?, None)
        } else {
            let args = self.call(n, &[OpId::Addmm])?;
            if args[3..].iter().any(|a| a.as_f64() != Some(1.0)) {
                return None;
            }
            (*args[1].as_leaf()?, *args[2].as_leaf()?, Some(*args[0].as_leaf()?))
        };
        Some(LinearProduct {
            x,
            weight: self.transpose_of(w)?,
            bias,
        })
    }

    /// Whether the arguments, of a view of a matrix, swap its dims.
    fn swaps_dims(&self, args: &[Arg]) -> bool {
        let dim = |a: &Arg| a.as_int().map(|d| d.rem_euclid(2));
        match &args[1..] {
            [] => true,
            [dims] => dims.items().is_some_and(|d| d.iter().map(dim).eq([Some(1), Some(0)])),
            [a, b] => matches!((dim(a), dim(b)), (Some(0), Some(1)) | (Some(1), Some(0))),
            _ => false,
        }
    }

    /// The products of all inputs that `n` is a slice of, and its index in them.
    fn slice(&self, n: NodeId) -> Option<(NodeId, i64)> {
        let n = self.strip(n);
        let (args, step) = match self.call(n, &[OpId::Select]) {
            Some(args) => (args, false),
            None => (self.call(n, &[OpId::Slice])?, true),
        };
        let x = *args[0].as_leaf()?;
        let step_index = args[2].as_int()?;
        let single = !step || (args[3].as_int() == step_index.checked_add(1) && args[4].as_int() == Some(1));
        (args[1].as_int() == Some(0) && step_index >= 0 && single).then_some((x, step_index))
    }

    pub(super) fn step(&self, h: NodeId) -> Option<CellStep> {
        match self.graph[h].op_id()? {
            OpId::Mul => self.lstm(h),
            OpId::Mm => self.projected(h),
            OpId::Add => self.gru(h),
            OpId::Tanh => self.match_plain(h, OpId::Tanh, OpId::RnnTanh),
            OpId::Relu => self.match_plain(h, OpId::Relu, OpId::RnnRelu),
            _ => None,
        }
    }

    /// `h = f(W x + U h0)`.
    fn match_plain(&self, h: NodeId, f: OpId, cell: OpId) -> Option<CellStep> {
        let sum = self.operand_of(h, f)?;
        let (product, (inputs, time)) = self.sum_of_products(sum)?;
        Some(CellStep {
            cell,
            c: None,
            before: self.strip(product.x),
            c_before: None,
            out: None,
            product,
            inputs,
            at: time,
        })
    }

    /// Matches `U h0 + W x`: the first product, and the slice that the second is.
    fn sum_of_products(&self, n: NodeId) -> Option<(LinearProduct, (NodeId, i64))> {
        let sides = self.both_orders(n, OpId::Add)?;
        sides
            .into_iter()
            .find_map(|(a, b)| Some((self.product(a)?, self.slice(b)?)))
    }

    /// The products of all inputs, if `n` computes them, and whether they are in reverse.
    pub(super) fn inputs(&self, n: NodeId) -> Option<(LinearProduct, bool)> {
        let n = self.strip(n);
        let flip = self.call(n, &[OpId::Flip]).filter(|args| {
            let dims = args[1].items().unwrap_or_default();
            matches!(dims, [d] if d.as_int() == Some(0) || d.as_int() == Some(-3))
        });
        let (n, flipped) = match &flip {
            Some(args) => (*args[0].as_leaf()?, true),
            None => (n, false),
        };
        let product = self.product(n).or_else(|| self.match_batched(n));
        Some((product?, flipped))
    }

    /// Matches `x @ weight.T + bias` for `x` of rank 3, with the weight repeated.
    fn match_batched(&self, n: NodeId) -> Option<LinearProduct> {
        let n = self.strip(n);
        let sum = self.both_orders(n, OpId::Add).and_then(|sides| {
            let bias = |b: NodeId| self.shape(b).is_some_and(|s| s.len() == 1);
            sides.into_iter().find(|(_, b)| bias(*b))
        });
        let (n, bias) = sum.map_or((n, None), |(a, b)| (self.strip(a), Some(b)));
        let args = self.call(n, &[OpId::Bmm, OpId::Matmul])?;
        let (x, mut w) = (*args[0].as_leaf()?, *args[1].as_leaf()?);
        while self.shape(w)?.len() > 2 {
            w = *self.call(w, &[OpId::View, OpId::Reshape, OpId::Expand])?[0].as_leaf()?;
        }
        let sizes = self.shape(n)?;
        let whole = sizes.len() == 3 && self.shape(x)?[..2] == sizes[..2];
        Some(LinearProduct {
            x,
            weight: self.transpose_of(w)?,
            bias,
        })
        .filter(|_| whole)
    }

    /// The matrix whose transpose is `w`.
    fn transpose_of(&self, w: NodeId) -> Option<NodeId> {
        let (args, rank) = (
            self.call(w, &[OpId::Permute, OpId::Transpose, OpId::T])?,
            self.shape(w)?.len(),
        );
        (rank == 2 && self.swaps_dims(&args)).then_some(*args[0].as_leaf()?)
    }

    /// `h = sigmoid(o) * tanh(c)`, `c = sigmoid(f) * c0 + sigmoid(i) * tanh(g)`, `[i, f, g, o] = W x + U h0`.
    fn lstm(&self, h: NodeId) -> Option<CellStep> {
        let (c, o) = self
            .both_orders(h, OpId::Mul)?
            .into_iter()
            .find_map(|(a, b)| Some((self.operand_of(a, OpId::Tanh)?, self.operand_of(b, OpId::Sigmoid)?)))?;
        let gates = self.piece(o, 3, 4)?;
        let gate = |n: NodeId, f: OpId, k: i64| Some(self.piece(self.operand_of(n, f)?, k, 4)? == gates);
        let new = |n: NodeId| {
            let sides = self.both_orders(n, OpId::Mul)?;
            let is = |(i, g)| gate(i, OpId::Sigmoid, 0) == Some(true) && gate(g, OpId::Tanh, 2) == Some(true);
            sides.into_iter().any(is).then_some(())
        };
        let old_cell = |n: NodeId| {
            let sides = self.both_orders(n, OpId::Mul)?;
            let old = sides
                .into_iter()
                .find(|(f, _)| gate(*f, OpId::Sigmoid, 1) == Some(true));
            old.map(|(_, c)| c)
        };
        let c_before = self
            .both_orders(c, OpId::Add)?
            .into_iter()
            .find_map(|(a, b)| new(b).and_then(|()| old_cell(a)))?;
        let (product, (inputs, time)) = self.sum_of_products(gates)?;
        Some(CellStep {
            cell: OpId::Lstm,
            c: Some(c),
            before: self.strip(product.x),
            c_before: Some(c_before),
            out: None,
            product,
            inputs,
            at: time,
        })
    }

    /// Matches `h = V h'` where `h'` is an LSTM's output without other uses.
    fn projected(&self, h: NodeId) -> Option<CellStep> {
        let product = self.product(h)?;
        let mut x = product.x;
        let inner = self.strip(x);
        let single_use = |n: NodeId| self.graph[n].users().count() == 1;
        while x != inner {
            if !single_use(x) {
                return None;
            }
            x = *self.graph[x].args().first()?.as_leaf()?;
        }
        let step = self.call(inner, &[OpId::Mul]).and_then(|_| self.lstm(inner))?;
        single_use(inner).then_some(CellStep {
            out: Some(product.weight),
            ..step
        })
    }

    /// `h = (h0 - n) * sigmoid(z) + n`, `n = tanh(xn + hn * sigmoid(r))`, `[r, z, n] = W x` and `U h0`.
    fn gru(&self, h: NodeId) -> Option<CellStep> {
        let (old_term, new) = self
            .both_orders(h, OpId::Add)?
            .into_iter()
            .find(|(a, b)| self.operand_of(*b, OpId::Tanh).is_some() && self.both_orders(*a, OpId::Mul).is_some())?;
        let sides = self.both_orders(old_term, OpId::Mul)?;
        let (difference, z) = sides
            .into_iter()
            .find_map(|(a, b)| Some((self.both_orders(a, OpId::Sub)?[0], self.operand_of(b, OpId::Sigmoid)?)))?;
        let (xn, reset) = self
            .both_orders(self.operand_of(new, OpId::Tanh)?, OpId::Add)?
            .into_iter()
            .find(|(_, b)| self.both_orders(*b, OpId::Mul).is_some())?;
        let (hn, r) = self
            .both_orders(reset, OpId::Mul)?
            .into_iter()
            .find_map(|(a, b)| Some((a, self.operand_of(b, OpId::Sigmoid)?)))?;
        let (state, input) = (self.piece(hn, 2, 3)?, self.piece(xn, 2, 3)?);
        let gate = |n: NodeId, k: i64| {
            let is = |(a, b)| self.piece(a, k, 3) == Some(state) && self.piece(b, k, 3) == Some(input);
            self.both_orders(n, OpId::Add).is_some_and(|s| s.into_iter().any(is))
        };
        let product = self.product(state)?;
        let (inputs, time) = self.slice(input)?;
        let before = self.strip(product.x);
        let sound = difference.1 == new && self.strip(difference.0) == before && gate(r, 0) && gate(z, 1);
        sound.then_some(CellStep {
            cell: OpId::Gru,
            c: None,
            before,
            c_before: None,
            out: None,
            product,
            inputs,
            at: time,
        })
    }
}
