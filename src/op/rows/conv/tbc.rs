//! Convolution over sequences `[time, batch, channels]`.

use crate::op::emit::ints_val;
use crate::op::{Op, OpError, OpId};
use crate::types::Val;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor",
            |b, c| {
                let (x, w) = (c.leaf("self")?, c.leaf("weight")?);
                if x.rank()? != 3 || w.rank()? != 3 {
                    return Err(OpError::shape("Input must have 3 dims: time, batch, in_channel"));
                }
                let (x, w) = (b.permute(x, &[1, 2, 0])?, b.permute(w, &[2, 1, 0])?);
                let args = [
                    x.into(),
                    w.into(),
                    c.get("bias").clone(),
                    ints_val(&[1]),
                    ints_val(&[c.int("pad")?]),
                ];
                let y = b.op(OpId::Conv1d, args)?;
                b.permute(&y, &[2, 0, 1]).map(Val::Leaf)
            },
        )
        .doc("convolution of an input `[time, batch, in]` with a weight `[kernel, in, out]`")
        .spelled("aten.@ torch.@ torch.nn.functional.@"),
    ]
}
