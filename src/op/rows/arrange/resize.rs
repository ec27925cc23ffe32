//! Resizing that keeps the first elements.

use crate::op::{Build, Call, MemoryUse, Op, OpBuilder, OpError, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("resize(Tensor self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor",
            |b, c| resize_memory(b, c, c.dims("size")?),
        )
        .memory(MemoryUse::Resizes)
        .doc("the leading elements in row-major order in another shape; further elements, which torch leaves uninitialized, are NaN or the largest integer, as with torch's deterministic algorithms")
        .spelled("aten.@"),
        Op::composite("resize_as(Tensor self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor",
            |b, c| resize_memory(b, c, c.leaf("the_template")?.shape()?.to_vec()),
        )
        .memory(MemoryUse::Resizes)
        .doc("resize to the shape of another tensor")
        .spelled("aten.@"),
    ]
}

/// Resizes row-major memory, which values here have. `functionalize` converts values with another layout.
fn resize_memory(b: &mut dyn Build, c: &Call<Traced>, shape: Vec<Dim>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let (have, want) = (x.ty.numel(), shape.iter().fold(Dim::Const(1), |p, n| p.mul(n)));
    let flat = b.reshape(x, std::slice::from_ref(&have))?;
    let missing = want.sub(&have).max_of(&Dim::Const(0));
    let flat = match missing {
        Dim::Const(0) => flat,
        n => {
            let rest = b.full(&[n], unset_fill_value(x.dtype()), x.dtype())?;
            b.cat(&[flat, rest], 0)?
        }
    };
    let flat = match have == want {
        true => flat,
        false => b.slice(&flat, 0, Dim::Const(0), want, 1)?,
    };
    let y = match channels_last(c, shape.len())? {
        false => b.reshape(&flat, &shape)?,
        true => {
            let [batch, channels, sizes @ ..] = &shape[..] else {
                return Err(OpError::shape("channels_last requires a tensor with channels"));
            };
            let turned = [std::slice::from_ref(batch), sizes, std::slice::from_ref(channels)].concat();
            let y = b.reshape(&flat, &turned)?;
            let last = shape.len() - 1;
            let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
            b.permute(&y, &order)?
        }
    };
    b.clone(&y).map(Val::Leaf)
}

/// Whether the result has the channels-last memory format.
fn channels_last(c: &Call<Traced>, rank: usize) -> OpResult<bool> {
    let Val::TorchName(format) = c.get("memory_format") else {
        return Ok(false);
    };
    let required = match format.trim_start_matches("torch.") {
        "channels_last" => 4,
        "channels_last_3d" => 5,
        _ => return Ok(false),
    };
    if rank != required {
        let title = format!(
            "required rank {required} tensor to use {} format",
            format.trim_start_matches("torch.")
        );
        return Err(OpError::shape(title));
    }
    Ok(true)
}

/// The value with which torch fills uninitialised memory in deterministic mode.
fn unset_fill_value(d: DType) -> Val<Traced> {
    match d {
        DType::B8 => Val::Bool(true),
        d if d.is_float() => Val::Float(f64::NAN),
        DType::U8 => Val::int(u8::MAX.into()),
        DType::I8 => Val::int(i8::MAX.into()),
        DType::I16 => Val::int(i16::MAX.into()),
        DType::I32 => Val::int(i32::MAX.into()),
        _ => Val::int(i64::MAX),
    }
}
