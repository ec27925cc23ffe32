//! Convolution over sequences `[time, batch, channels]`.

use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor",
            |b, c| {
                let (x, w) = (c.leaf("self")?, c.leaf("weight")?);
                if x.rank()? != 3 || w.rank()? != 3 {
                    return Err(OpError::shape("Input must have 3 dims: time, batch, in_channel"));
                }
                let pad = c.int("pad")?;
                let kernel = w.shape()?[0].as_const().filter(|k| (1..=MOST_TAPS).contains(k));
                if let Some(kernel) = kernel.filter(|_| pad > 0) {
                    return by_taps(b, c, kernel, pad).map(Val::Leaf);
                }
                let (x, w) = (b.permute(x, &[1, 2, 0])?, b.permute(w, &[2, 1, 0])?);
                let args = [
                    x.into(),
                    w.into(),
                    c.get("bias").clone(),
                    ints_val(&[1]),
                    ints_val(&[pad]),
                ];
                let y = b.op(OpId::Conv1d, args)?;
                b.permute(&y, &[2, 0, 1]).map(Val::Leaf)
            },
        )
        .doc("convolution of an input `[time, batch, in]` with a weight `[kernel, in, out]`")
        .spelled("aten.@ torch.@ torch.nn.functional.@"),
    ]
}

/// The most taps that become products of their own. Each takes nodes of the graph, and a file of a few bytes can name any number.
const MOST_TAPS: i64 = 256;

/// The sum of a product for each tap, as torch computes it: what a tap reads in the padding is left out, while `conv1d` multiplies the
/// padding, which gives NaN if a weight is infinite.
fn by_taps(b: &mut dyn Build, c: &Call<Traced>, kernel: i64, pad: i64) -> OpResult<Traced> {
    let (x, w, bias) = (c.leaf("self")?, c.leaf("weight")?, c.leaf("bias")?);
    if bias.rank()? != 1 || bias.shape()?[0] != w.shape()?[2] {
        let title = "Bias must be 1-D, and its size must equal dim 2 in the weight tensor (output channels).";
        return Err(OpError::shape(title));
    }
    let [time, batch, _] = x.shape()? else {
        return Err(OpError::shape("Input must have 3 dims: time, batch, in_channel"));
    };
    let pads = Dim::Const(pad).add(&Dim::Const(pad));
    let out = time.add(&pads).sub(&Dim::Const(kernel - 1));
    let bias = b.to_dtype(bias, x.dtype())?;
    let mut sum = b.expand(&bias, &[out.clone(), batch.clone(), w.shape()?[2].clone()])?;
    for k in 0..kernel {
        // The times that the tap reads, and the results before and after those that it contributes to.
        let (start, unread) = ((k - pad).max(0), (kernel - 1 - k - pad).max(0));
        let end = time.sub(&Dim::Const(unread));
        if end.as_const().is_some_and(|end| end <= start) {
            continue;
        }
        let (before, after) = (start + pad - k, unread + pad - (kernel - 1 - k));
        let read = b.slice(x, 0, Dim::Const(start), end, 1)?;
        let tap = b.select(w, 0, Dim::Const(k))?;
        let product = b.matmul(&read, &tap)?;
        let part = b.constant_pad_nd(&product, ints_val(&[0, 0, 0, 0, before, after]))?;
        sum = b.add(&sum, &part)?;
    }
    Ok(sum)
}
