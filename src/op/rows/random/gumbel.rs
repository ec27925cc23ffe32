//! Samples of a categorical distribution that have gradients (Jang et al., "Categorical Reparameterization with
//! Gumbel-Softmax", 2016).

use crate::op::{Build, Call, Effect, Op, OpResult, Traced, wrap_dim};
use crate::types::Val;

/// The rows.
pub fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "gumbel_softmax",
            "gumbel_softmax(Tensor logits, float tau=1, bool hard=False, float eps=1e-10, int dim=-1) -> Tensor",
            gumbel_softmax,
        )
        .doc("softmax of logits with Gumbel noise; `hard` rounds to the greatest")
        .effect(Effect::Random)
        .spelled("torch.nn.functional.gumbel_softmax"),
    ]
}

fn gumbel_softmax(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("logits")?;
    let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
    let noise = b.op("exponential", [x.into()])?;
    let noise = b.unary("log", &noise)?;
    let y = b.binary("sub", x, &noise)?;
    let y = b.binary("div", &y, c.get("tau").clone())?;
    let soft = crate::op::rows::norms::softmax::softmax(b, &y, dim)?;
    if !c.bool("hard")? {
        return Ok(soft.into());
    }
    let at = Val::int(dim as i64);
    let index = b.op("argmax", [(&soft).into(), at.clone(), Val::Bool(true)])?;
    let zeros = b.full(x.shape()?, Val::int(0), x.dtype())?;
    let ones = b.full(index.shape()?, Val::int(1), x.dtype())?;
    let hard = b.op("scatter", [zeros.into(), at, index.into(), ones.into()])?;
    // As torch writes it, so that the rounding is torch's too.
    let rest = b.binary("sub", &hard, &soft)?;
    b.binary("add", &rest, &soft).map(Val::Leaf)
}
