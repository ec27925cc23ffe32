//! Python's `+` and `*` on lists and tuples, for example to concatenate sizes.

use crate::op::{Build, Call, Op, OpError, OpResult, Traced};
use crate::types::Val;

/// The maximum length of a sequence that `*` creates.
const MAX_ITEMS: usize = 65_536;

pub(super) fn rows() -> Vec<Op> {
    vec![
        // The items may be tensors, so the rows rebuild lists; these are not host values.
        Op::composite("joined(Any[] a, Any[] b) -> Any", concat_sequences)
            .doc("the concatenation of two lists or two tuples")
            .spelled("operator.add operator.iadd operator.concat"),
        Op::composite("repeated(Any[] a, int b) -> Any", |_, c| {
            repeat_sequence(c.get("a"), c.get("b"))
        })
        .doc("the items of a list or tuple, repeated")
        .spelled("operator.mul operator.imul"),
        Op::composite("times_sequence(int a, Any[] b) -> Any", |_, c| {
            repeat_sequence(c.get("b"), c.get("a"))
        })
        .doc("the items of a list or tuple, repeated")
        .spelled("operator.mul"),
    ]
}

fn concat_sequences(_: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (a, b) = (c.get("a"), c.get("b"));
    let joined = |a: &[Val<Traced>], b: &[Val<Traced>]| [a, b].concat();
    match (a, b) {
        (Val::List(a), Val::List(b)) => Ok(Val::List(joined(a, b))),
        (Val::Tuple(a), Val::Tuple(b)) => Ok(Val::Tuple(joined(a, b))),
        (Val::Unknown, _) | (_, Val::Unknown) => Ok(Val::Unknown),
        (a, b) => {
            let (a, b) = (a.kind_name(), b.kind_name());
            Err(OpError::arg(
                "b",
                format!("can only concatenate {a} (not \"{b}\") to {a}"),
            ))
        }
    }
}

fn repeat_sequence(items: &Val<Traced>, count: &Val<Traced>) -> OpResult<Val<Traced>> {
    let Some(v) = items.items() else {
        return Ok(Val::Unknown);
    };
    let count = count
        .as_int()
        .ok_or_else(|| OpError::arg("b", "the number of repetitions of a sequence must be a constant"))?;
    let len = usize::try_from(count.max(0)).ok().and_then(|n| v.len().checked_mul(n));
    let len = len.filter(|n| *n <= MAX_ITEMS);
    let len = len.ok_or_else(|| OpError::arg("b", format!("a sequence can have at most {MAX_ITEMS} items")))?;
    let all = v.iter().cycle().take(len).cloned().collect();
    Ok(match items {
        Val::List(_) => Val::List(all),
        _ => Val::Tuple(all),
    })
}
