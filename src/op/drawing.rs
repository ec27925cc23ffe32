//! Random fills: torch draws the numbers of some ops in the memory order of the result.

use super::Call;
use super::emit::ints_val;
use super::facts::DrawOrder;
use super::layout::Layout;
use crate::types::{TensorType, Val};

/// The order of dims, outermost first, in which a call draws its numbers; `None` if it is the logical order. `layout` is
/// the layout of the first operand; `in_place` says whether the call writes to it.
pub(crate) fn draw_order(c: &Call<TensorType>, layout: &Layout, in_place: bool) -> Option<Vec<usize>> {
    match c.op.facts.draws {
        DrawOrder::OfOperand => {}
        DrawOrder::InPlace if in_place => {}
        _ => return None,
    }
    let number = |name: &str| {
        let v = &c.args[c.op.schema.index_of(name)?];
        v.as_int().map(|i| i as f64).or_else(|| v.as_f64())
    };
    let order = layout.memory_order(c.args.first()?.as_leaf()?.shape.as_deref()?)?;
    (!c.op.drops_nothing(number)).then_some(order)
}

/// The permutations to apply to the first operand and to the result of such a call.
pub(crate) fn draw_permutations<T>(order: &[usize]) -> [Val<T>; 2] {
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    let ints = |v: &[usize]| ints_val(&v.iter().map(|&d| d as i64).collect::<Vec<_>>());
    [ints(order), ints(&back)]
}
