//! Products with 4-bit weights. The other operand is quantised row by row at run time.

use crate::op::rows::linalg::results::tensor_from_numbers;
use crate::op::{Build, Call, Meaning, Op, OpError, OpResult, Sizes, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("_dyn_quant_pack_4bit_weight(Tensor weights, Tensor scales_zeros, Tensor? bias, int block_size, int in_features, int \
             out_features) -> Tensor",
            pack_weights,
        )
        .doc("4-bit weights (two per byte), their scales and a bias packed in one f32 vector")
        .spelled("aten.@ torch.@"),
        Op::new("_dyn_quant_matmul_4bit(Tensor inp, Tensor packed_weights, int block_size, int in_features, int out_features) -> Tensor",
            matmul_type,
            Meaning::Routine(quantised_matmul),
        )
        .doc("inp, with rows quantised to 8 bits, times the packed 4-bit weights")
        .spelled("aten.@ torch.@"),
    ]
}

/// Packs weights, scales and the bias one after the other, as torch does on processors without special kernels.
fn pack_weights(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (weights, scales) = (c.leaf("weights")?, c.leaf("scales_zeros")?);
    if weights.dtype() != DType::U8 {
        return Err(OpError::dtype(
            "_dyn_quant_pack_4bit_weight_cpu : expect weight to be kByte.",
        ));
    }
    weight_sizes(c)?;
    let mut parts = vec![];
    for part in [weights, scales].into_iter().chain(c.opt_leaf("bias")) {
        let flat = b.reshape(part, &[part.ty.numel()])?;
        parts.push(b.to_dtype(&flat, DType::F32)?);
    }
    b.cat(&parts, 0).map(Val::Leaf)
}

/// `in_features`, `out_features`, and the number of elements that share a scale.
fn weight_sizes<T>(c: &Call<T>) -> OpResult<[usize; 3]> {
    let [k, n, block] = [c.int("in_features")?, c.int("out_features")?, c.int("block_size")?];
    let fits = block == k || block > 0 && block % 32 == 0 && k % block == 0;
    if !fits || k <= 0 || n < 0 {
        return Err(OpError::arg(
            "block_size",
            format!(
                "dyn_quant_matmul_4bit_kernel: Group size should be multiple 32 or in_features [{k}]. Provided {block}"
            ),
        ));
    }
    Ok([k, n, block].map(|s| s as usize))
}

fn matmul_type(c: &Call<TensorType>, equal: &mut Sizes) -> OpResult<Type> {
    let (dtype, shape) = c.shaped("inp")?;
    let [k, n, block] = weight_sizes(c)?;
    if !(dtype == DType::F32 || dtype == DType::BF16 && block == k) {
        return Err(OpError::dtype(
            "_dyn_quant_matmul_4bit_cpu : expect input to be float32 or bfloat16 tensor.",
        ));
    }
    let [rows, last] = shape else {
        return Err(OpError::shape(
            "_dyn_quant_matmul_4bit_cpu : expect input to be 2D tensor.",
        ));
    };
    equal.unify_dims(last, &Dim::Const(k as i64), || {
        format!("_dyn_quant_matmul_4bit: the rows of inp have {last} elements, not {k}")
    })?;
    let packed = n * k / 2 + n * (k / block);
    let t = c.leaf("packed_weights")?;
    let length = t.numel().as_const();
    if t.dtype != DType::F32 || length.is_some_and(|l| l != packed as i64 && l != (packed + n) as i64) {
        let title = format!(
            "_dyn_quant_matmul_4bit: packed_weights must be f32[{packed}], or f32[{}] with a bias",
            packed + n
        );
        return Err(OpError::shape(title));
    }
    let out = vec![rows.clone(), Dim::Const(n as i64)];
    Ok(Val::Leaf(TensorType::new(dtype, out)))
}

/// A row of 8-bit integers `q` that represent `(q + offset) * scale`.
struct Quantised {
    values: Vec<i32>,
    offset: i32,
    scale: f32,
}

impl Quantised {
    /// Quantises a row as torch's reference does: the range is extended to include 0, which is represented exactly.
    fn from_row(row: &[f32]) -> Quantised {
        let (least, most) = (i8::MIN as f32, i8::MAX as f32);
        // C++'s maximum and minimum skip NaN.
        let low = row.iter().fold(0.0f32, |m, &x| if x < m { x } else { m });
        let high = row.iter().fold(0.0f32, |m, &x| if x > m { x } else { m });
        let scale = if low == high {
            1.0
        } else {
            (most - least) / (high - low)
        };
        let (low, high) = (low * scale, high * scale);
        let zero = if (least + low) + (most + high) > 0.0 {
            least - low
        } else {
            most - high
        };
        let zero = zero.clamp(least, most).round_ties_even() as i32;
        let quantised = |&x: &f32| ((x * scale).round() as i32).saturating_add(zero).clamp(-128, 127);
        Quantised {
            values: row.iter().map(quantised).collect(),
            offset: -zero,
            scale: if scale == 0.0 { 0.0 } else { 1.0 / scale },
        }
    }
}

fn quantised_matmul(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let [k, n, block] = weight_sizes(c)?;
    let (x, packed) = (c.leaf("inp")?, c.leaf("packed_weights")?);
    let dtype = x.dtype();
    let x: Vec<f32> = (0..x.numel()).map(|i| x.get(i).to_f64() as f32).collect();
    let packed = packed.as_slice::<f32>();
    let (weights, scales) = packed.split_at(n * k / 2);
    let (scales, bias) = scales.split_at(n * (k / block));
    // The even elements of a row are in the low halves of its bytes.
    let weight = |j: usize, i: usize| {
        let byte = weights.get((j * k).div_ceil(2) + i / 2).map_or(0, |&w| w as u8);
        i32::from(if i.is_multiple_of(2) { byte & 15 } else { byte >> 4 }) - 8
    };
    let mut out = Vec::with_capacity(x.len() / k * n);
    for row in x.chunks_exact(k) {
        let q = Quantised::from_row(row);
        for j in 0..n {
            let mut sum = 0.0f32;
            for (g, part) in q.values.chunks(block).enumerate() {
                let term = |(i, v): (usize, &i32)| (v + q.offset) * weight(j, g * block + i);
                let exact: i32 = part.iter().enumerate().map(term).fold(0, i32::wrapping_add);
                sum += exact as f32 * scales[j * (k / block) + g];
            }
            let y = sum * q.scale + bias.get(j).copied().unwrap_or(0.0);
            out.push(f64::from(y.clamp(f32::MIN, f32::MAX)));
        }
    }
    tensor_from_numbers(dtype, &[x.len() / k, n], out).map(Val::Leaf)
}
