//! Contractions: lowers an op's meaning and strided operands to the descriptors of `math`.

pub(in crate::lower) mod attention;
pub(crate) mod expansion;
pub(in crate::lower) mod grouped;
pub(crate) mod recurrent;
pub(in crate::lower) mod vectors;

use crate::diag::{Code, Diagnostic};
use crate::lower::LowerError;
use crate::lower::ir::{Def, Special, Tir, ValueId};
use crate::math::contract::{Activation, Addend, BatchDim, ByteInput, Conv, ConvLayout, MatMul};
use crate::op::{Call, Contraction, Convolution, MatrixProduct, OpResult};
use crate::program::{BufferOperand, Contract};
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// The value of a product that has a step of another kind.
pub(in crate::lower) fn recognise_product(
    tir: &mut Tir,
    contraction: &Contraction,
    ids: &Call<ValueId>,
) -> OpResult<Option<ValueId>> {
    let Contraction::MatMul(p) = contraction else {
        return Ok(None);
    };
    let (Val::Leaf(a), Val::Leaf(b)) = (&ids.args[p.a], &ids.args[p.b]) else {
        return Ok(None);
    };
    match grouped::recognise_chosen(tir, p, *a, *b)? {
        Some(v) => Ok(Some(v)),
        None => vectors::recognise_vector_product(tir, p, ids, [*a, *b]),
    }
}

/// Non-negative strides, as `math` expects them. Dims of size one may have any stride.
fn unsigned_strides(o: &BufferOperand) -> Vec<usize> {
    o.strides.iter().map(|&s| s.max(0) as usize).collect()
}

/// A matrix product of `operands`, numbered as in `product`.
pub(in crate::lower) fn matmul(
    product: &MatrixProduct,
    operands: &[BufferOperand],
    dtype: DType,
    out: &[usize],
    act: Activation,
) -> Contract {
    let (a, b) = (&operands[product.a], &operands[product.b]);
    let addend = product.bias.map(|i| broadcast_to(&operands[i], out));
    let [batch @ .., m, n] = out else {
        unreachable!("products have two dims or more")
    };
    let desc = MatMul {
        dtype,
        batch: batch_dims(batch, out, a, b, addend.as_ref()),
        m: *m,
        n: *n,
        k: a.shape[a.shape.len() - if product.a_transposed { 2 } else { 1 }],
        a: last_strides(a, product.a_transposed),
        b: last_strides(b, product.b_transposed),
        c_row: *n,
        addend: addend.as_ref().map(|o| {
            let [row, col] = last_strides(o, false);
            Addend { row, col }
        }),
        alpha: product.alpha,
        beta: product.beta,
        activation: act,
        quantized: None,
        exact_in_bf16: false,
        a_is_i8: false,
        bytes: None,
    };
    let operands = [Some(a.clone()), Some(b.clone()), addend];
    Contract::MatMul(merge_rows(desc), operands.into_iter().flatten().collect())
}

/// For a product whose B is the whole matrix `b`, with scales: the number of product indices that share a scale. `None`
/// if the matrix has no integers, or if plans would spend more time on scales than on integers.
pub(in crate::lower) fn quantized_group(d: &MatMul, b: &Tensor) -> Option<usize> {
    const SMALLEST_GROUP: usize = 8;
    let q = b.quantized()?;
    let dim = match d.b {
        [1, col] if col == d.k && q.shape == [d.n, d.k] => 1,
        [row, 1] if row == d.n && q.shape == [d.k, d.n] => 0,
        _ => return None,
    };
    let group = q.scale_run(dim);
    (group >= SMALLEST_GROUP && d.k.is_multiple_of(group)).then_some(group)
}

/// The strides of the last two dims, swapped if `swap` is set.
fn last_strides(o: &BufferOperand, swap: bool) -> [usize; 2] {
    let s = unsigned_strides(o);
    let (r, c) = (s[s.len() - 2], s[s.len() - 1]);
    if swap { [c, r] } else { [r, c] }
}

/// The batch dims larger than one, with the strides of all operands and of the contiguous result `out`.
fn batch_dims(
    batch: &[usize],
    out: &[usize],
    a: &BufferOperand,
    b: &BufferOperand,
    addend: Option<&BufferOperand>,
) -> Vec<BatchDim> {
    let stride = |o: &BufferOperand, d: usize| {
        // Batch dims are right-aligned. A missing dim or one of size one is broadcast.
        let own_dim = d.checked_sub(out.len() - o.shape.len()).filter(|&i| o.shape[i] != 1);
        own_dim.map_or(0, |i| o.strides[i].max(0) as usize)
    };
    let c = crate::tensor::contiguous_strides(out);
    let batch_dim = |d: usize| BatchDim {
        size: out[d],
        a: stride(a, d),
        b: stride(b, d),
        c: c[d],
        addend: addend.map_or(0, |o| stride(o, d)),
    };
    (0..batch.len()).filter(|&d| out[d] != 1).map(batch_dim).collect()
}

/// Merges a batch into the rows if they are consecutive and share B: `[B, T, K] · [K, N]` is `[B * T, K] · [K, N]`.
fn merge_rows(mut d: MatMul) -> MatMul {
    while let Some(last) = d.batch.last().copied() {
        if d.m == 1 && last.b == 0 {
            // A single row has no row stride yet.
            (d.a[0], d.c_row) = (last.a, last.c);
            if let Some(a) = &mut d.addend {
                a.row = last.addend;
            }
        }
        let addend = d.addend.unwrap_or(Addend { row: 0, col: 0 });
        let follows = last.b == 0
            && last.a == d.a[0] * d.m
            && last.c == d.c_row * d.m
            && (d.addend.is_none() || last.addend == addend.row * d.m);
        if !follows {
            break;
        }
        d.m *= last.size;
        d.batch.pop();
    }
    d
}

fn broadcast_to(o: &BufferOperand, out: &[usize]) -> BufferOperand {
    let skip = out.len() - o.shape.len();
    let strides = (0..out.len())
        .map(|d| {
            d.checked_sub(skip)
                .map_or(0, |i| if o.shape[i] == 1 { 0 } else { o.strides[i] })
        })
        .collect();
    BufferOperand {
        shape: out.to_vec(),
        strides,
        ..o.clone()
    }
}

/// Pads spatial values to three, missing dims first.
fn pad_to_three(v: &[usize], fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    out[3 - v.len()..].copy_from_slice(v);
    out
}

/// A convolution. Its operands are contiguous (see [`prepare_operands`]). `last` states whether the input and the
/// output have their channels last.
pub(in crate::lower) fn conv(
    params: &Convolution,
    operands: &[BufferOperand],
    dtype: DType,
    act: Activation,
    last: [bool; 2],
) -> Contract {
    let (x, w) = (&operands[params.input], &operands[params.weight]);
    let layout = |last: bool| match last {
        true => ConvLayout::ChannelsLast,
        false => ConvLayout::ChannelsFirst,
    };
    let (channels, spatial) = match (last[0], &x.shape[1..]) {
        (true, [spatial @ .., channels]) | (false, [channels, spatial @ ..]) => (*channels, spatial),
        _ => (1, &[][..]),
    };
    let desc = Conv {
        dtype,
        batch: x.shape[0],
        in_channels: channels,
        out_channels: match params.transposed {
            true => w.shape[1] * params.groups,
            false => w.shape[0],
        },
        groups: params.groups,
        input: pad_to_three(spatial, 1),
        kernel: pad_to_three(&w.shape[2..], 1),
        stride: pad_to_three(&params.stride, 1),
        padding: pad_to_three(&params.padding, 0),
        dilation: pad_to_three(&params.dilation, 1),
        transposed: params.transposed,
        output_padding: pad_to_three(&params.output_padding, 0),
        bias: params.bias.is_some(),
        input_layout: layout(last[0]),
        output_layout: layout(last[1]),
        activation: act,
        exact_in_bf16: false,
        bytes: None,
    };
    let used = [params.input, params.weight].into_iter().chain(params.bias);
    Contract::Conv(desc, used.map(|i| operands[i].clone()).collect())
}

/// The input's dtype, if `v` is a product of bytes: its weight is i8, and its sums are i32.
pub(in crate::lower) fn byte_input(tir: &Tir, v: ValueId) -> Option<ByteInput> {
    let Def::Contract { args, contraction } = &tir.value(v).def else {
        return None;
    };
    let input = match contraction {
        Contraction::MatMul(p) => args[p.a],
        Contraction::Conv(c) => args[c.input],
    };
    match (tir.value(v).dtype, tir.value(input).dtype) {
        (DType::I32, DType::U8) => Some(ByteInput::Unsigned),
        (DType::I32, DType::I8) => Some(ByteInput::Signed),
        _ => None,
    }
}

/// Notes in the descriptor that it is a product of bytes.
pub(in crate::lower) fn set_byte_input(contract: &mut Contract, input: Option<ByteInput>) {
    match contract {
        Contract::MatMul(desc, _) => desc.bytes = input,
        Contract::Conv(desc, _) => desc.bytes = input,
        _ => {}
    }
}

/// Notes in the descriptor of an f32 product whether bf16 represents the elements of both factors, and i8 those of the first.
pub(in crate::lower) fn mark_exact_factors(tir: &Tir, def: &Def, args: &[ValueId], contract: &mut Contract) {
    let Def::Contract { contraction, .. } = def else { return };
    if contraction.out().dtype != DType::F32 {
        return;
    }
    let is_exact = |i: usize| tir.is_exact_in_bf16(args[i]);
    match (contraction, contract) {
        (Contraction::MatMul(p), Contract::MatMul(desc, _)) => {
            desc.exact_in_bf16 = is_exact(p.a) && is_exact(p.b);
            desc.a_is_i8 = tir.is_converted_from_i8(args[p.a]);
        }
        (Contraction::Conv(c), Contract::Conv(desc, _)) => {
            desc.exact_in_bf16 = is_exact(c.input) && is_exact(c.weight);
        }
        _ => {}
    }
}

/// Copies the operands whose strides `math` does not support: negative strides and, for convolutions, any gaps.
pub(in crate::lower) fn prepare_operands(
    tir: &mut Tir,
    contraction: &Contraction,
    args: &mut [ValueId],
) -> OpResult<()> {
    let conv = matches!(contraction, Contraction::Conv(_));
    for a in args {
        let shape = tir.value(*a).shape.clone();
        let Some(access) = tir.access(*a) else { continue };
        let bad = access.strides.iter().zip(&shape).any(|(&s, &d)| s < 0 && d > 1);
        if bad || (conv && !access.is_contiguous(&shape)) {
            *a = tir.copy(*a)?;
        }
    }
    Ok(())
}

/// The step of a contraction.
pub(in crate::lower) fn contraction_step(
    def: &Def,
    operands: &[BufferOperand],
    dtype: DType,
    out: &[usize],
    act: Activation,
    last: [bool; 2],
) -> Result<Contract, LowerError> {
    Ok(match def {
        Def::Contract {
            contraction: Contraction::MatMul(product),
            ..
        } => {
            // At this point vectors are matrices with one row or column (see the op rows).
            if operands.iter().take(2).any(|o| o.shape.len() < 2) || out.len() < 2 {
                let d = Diagnostic::new(Code::E0602, "the operands of a matrix product are not matrices");
                return Err(d.into());
            }
            matmul(product, operands, dtype, out, act)
        }
        Def::Contract {
            contraction: Contraction::Conv(params),
            ..
        } => conv(params, operands, dtype, act, last),
        Def::Special { special, .. } => special_step(special, operands, dtype, out)?,
        _ => unreachable!("the caller matched contractions"),
    })
}

/// The step of an operation that is no sum of products alone.
fn special_step(
    special: &Special,
    operands: &[BufferOperand],
    dtype: DType,
    out: &[usize],
) -> Result<Contract, LowerError> {
    Ok(match special {
        Special::Attention(options) => attention::attention_step(operands, dtype, options, out),
        Special::Grouped(groups) => grouped::grouped_step(operands, dtype, groups),
        Special::Recurrent { .. } => self::recurrent::recurrent_step(special, operands)?,
        _ => unreachable!("the caller matched contractions"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_rows_of_a_batch_are_one_matrix() {
        // [5, 1, 8] · [8, 6], where the first operand is the transpose of [1, 5, 8]: the stride of its middle dim is
        // meaningless.
        let batch = BatchDim {
            size: 5,
            a: 8,
            b: 0,
            c: 6,
            addend: 0,
        };
        let d = MatMul {
            dtype: DType::F32,
            batch: vec![batch],
            m: 1,
            n: 6,
            k: 8,
            a: [40, 1],
            b: [6, 1],
            c_row: 6,
            addend: Some(Addend { row: 0, col: 1 }),
            alpha: 1.0,
            beta: 1.0,
            activation: Activation::None,
            quantized: None,
            exact_in_bf16: false,
            a_is_i8: false,
            bytes: None,
        };
        let merged = merge_rows(d.clone());
        assert_eq!(
            (merged.batch.len(), merged.m, merged.a, merged.c_row),
            (0, 5, [8, 1], 6)
        );
        let shares_nothing = MatMul {
            batch: vec![BatchDim { b: 48, ..batch }],
            ..d
        };
        assert_eq!(merge_rows(shares_nothing).m, 1);
    }
}
