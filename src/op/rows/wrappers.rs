//! The rows in expansions of `torch.export`'s wrappers: the conversions of `torch.autocast` (see
//! [`crate::op::autocast`]) and the results of `auto_functionalized`.

use crate::op::{Build, Call, Op, OpError, OpResult, Traced};
use crate::types::{DType, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("autocast_to(Any self, ScalarType dtype) -> Any", |b, c| {
            convert_eligible(b, c.get("self"), autocast_dtype(c)?)
        })
        .doc("autocast's conversion: floats other than f64, also in lists, to a dtype; other values are unchanged"),
        Op::composite("autocast_widest(Any self, Any values, ScalarType dtype) -> Any",
            |b, c| {
                let to = widest_dtype(c.get("values"), autocast_dtype(c)?)?;
                convert_eligible(b, c.get("self"), to)
            },
        )
        .doc("autocast's conversion for ops with several tensors: to f32 if any value is f32, else to the dtype"),
        Op::composite("autocast_contracted(Any self, Any values, Any dims, ScalarType dtype) -> Any",
            |b, c| match is_matrix_product(c.get("values"), c.get("dims"))? {
                true => convert_eligible(b, c.get("self"), autocast_dtype(c)?),
                false => Ok(c.get("self").clone()),
            },
        )
        .doc("autocast's conversion for `tensordot` over `dims`, and for `inner`, whose dims are None: to a dtype, unless \
              only one number remains"),
        Op::composite("gathered(Any items) -> Any", |_, c| Ok(c.get("items").clone()))
            .doc("its argument: the results of an expanded call"),
    ]
}

fn autocast_dtype(c: &Call<Traced>) -> OpResult<DType> {
    c.opt_dtype("dtype")
        .ok_or_else(|| OpError::arg("dtype", "autocast requires a dtype"))
}

/// Whether autocast converts tensors of a dtype.
fn is_eligible(dtype: DType) -> bool {
    dtype.is_float() && dtype != DType::F64
}

fn convert_eligible(b: &mut dyn Build, v: &Val<Traced>, to: DType) -> OpResult<Val<Traced>> {
    let mut each = |v: &[Val<Traced>]| {
        v.iter()
            .map(|x| convert_eligible(b, x, to))
            .collect::<OpResult<Vec<_>>>()
    };
    Ok(match v {
        Val::List(v) => Val::List(each(v)?),
        Val::Tuple(v) => Val::Tuple(each(v)?),
        Val::Leaf(x) if is_eligible(x.dtype()) => b.to_dtype(x, to)?.into(),
        v => v.clone(),
    })
}

/// Whether a contraction of these tensors over these dims is a matrix product. A sum over all dims is a dot product.
fn is_matrix_product(values: &Val<Traced>, dims: &Val<Traced>) -> OpResult<bool> {
    let count = match dims {
        Val::None => 1,
        dims => dims
            .as_int()
            .unwrap_or_else(|| dims.items().map_or(0, |v| v.len() as i64)),
    };
    let ranks = values
        .leaves()
        .into_iter()
        .map(Traced::rank)
        .collect::<OpResult<Vec<_>>>()?;
    let scalar = dims.is_none() && ranks.contains(&0);
    Ok(!scalar && !ranks.iter().all(|&r| r as i64 == count))
}

/// The dtype to which autocast converts the tensors of an op with
/// [`Policy::Widest`](crate::op::autocast::Policy::Widest).
fn widest_dtype(values: &Val<Traced>, lower: DType) -> OpResult<DType> {
    let mut best = lower;
    for x in values.leaves().into_iter().filter(|x| is_eligible(x.dtype())) {
        best = match (best, x.dtype()) {
            (DType::F32, _) | (_, DType::F32) => DType::F32,
            (_, d) if d == lower => best,
            _ => {
                return Err(OpError::dtype(
                    "Unexpected floating ScalarType in at::autocast::prioritize",
                ));
            }
        };
    }
    Ok(best)
}
