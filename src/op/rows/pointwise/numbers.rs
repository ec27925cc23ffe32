//! Arithmetic of torch's dispatcher on Python numbers only: `aten.add.Tensor(True, 2)` is a 0-dim tensor by torch's
//! promotion, where Python's own operators return numbers.

use crate::op::{Build, Call, Op, OpId, OpResult, Traced};
use crate::types::{DType, ScalarKind, Val};

macro_rules! of_numbers {
    ($id:ident, $base:literal, $name:literal, $rest:literal, $paths:literal) => {
        Op::composite(
            (
                $name,
                concat!($base, "(Scalar self, Scalar other", $rest, ") -> Tensor"),
            ),
            |b, c| of_numbers(b, c, OpId::$id),
        )
        .doc(concat!($base, " of numbers as 0-d tensors"))
        .spelled($paths)
    };
}

pub(super) fn rows() -> Vec<Op> {
    vec![
        of_numbers!(
            Add,
            "add",
            "add_numbers",
            ", *, Scalar alpha=1",
            "aten.add.Tensor aten.add.Scalar"
        ),
        of_numbers!(
            Sub,
            "sub",
            "sub_numbers",
            ", *, Scalar alpha=1",
            "aten.sub.Tensor aten.sub.Scalar aten.subtract.Tensor aten.subtract.Scalar"
        ),
        of_numbers!(
            Mul,
            "mul",
            "mul_numbers",
            "",
            "aten.mul.Tensor aten.mul.Scalar aten.multiply.Tensor aten.multiply.Scalar"
        ),
        of_numbers!(
            Div,
            "div",
            "div_numbers",
            ", *, str? rounding_mode=None",
            "aten.div.Tensor aten.div.Scalar aten.div.Tensor_mode aten.div.Scalar_mode aten.divide.Tensor aten.divide.Scalar \
             aten.divide.Tensor_mode aten.divide.Scalar_mode aten.true_divide.Tensor aten.true_divide.Scalar"
        ),
        of_numbers!(
            FloorDivide,
            "floor_divide",
            "floor_divide_numbers",
            "",
            "aten.floor_divide.default aten.floor_divide.Scalar"
        ),
    ]
}

/// The dtype of the tensor that torch creates from a number.
fn dtype_of(v: &Val<Traced>) -> DType {
    match v {
        Val::Bool(_) | Val::Any(ScalarKind::Bool) => DType::B8,
        Val::Int(_) | Val::Any(ScalarKind::Int) => DType::I64,
        _ => DType::F32,
    }
}

fn of_numbers(b: &mut dyn Build, c: &Call<Traced>, base: OpId) -> OpResult<Val<Traced>> {
    let mut args = c.args.clone();
    for v in &mut args[..2] {
        let dtype = dtype_of(v);
        *v = b.full(&[], v.clone(), dtype)?.into();
    }
    b.call(base, args)
}
