//! Values that are computed from bytes, such as `(integers - zero) * scale`: their readers compute them.
//!
//! A kernel that computes bytes and such a value from them would store both, the value in four times the memory. If each
//! reader computes it again, which takes a conversion and one or two operations, only the bytes are stored. The largest
//! value of a window, and concatenated values, are computed from those of the bytes.

use crate::lower::ir::{Def, Special, Tir, ValueId};
use crate::op::OpResult;
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp};

/// The most operations of a value that is computed again.
const MOST_NODES: usize = 12;

/// Redefines pointwise values, max pools and concatenations that read values computed from bytes.
pub(in crate::lower) fn read_bytes(tir: &mut Tir) -> OpResult<()> {
    tir.redefine_values(|tir, u| {
        if let Some(def) = redefined(tir, u) {
            tir.values[u.0 as usize].def = def;
            tir.activations.remove(&u);
        }
        CommutingOp::find(tir, u).map_or(Ok(()), |op| op.replace(tir, u))
    })
}

/// A max pool or a concatenation of values that are computed from bytes in the same way. It commutes with the computation.
struct CommutingOp {
    special: Special,
    bytes: Vec<ValueId>,
    /// The computation from the bytes, the first argument.
    expr: ScalarExpr,
    others: Vec<ValueId>,
}

impl CommutingOp {
    fn find(tir: &Tir, u: ValueId) -> Option<CommutingOp> {
        let Def::Special { args, special } = &tir.value(u).def else {
            return None;
        };
        let is_pool = matches!(special, Special::MaxPool(_));
        if !is_pool && !matches!(special, Special::Concat { .. }) {
            return None;
        }
        let parts: Option<Vec<_>> = args.iter().map(|&a| split_bytes(tir, a)).collect();
        let parts = parts?;
        let (_, expr, others) = parts.first()?;
        let same = |(b, e, o): &(ValueId, ScalarExpr, Vec<ValueId>)| {
            tir.value(*b).dtype == tir.value(parts[0].0).dtype && e == expr && o == others
        };
        let commutes = parts.iter().all(same) && (!is_pool || is_increasing(expr));
        commutes.then(|| CommutingOp {
            special: special.clone(),
            bytes: parts.iter().map(|p| p.0).collect(),
            expr: expr.clone(),
            others: others.clone(),
        })
    }

    /// Redefines `u` as the computation from the pool or the concatenation of the bytes.
    fn replace(self, tir: &mut Tir, u: ValueId) -> OpResult<()> {
        let (dtype, shape) = (tir.value(self.bytes[0]).dtype, tir.value(u).shape.clone());
        tir.name = tir.value(u).name.clone();
        let def = Def::Special {
            args: self.bytes,
            special: self.special,
        };
        let bytes = tir.push(dtype, &shape, def)?;
        tir.values[u.0 as usize].def = Def::Pointwise {
            expr: self.expr.into(),
            args: [vec![bytes], self.others].concat(),
        };
        Ok(())
    }
}

/// The bytes that `v` is computed from, and the computation with the bytes as its first argument and single elements as the
/// others.
fn split_bytes(tir: &Tir, v: ValueId) -> Option<(ValueId, ScalarExpr, Vec<ValueId>)> {
    let Def::Pointwise { expr, args } = &tir.value(v).def else {
        return None;
    };
    if !is_computed_from_bytes(tir, v) {
        return None;
    }
    let is_whole = |a: &&ValueId| tir.value(**a).shape == tir.value(v).shape;
    let bytes = *args.iter().find(is_whole)?;
    let others: Vec<ValueId> = args.iter().filter(|a| !is_whole(a)).copied().collect();
    let (mut new, all) = (ScalarExpr::new(), [vec![bytes], others.clone()].concat());
    let dtype = |a: &ValueId| tir.value(*a).dtype;
    let refs: Vec<Ref> = all
        .iter()
        .enumerate()
        .map(|(i, a)| new.arg(i as u32, dtype(a)))
        .collect();
    let places = args.iter().map(|a| all.iter().position(|b| b == a).map(|i| refs[i]));
    let places: Vec<Ref> = places.collect::<Option<_>>()?;
    new.roots = new.inline(expr, &places);
    Some((bytes, new, others))
}

/// Whether a computation from bytes never decreases: conversions, differences with single elements, and products with
/// positive numbers.
fn is_increasing(expr: &ScalarExpr) -> bool {
    let &[mut r] = &expr.roots[..] else { return false };
    let is_single = |r: Ref| match expr.node(r) {
        ScalarNode::Arg(i) => i > 0,
        ScalarNode::Op(ScalarOp::Cast(_, x)) => matches!(expr.node(x), ScalarNode::Arg(i) if i > 0),
        ScalarNode::Op(ScalarOp::Const(s)) => s.to_f64().is_finite(),
        ScalarNode::Op(_) | ScalarNode::Index(_) => false,
    };
    let is_positive = |r: Ref| match expr.node(r) {
        ScalarNode::Op(ScalarOp::Const(s)) => s.to_f64() > 0.0 && s.to_f64().is_finite(),
        _ => false,
    };
    loop {
        r = match expr.node(r) {
            ScalarNode::Arg(0) => return true,
            ScalarNode::Op(ScalarOp::Cast(to, x)) if to.is_float() => x,
            ScalarNode::Op(ScalarOp::Binary(Binary::Sub | Binary::Add, x, y)) if is_single(y) => x,
            ScalarNode::Op(ScalarOp::Binary(Binary::Mul, x, y)) if is_positive(y) => x,
            _ => return false,
        }
    }
}

/// The definition of `u` in terms of bytes. `None` if no operand is computed from bytes.
fn redefined(tir: &Tir, u: ValueId) -> Option<Def> {
    let Def::Pointwise { expr, args } = &tir.value(u).def else {
        return None;
    };
    let is_read = |v: &ValueId| tir.value(*v).shape == tir.value(u).shape && is_computed_from_bytes(tir, *v);
    if tir.softmax.contains_key(&u) || !args.iter().any(is_read) {
        return None;
    }
    let (mut new, mut new_args) = (ScalarExpr::new(), vec![]);
    let mut values = vec![];
    for v in args {
        values.push(match &tir.value(*v).def {
            Def::Pointwise { expr, args } if is_read(v) => {
                let inner: Vec<Ref> = args
                    .iter()
                    .map(|&a| push_arg(tir, &mut new, &mut new_args, a))
                    .collect();
                new.inline(expr, &inner)[0]
            }
            _ => push_arg(tir, &mut new, &mut new_args, *v),
        });
    }
    new.roots = new.inline(expr, &values);
    Some(Def::Pointwise {
        expr: new.into(),
        args: new_args,
    })
}

/// The argument `v` of an expression with these arguments, to which it is added if necessary.
fn push_arg(tir: &Tir, expr: &mut ScalarExpr, args: &mut Vec<ValueId>, v: ValueId) -> Ref {
    let i = args.iter().position(|&a| a == v).unwrap_or_else(|| {
        args.push(v);
        args.len() - 1
    });
    expr.arg(i as u32, tir.value(v).dtype)
}

/// Whether `v` is wider than a byte and computed from one byte of the same position, and from single elements, in a few cheap
/// operations.
fn is_computed_from_bytes(tir: &Tir, v: ValueId) -> bool {
    let value = tir.value(v);
    let Def::Pointwise { expr, args } = &value.def else {
        return false;
    };
    let is_cheap = |(_, node, _): (Ref, ScalarNode, _)| match node {
        ScalarNode::Arg(_) => true,
        ScalarNode::Op(ScalarOp::Const(_) | ScalarOp::Cast(..)) => true,
        ScalarNode::Op(ScalarOp::Binary(op, ..)) => matches!(op, Binary::Add | Binary::Sub | Binary::Mul),
        _ => false,
    };
    let (whole, single): (Vec<ValueId>, Vec<ValueId>) = args.iter().partition(|a| tir.value(**a).shape == value.shape);
    let few = expr.len() <= MOST_NODES && expr.roots.len() == 1;
    let from_bytes = matches!(whole[..], [b] if tir.value(b).dtype.size() == 1);
    let is_widened = value.numel() > 1 && value.dtype.size() > 1 && from_bytes;
    few && is_widened && single.iter().all(|&a| tir.value(a).numel() == 1) && expr.nodes().all(is_cheap)
}
