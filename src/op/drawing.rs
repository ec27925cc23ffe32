//! Draws that fill memory: torch draws the numbers of some ops in the order in which the result lies in memory.

use super::emit::ints_val;
use super::layout::Layout;
use super::{Call, Op, OpId};
use crate::types::{TensorType, Val};

/// Ops whose result lies as their first operand does, and is filled as it lies. Other draws fill row-major memory.
const LIKE_OPERAND: [OpId; 6] = [
    OpId::AlphaDropout,
    OpId::Dropout,
    OpId::NativeDropout,
    OpId::RandLike,
    OpId::RandintLike,
    OpId::RandintLikeBelow,
];

/// Ops that fill their operand in place as it lies. Normal numbers are drawn in another way there.
const IN_PLACE: [OpId; 8] = [
    OpId::Bernoulli,
    OpId::Cauchy,
    OpId::Exponential,
    OpId::Geometric,
    OpId::LogNormal,
    OpId::RandomBetween,
    OpId::RandomWhole,
    OpId::Uniform,
];

/// Whether calls of the op draw in the order of their operand's memory, wherever their result goes.
pub fn draws_as_it_lies(op: &Op) -> bool {
    op.id().is_some_and(|id| LIKE_OPERAND.contains(&id))
}

/// The order of the dims in which a call draws, the outermost first, if it is not the order of the dims. `at` is where the first
/// operand lies; `in_place` says that it is written to.
pub fn draw_order(c: &Call<TensorType>, at: &Layout, in_place: bool) -> Option<Vec<usize>> {
    let id = c.op.id()?;
    let in_order = LIKE_OPERAND.contains(&id) || in_place && IN_PLACE.contains(&id);
    if !in_order {
        return None;
    }
    let given = |name: &str| {
        let v = &c.args[c.op.schema.index_of(name)?];
        v.as_int().map(|i| i as f64).or_else(|| v.as_f64())
    };
    let order = at.memory_order(c.args.first()?.as_leaf()?.shape.as_deref()?)?;
    (!c.op.drops_nothing(given)).then_some(order)
}

/// What the first operand of such a call is permuted by, and what its results are.
pub fn permutations<T>(order: &[usize]) -> [Val<T>; 2] {
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    let ints = |v: &[usize]| ints_val(&v.iter().map(|&d| d as i64).collect::<Vec<_>>());
    [ints(order), ints(&back)]
}
