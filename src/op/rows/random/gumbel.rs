//! Differentiable samples of a categorical distribution (Jang et al., "Categorical Reparameterization with
//! Gumbel-Softmax", 2016).

use crate::op::{Build, Call, Effect, Op, OpBuilder, OpId, OpResult, Traced, wrap_dim};
use crate::types::Val;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "gumbel_softmax(Tensor logits, float tau=1, bool hard=False, float eps=1e-10, int dim=-1) -> Tensor",
            gumbel_softmax,
        )
        .doc("softmax of logits with Gumbel noise; `hard` returns the one-hot maximum")
        .effect(Effect::Random)
        .spelled("torch.nn.functional.@"),
    ]
}

fn gumbel_softmax(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("logits")?;
    let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
    if x.rank()? == 0 {
        // A number counts as a row of one.
        let row = b.unsqueeze(x, 0)?;
        let sample = gumbel_sample(b, c, &row, dim)?;
        return b.squeeze(&sample, 0).map(Val::Leaf);
    }
    gumbel_sample(b, c, x, dim).map(Val::Leaf)
}

fn gumbel_sample(b: &mut dyn Build, c: &Call<Traced>, x: &Traced, dim: usize) -> OpResult<Traced> {
    let noise = b.exponential(x)?;
    let noise = b.log(&noise)?;
    let y = b.sub(x, &noise)?;
    let y = b.div(&y, c.get("tau").clone())?;
    let soft = crate::op::rows::norms::softmax::softmax(b, &y, dim)?;
    if !c.bool("hard")? {
        return Ok(soft);
    }
    let dim = Val::int(dim as i64);
    let index = b.op(OpId::Argmax, [(&soft).into(), dim.clone(), Val::Bool(true)])?;
    let zeros = b.full(x.shape()?, Val::int(0), x.dtype())?;
    let ones = b.full(index.shape()?, Val::int(1), x.dtype())?;
    let hard = b.scatter(zeros, dim, index, ones)?;
    // The same operations as in torch, so that the rounding is also the same.
    let rest = b.sub(&hard, &soft)?;
    b.add(&rest, &soft)
}
