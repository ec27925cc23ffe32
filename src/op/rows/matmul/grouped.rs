//! Matrix products of groups, of narrow integers, and with a fused activation.

use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor",
            grouped_mm,
        )
        .doc("each group of rows of self, delimited by offsets, times its matrix; without offsets, bmm")
        .spelled("aten.@ torch.@"),
        Op::composite("grouped_mm_of(Tensor mat_a, Tensor mat_b, *, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor",
            |b, c| b.call(OpId::_GroupedMm, c.args.clone()),
        )
        .doc("_grouped_mm with the operand names of torch.nn")
        .spelled("torch.nn.functional.grouped_mm"),
        Op::composite("_int_mm(Tensor self, Tensor mat2) -> Tensor", |b, c| {
            let (x, y) = (c.leaf("self")?, c.leaf("mat2")?);
            for (t, what, ok) in [
                (x, "self dtype to be int8 or uint8", matches!(x.dtype(), DType::I8 | DType::U8)),
                (y, "mat2 dtype to be int8", y.dtype() == DType::I8),
            ] {
                if !ok {
                    let name = t.dtype().torch_name();
                    return Err(OpError::dtype(format!("_int_mm: Expected {what} but got {name}")));
                }
            }
            let (x, y) = (b.to_dtype(x, DType::I32)?, b.to_dtype(y, DType::I32)?);
            b.mm(&x, &y).map(Val::Leaf)
        })
        .doc("the int32 product of an int8 or uint8 matrix and an int8 matrix")
        .spelled("aten.@ torch.@"),
        Op::composite("_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, bool use_gelu=False) -> \
             Tensor",
            |b, c| {
                let y = b.op(OpId::Addmm, &c.args[..5])?;
                let activation = if c.bool("use_gelu")? { OpId::Gelu } else { OpId::Relu };
                b.unary(activation, &y).map(Val::Leaf)
            },
        )
        .doc("relu or gelu of addmm")
        .spelled("aten.@ torch.@"),
    ]
}

fn grouped_mm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, w, offs) = (c.leaf("self")?, c.leaf("mat2")?, c.opt_leaf("offs"));
    let product = match (x.rank()?, w.rank()?, offs) {
        (2, 3, Some(offs)) => b.grouped_mm(x, w, offs)?,
        (3, 3, None) => b.bmm(x, w)?,
        _ => {
            return Err(OpError::shape(format!(
                "grouped_mm expects a matrix and a stack of matrices with offsets, or two stacks without offsets, got {} and {}",
                list_text(x.shape()?),
                list_text(w.shape()?)
            )));
        }
    };
    if c.opt_leaf("bias").is_some() {
        return Err(OpError::arg("bias", "Bias not supported yet."));
    }
    b.to_dtype(&product, c.opt_dtype("out_dtype").unwrap_or(x.dtype()))
        .map(Val::Leaf)
}
