//! Tensors of another size that keep the first elements.

use crate::op::{Build, Call, Op, OpResult, Traced};
use crate::types::{Dim, Val};

/// The rows.
pub fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "resize",
            "resize(Tensor self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor",
            |b, c| resized(b, c, c.dims("size")?),
        )
        .doc("the first elements in row-major order in another shape; torch leaves open what follows them, which is 0 here")
        .spelled("aten.resize.default"),
        Op::composite(
            "resize_as",
            "resize_as(Tensor self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor",
            |b, c| resized(b, c, c.leaf("the_template")?.shape()?.to_vec()),
        )
        .doc("resize to the shape of another tensor")
        .spelled("aten.resize_as.default"),
    ]
}

fn resized(b: &mut dyn Build, c: &Call<Traced>, shape: Vec<Dim>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let (have, want) = (x.ty.numel(), shape.iter().fold(Dim::Const(1), |p, n| p.mul(n)));
    let flat = b.reshape(x, std::slice::from_ref(&have))?;
    let missing = want.sub(&have).max_of(&Dim::Const(0));
    let flat = match missing {
        Dim::Const(0) => flat,
        n => {
            let rest = b.full(&[n], Val::int(0), x.dtype())?;
            b.cat(&[flat, rest], 0)?
        }
    };
    let flat = match have == want {
        true => flat,
        false => b.slice(&flat, 0, Dim::Const(0), want, 1)?,
    };
    let y = b.reshape(&flat, &shape)?;
    b.unary("clone", &y).map(Val::Leaf)
}
