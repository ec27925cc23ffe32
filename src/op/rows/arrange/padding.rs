//! Padding.

use super::indexed_lines::{DimIndices, copy_indices};
use crate::op::rows::dense::zeros;
use crate::op::rows::index::gather::copy_element;
use crate::op::rows::spell::list_text;
use crate::op::view::strided_positions;
use crate::op::{Build, Call, Meaning, Op, OpError, OpId, OpResult, Sizes, Traced};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut, contiguous_strides};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = vec![constant_pad_row(), pad_row(), pad_all()];
    v.extend(edge_pad_rows());
    v
}

fn constant_pad_row() -> Op {
    let mut op = Op::new(
        "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
        |c, _| {
            let (d, x) = c.shaped("self")?;
            Ok(Val::Leaf(TensorType::new(d, constant_shape(x, &c.dims("pad")?)?)))
        },
        Meaning::Routine(constant_pad),
    )
    .doc("the tensor padded with a constant, starting from the last dim; negative widths crop")
    .spelled("aten.@ torch.@");
    for text in [
        "ConstantPad1d(padding, value) = pad_all(input, padding, 1, 'constant', value)",
        "ConstantPad2d(padding, value) = pad_all(input, padding, 2, 'constant', value)",
        "ConstantPad3d(padding, value) = pad_all(input, padding, 3, 'constant', value)",
        "ZeroPad1d(padding) = pad_all(input, padding, 1, 'constant', 0)",
        "ZeroPad2d(padding) = pad_all(input, padding, 2, 'constant', 0)",
        "ZeroPad3d(padding) = pad_all(input, padding, 3, 'constant', 0)",
        "ReflectionPad1d(padding) = pad_all(input, padding, 1, 'reflect')",
        "ReflectionPad2d(padding) = pad_all(input, padding, 2, 'reflect')",
        "ReflectionPad3d(padding) = pad_all(input, padding, 3, 'reflect')",
        "ReplicationPad1d(padding) = pad_all(input, padding, 1, 'replicate')",
        "ReplicationPad2d(padding) = pad_all(input, padding, 2, 'replicate')",
        "ReplicationPad3d(padding) = pad_all(input, padding, 3, 'replicate')",
        "CircularPad1d(padding) = pad_all(input, padding, 1, 'circular')",
        "CircularPad2d(padding) = pad_all(input, padding, 2, 'circular')",
        "CircularPad3d(padding) = pad_all(input, padding, 3, 'circular')",
    ] {
        op = op.module(text);
    }
    op
}

fn constant_shape(x: &[Dim], pad: &[Dim]) -> OpResult<Vec<Dim>> {
    if !pad.len().is_multiple_of(2) {
        return Err(OpError::shape(format!(
            "Length of pad must be even but instead it equals {}",
            pad.len()
        )));
    }
    if pad.len() / 2 > x.len() {
        return Err(OpError::shape(format!(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is {} while the input \
             has {} dimensions.",
            pad.len(),
            x.len()
        )));
    }
    let mut out = x.to_vec();
    for (i, p) in pad.chunks(2).enumerate() {
        let d = x.len() - 1 - i;
        out[d] = x[d].add(&p[0]).add(&p[1]);
        if out[d].as_const().is_some_and(|n| n < 0) {
            return Err(OpError::shape(format!(
                "The input size {}, plus negative padding {} and {} resulted in a negative output size, which is invalid. Check \
                 dimension {d} of your input.",
                x[d], p[0], p[1]
            )));
        }
    }
    Ok(out)
}

fn fixed_sizes(shape: &[Dim]) -> Vec<usize> {
    shape
        .iter()
        .map(|d| d.as_const().map_or(0, |n| n.max(0) as usize))
        .collect()
}

fn pad_value(c: &Call<Tensor>) -> Scalar {
    match c.get("value") {
        Val::Float(v) => Scalar::F64(*v),
        Val::Bool(v) => Scalar::Bool(*v),
        v => Scalar::Int(DType::I64, v.as_int().unwrap_or(0)),
    }
}

fn constant_pad(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let pad = c.ints("pad")?;
    let shape = fixed_sizes(&constant_shape(
        x.ty().shape.as_deref().unwrap_or_default(),
        &c.dims("pad")?,
    )?);
    let mut out = zeros(x.dtype(), &shape)?;
    let value = pad_value(c).cast(x.dtype());
    let n = out.numel();
    let size = x.dtype().size();
    let dst = out.bytes_mut();
    if value != Scalar::from_i64(DType::I64, 0).cast(x.dtype()) || value.to_f64().is_sign_negative() {
        (0..n).for_each(|i| value.write(dst, i));
    }
    // The region of the operand that is copied, and its position in the result.
    let (mut part, mut from, mut to) = (x.shape().to_vec(), 0, 0);
    let (src_strides, dst_strides) = (contiguous_strides(x.shape()), contiguous_strides(&shape));
    let cut = |p: i64| p.min(0).unsigned_abs() as usize;
    let dim = |i: usize| x.rank() - 1 - i;
    for (i, p) in pad.chunks(2).enumerate() {
        part[dim(i)] = part[dim(i)].saturating_sub(cut(p[0]).saturating_add(cut(p[1])));
    }
    if part.contains(&0) {
        return Ok(Val::Leaf(out));
    }
    for (i, p) in pad.chunks(2).enumerate() {
        from += cut(p[0]) * src_strides[dim(i)];
        to += p[0].max(0) as usize * dst_strides[dim(i)];
    }
    let strides = |v: &[usize]| v.iter().map(|&s| s as i64).collect::<Vec<_>>();
    let mut places = vec![];
    strided_positions(&part, from as i64, &strides(&src_strides), &mut |_, p| places.push(p));
    let src = x.bytes();
    strided_positions(&part, to as i64, &strides(&dst_strides), &mut |i, p| {
        copy_element(dst, p, src, places[i], size)
    });
    Ok(Val::Leaf(out))
}

fn pad_row() -> Op {
    Op::composite(
        "pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor",
        |b, c| pad_mode(b, c.leaf("self")?, c.get("pad"), c.str("mode")?, c.get("value")),
    )
    .doc("the tensor padded in a mode (constant, reflect, replicate or circular), starting from the last dim")
    .spelled("aten.@ torch.nn.functional.@ torch._C._nn.@")
}

/// The row behind the module classes. A single width applies to all sides.
fn pad_all() -> Op {
    Op::composite(
        "pad_all(Tensor self, Any padding, int dims, str mode, Scalar? value=None) -> Tensor",
        |b, c| {
            let pad = match c.get("padding").as_int() {
                Some(p) => crate::op::emit::ints_val(&vec![p; 2 * c.int("dims")?.clamp(1, 3) as usize]),
                None => c.get("padding").clone(),
            };
            pad_mode(b, c.leaf("self")?, &pad, c.str("mode")?, c.get("value"))
        },
    )
    .doc("pad; a single width applies to all sides")
}

fn pad_mode(
    b: &mut dyn Build,
    x: &Traced,
    pad: &Val<Traced>,
    mode: &str,
    value: &Val<Traced>,
) -> OpResult<Val<Traced>> {
    let (n, rank) = (pad.items().map_or(0, <[_]>::len), x.rank()?);
    if n % 2 != 0 {
        return Err(OpError::arg("pad", "Padding length must be divisible by 2"));
    }
    if n > 2 * rank {
        return Err(OpError::arg(
            "pad",
            format!(
                "Padding length should be less than or equal to two times the input dimension but got padding length {n} and \
                 input of dimension {rank}"
            ),
        ));
    }
    let value = if value.is_none() { Val::int(0) } else { value.clone() };
    let row = match mode {
        "constant" => return b.call(OpId::ConstantPadNd, vec![x.into(), pad.clone(), value]),
        "reflect" => OpId::ReflectionPad,
        "replicate" => OpId::ReplicationPad,
        "circular" => OpId::_PadCircular,
        _ => return Err(OpError::arg("mode", format!("Unrecognised padding mode {mode}"))),
    };
    b.call(row, vec![x.into(), pad.clone()])
}

fn edge_pad_rows() -> Vec<Op> {
    let op = |name, schema, rule, fill| Op::new((name, schema), rule, Meaning::Fill(fill));
    vec![
        op(
            "reflection_pad",
            "reflection_pad(Tensor self, SymInt[] padding) -> Tensor",
            |c, s| edge_type(c, s, Edge::Reflect),
            |c, outs, pool| edge_pad(c, &mut outs[0], pool, Edge::Reflect),
        )
        .doc("the tensor padded by reflection at the edges, starting from the last dim")
        .spelled("aten.reflection_pad1d.default aten.reflection_pad2d.default aten.reflection_pad3d.default"),
        op(
            "replication_pad",
            "replication_pad(Tensor self, SymInt[] padding) -> Tensor",
            |c, s| edge_type(c, s, Edge::Replicate),
            |c, outs, pool| edge_pad(c, &mut outs[0], pool, Edge::Replicate),
        )
        .doc("the tensor padded by replicating the edges, starting from the last dim")
        .spelled("aten.replication_pad1d.default aten.replication_pad2d.default aten.replication_pad3d.default"),
        op(
            "_pad_circular",
            "_pad_circular(Tensor self, SymInt[] padding) -> Tensor",
            |c, s| edge_type(c, s, Edge::Wrap),
            |c, outs, pool| edge_pad(c, &mut outs[0], pool, Edge::Wrap),
        )
        .doc("the tensor padded circularly, starting from the last dim")
        .spelled("aten.@"),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Reflect,
    Replicate,
    Wrap,
}

fn edge_type(c: &Call<TensorType>, _: &mut Sizes, edge: Edge) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let pad = c.dims("padding")?;
    let n = pad.len() / 2;
    if d == DType::B8 && !matches!(edge, Edge::Wrap) {
        let kernel = c.op.name.replace("_pad", &format!("_pad{n}d"));
        return Err(crate::op::pointwise::not_implemented(&kernel, d));
    }
    if pad.len() % 2 != 0 || n == 0 || n > 3 || (x.len() != n + 1 && x.len() != n + 2) {
        return Err(OpError::shape(format!(
            "Padding size {} is not supported for {}D input tensor.",
            pad.len(),
            x.len()
        )));
    }
    let inner = x.len() - n - 1;
    if edge == Edge::Replicate && x[inner..].iter().any(|d| d.as_const() == Some(0)) {
        return Err(OpError::shape(format!(
            "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {}",
            n + 1,
            n + 2,
            list_text(x)
        )));
    }
    check_pad_sizes(x, &pad, edge)?;
    Ok(Val::Leaf(TensorType::new(d, constant_shape(x, &pad)?)))
}

/// Returns an error if a dim of `x` is too small for its padding.
fn check_pad_sizes(x: &[Dim], pad: &[Dim], edge: Edge) -> OpResult<()> {
    for (i, p) in pad.chunks(2).enumerate() {
        let axis = x.len() - 1 - i;
        let Some(size) = x[axis].as_const() else { continue };
        let over = |p: &Dim, limit: i64| p.as_const().is_some_and(|p| p > limit);
        if edge == Edge::Reflect && p.iter().any(|p| over(p, size - 1)) {
            return Err(OpError::shape(format!(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({}, {}) at \
                 dimension {axis} of input {}",
                p[0],
                p[1],
                list_text(x)
            )));
        }
        if edge == Edge::Wrap && p.iter().any(|p| over(p, size)) {
            return Err(OpError::shape("Padding value causes wrapping around more than once."));
        }
        if edge == Edge::Replicate && size == 0 && p.iter().any(|p| over(p, 0)) {
            return Err(OpError::shape(format!(
                "Expected a non-empty tensor to pad, but got size {}",
                list_text(x)
            )));
        }
    }
    Ok(())
}

/// The operand's index for index `i` of the result, along a dim of size `n` with padding `pad` before and after.
fn edge_index(i: i64, pad: [i64; 2], n: i64, edge: Edge) -> i64 {
    let p = i.saturating_sub(pad[0]);
    match edge {
        Edge::Replicate => p.clamp(0, n - 1),
        Edge::Wrap => {
            // Negative widths cut elements off first; the remaining ones are repeated.
            let [cut, rest] = pad.map(|p| p.min(0).saturating_neg());
            let left = n.saturating_sub(cut).saturating_sub(rest);
            cut.saturating_add((p - cut).rem_euclid(left.max(1)))
        }
        Edge::Reflect if p < 0 => -p,
        Edge::Reflect if p >= n => 2 * (n - 1) - p,
        Edge::Reflect => p,
    }
}

fn edge_pad(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool, edge: Edge) -> OpResult<()> {
    let x = c.leaf("self")?;
    let pad = c.ints("padding")?;
    let shape = out.shape().to_vec();
    let along = |d: usize| {
        let first = 2 * (x.rank() - 1 - d);
        let sides = [0, 1].map(|k| pad.get(first + k).copied().unwrap_or(0));
        edge_indices(sides, x.shape()[d], shape[d], edge)
    };
    let indices: Vec<DimIndices> = (0..x.rank()).map(along).collect();
    copy_indices(x, &indices, out, pool);
    Ok(())
}

/// The operand's indices along a dim that has `n` elements, and `size` in the result.
fn edge_indices(pad: [i64; 2], n: usize, size: usize, edge: Edge) -> DimIndices {
    let count = |p: i64| usize::try_from(p).unwrap_or(0);
    let start = count(pad[0].saturating_neg()).min(n);
    let end = n.saturating_sub(count(pad[1].saturating_neg())).max(start);
    let before = count(pad[0]).min(size);
    let index = |i: usize| edge_index(i as i64, pad, n as i64, edge).max(0) as usize;
    DimIndices {
        before: (0..before).map(index).collect(),
        inside: start..end,
        after: (before + (end - start)..size).map(index).collect(),
    }
}
