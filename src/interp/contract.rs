//! Matrix products and convolutions by their definition. Sums are accumulated in f64 (floats) or wrapping i64
//! (integers) and rounded to the result's dtype once.

use crate::op::{Contraction, Convolution, MatrixProduct, OpError, OpResult};
use crate::tensor::{Element, Scalar, Tensor, byte_len, matmul_f64};
use crate::types::{DType, TensorType};

/// The numbers in which sums are accumulated.
trait Accumulator: Copy + Default {
    fn scale(self, by: f64) -> Self;
    fn add(self, other: Self) -> Self;
    fn read_elements(t: &Tensor) -> Vec<Self>;
    fn write_tensor(v: Vec<Self>, dtype: DType, shape: &[usize]) -> Tensor;
    /// `out = a @ b`, row-major, where `a` is `m x k` and `b` is `k x n`.
    fn matrix_product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], out: &mut [Self]);
}

impl Accumulator for f64 {
    fn scale(self, by: f64) -> f64 {
        if by == 1.0 { self } else { self * by }
    }
    fn add(self, other: f64) -> f64 {
        self + other
    }
    fn read_elements(t: &Tensor) -> Vec<f64> {
        fn convert_all<T: Element>(t: &Tensor, f: impl Fn(T) -> f64) -> Vec<f64> {
            t.as_slice::<T>().iter().map(|&x| f(x)).collect()
        }
        match t.dtype() {
            DType::F32 => convert_all::<f32>(t, f64::from),
            DType::F64 => convert_all::<f64>(t, |x| x),
            _ => (0..t.numel()).map(|i| t.get(i).to_f64()).collect(),
        }
    }
    fn write_tensor(v: Vec<f64>, dtype: DType, shape: &[usize]) -> Tensor {
        match dtype {
            DType::F32 => Tensor::from_slice(shape, &v.iter().map(|&x| x as f32).collect::<Vec<_>>()),
            DType::F64 => Tensor::from_slice(shape, &v),
            _ => Tensor::from_fn(dtype, shape, |i| Scalar::F64(v[i])),
        }
    }
    fn matrix_product(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], out: &mut [f64]) {
        matmul_f64(m, k, n, a, b, out);
    }
}

impl Accumulator for i64 {
    fn scale(self, by: f64) -> i64 {
        self.wrapping_mul(by as i64)
    }
    fn add(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    fn read_elements(t: &Tensor) -> Vec<i64> {
        (0..t.numel()).map(|i| t.get(i).to_i64()).collect()
    }
    fn write_tensor(v: Vec<i64>, dtype: DType, shape: &[usize]) -> Tensor {
        Tensor::from_fn(dtype, shape, |i| Scalar::from_i64(dtype, v[i]))
    }
    fn matrix_product(m: usize, k: usize, n: usize, a: &[i64], b: &[i64], out: &mut [i64]) {
        out.fill(0);
        for i in 0..m {
            for p in 0..k {
                let x = a[i * k + p];
                let row = out[i * n..][..n].iter_mut().zip(&b[p * n..][..n]);
                row.for_each(|(o, &y)| *o = o.wrapping_add(x.wrapping_mul(y)));
            }
        }
    }
}

/// Computes a contraction. There is one operand per parameter of the op, `None` for one without a tensor.
pub fn eval_contraction(c: &Contraction, operands: &[Option<&Tensor>]) -> OpResult<Tensor> {
    let out = c.out();
    let shape = fixed_shape_of(out)?;
    if out.dtype.is_float() {
        eval_as::<f64>(c, operands, out.dtype, &shape)
    } else {
        eval_as::<i64>(c, operands, out.dtype, &shape)
    }
}

fn fixed_shape_of(t: &TensorType) -> OpResult<Vec<usize>> {
    t.fixed_shape()
        .filter(|s| byte_len(DType::F64, s).is_some())
        .ok_or_else(|| OpError::shape(format!("the size of {t} is unknown or overflows")))
}

fn tensor_operand<'t>(operands: &[Option<&'t Tensor>], i: usize) -> OpResult<&'t Tensor> {
    operands
        .get(i)
        .copied()
        .flatten()
        .ok_or_else(|| OpError::shape(format!("operand {i} of a contraction is not a tensor")))
}

fn eval_as<T: Accumulator>(
    c: &Contraction,
    operands: &[Option<&Tensor>],
    dtype: DType,
    shape: &[usize],
) -> OpResult<Tensor> {
    let values = match c {
        Contraction::MatMul(p) => eval_matrix_product::<T>(p, operands, shape)?,
        Contraction::Conv(c) => eval_convolution::<T>(c, operands, shape)?,
    };
    Ok(T::write_tensor(values, dtype, shape))
}

/// `beta * bias + alpha * (a @ b)`.
fn eval_matrix_product<T: Accumulator>(
    p: &MatrixProduct,
    operands: &[Option<&Tensor>],
    shape: &[usize],
) -> OpResult<Vec<T>> {
    let bias = p.bias.map(|i| tensor_operand(operands, i)).transpose()?;
    let (a, b) = (tensor_operand(operands, p.a)?, tensor_operand(operands, p.b)?);
    let mut v: Vec<T> = batched_matmul(a, p.a_transposed, b, p.b_transposed, shape)?;
    v.iter_mut().for_each(|x| *x = x.scale(p.alpha));
    if let Some(bias) = bias.filter(|_| p.beta != 0.0) {
        let addend = T::read_elements(bias);
        let positions = broadcast_positions(bias.shape(), shape);
        for (x, i) in v.iter_mut().zip(positions) {
            *x = x.add(addend[i].scale(p.beta));
        }
    }
    Ok(v)
}

fn eval_convolution<T: Accumulator>(
    c: &Convolution,
    operands: &[Option<&Tensor>],
    shape: &[usize],
) -> OpResult<Vec<T>> {
    let (input, weight) = (tensor_operand(operands, c.input)?, tensor_operand(operands, c.weight)?);
    let geometry = Geometry {
        n: shape[0],
        channels: input.shape()[1],
        features: shape[1],
        groups: c.groups,
        input: &input.shape()[2..],
        kernel: &weight.shape()[2..],
        output: &shape[2..],
        stride: &c.stride,
        padding: &c.padding,
        dilation: &c.dilation,
    };
    let (x, w) = (T::read_elements(input), T::read_elements(weight));
    let mut v = match c.transposed {
        true => geometry.convolve_transposed(&x, &w),
        false => geometry.convolve_direct(&x, &w),
    };
    if let Some(bias) = c.bias.map(|i| tensor_operand(operands, i)).transpose()? {
        let addend = T::read_elements(bias);
        let spatial: usize = shape[2..].iter().product();
        for (i, x) in v.iter_mut().enumerate() {
            *x = x.add(addend[i / spatial.max(1) % addend.len()]);
        }
    }
    Ok(v)
}

/// For every element of `shape`, the position of the element of `operand` that broadcasts to it.
fn broadcast_positions(operand: &[usize], shape: &[usize]) -> Vec<usize> {
    let lead = shape.len().saturating_sub(operand.len());
    let dense = crate::tensor::contiguous_strides(operand);
    let stride = |d: usize| match d.checked_sub(lead) {
        Some(i) if operand[i] != 1 => dense[i],
        _ => 0,
    };
    let strides: Vec<usize> = (0..shape.len()).map(stride).collect();
    let count = shape.iter().product();
    let mut index = vec![0; shape.len()];
    let mut out = Vec::with_capacity(count);
    let mut position = 0;
    for _ in 0..count {
        out.push(position);
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            position += strides[d];
            if index[d] < shape[d] {
                break;
            }
            position -= strides[d] * index[d];
            index[d] = 0;
        }
    }
    out
}

/// Batched `a @ b` with a result of `shape`, `[…, m, n]`.
fn batched_matmul<T: Accumulator>(
    a: &Tensor,
    a_transposed: bool,
    b: &Tensor,
    b_transposed: bool,
    shape: &[usize],
) -> OpResult<Vec<T>> {
    let (ra, rb) = (a.rank(), b.rank());
    if ra < 2 || rb < 2 || shape.len() < 2 {
        return Err(OpError::shape("a matrix product needs matrices"));
    }
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let k = a.shape()[if a_transposed { ra - 2 } else { ra - 1 }];
    let batch = &shape[..shape.len() - 2];
    let pa = broadcast_positions(&a.shape()[..ra - 2], batch);
    let pb = broadcast_positions(&b.shape()[..rb - 2], batch);
    let (va, vb) = (T::read_elements(a), T::read_elements(b));
    let va = if a_transposed { transpose_each(&va, k, m) } else { va };
    let vb = if b_transposed { transpose_each(&vb, n, k) } else { vb };
    let mut out = vec![T::default(); shape.iter().product()];
    for (i, (pa, pb)) in pa.into_iter().zip(pb).enumerate() {
        let (x, y) = (&va[pa * m * k..][..m * k], &vb[pb * k * n..][..k * n]);
        T::matrix_product(m, k, n, x, y, &mut out[i * m * n..][..m * n]);
    }
    Ok(out)
}

/// Transposes every `rows x cols` matrix of `v`.
fn transpose_each<T: Accumulator>(v: &[T], rows: usize, cols: usize) -> Vec<T> {
    let mut out = vec![T::default(); v.len()];
    if rows * cols == 0 {
        return out;
    }
    for (src, dst) in v.chunks(rows * cols).zip(out.chunks_mut(rows * cols)) {
        for (r, row) in src.chunks(cols).enumerate() {
            for (c, &x) in row.iter().enumerate() {
                dst[c * rows + r] = x;
            }
        }
    }
    out
}

/// The sizes of a convolution.
struct Geometry<'a> {
    n: usize,
    channels: usize,
    features: usize,
    groups: usize,
    input: &'a [usize],
    kernel: &'a [usize],
    output: &'a [usize],
    stride: &'a [usize],
    padding: &'a [usize],
    dilation: &'a [usize],
}

/// The number of result positions whose patches are gathered at a time.
const PATCHES: usize = 2048;

impl Geometry<'_> {
    /// The input element that the kernel element `tap` reads for result position `position`; `None` in the padding.
    fn source_index(&self, position: &[usize], tap: &[usize], grid: &[usize]) -> Option<usize> {
        let mut pos = 0;
        for d in 0..grid.len() {
            let p = (position[d] * self.stride[d] + tap[d] * self.dilation[d]).checked_sub(self.padding[d])?;
            if p >= grid[d] {
                return None;
            }
            pos = pos * grid[d] + p;
        }
        Some(pos)
    }

    fn tap_indices(&self) -> Vec<Vec<usize>> {
        all_indices(self.kernel)
    }

    fn convolve_direct<T: Accumulator>(&self, x: &[T], w: &[T]) -> Vec<T> {
        let (cg, fg) = (self.channels / self.groups, self.features / self.groups);
        let taps = self.tap_indices();
        let places = all_indices(self.output);
        let size_in: usize = self.input.iter().product();
        let mut out = vec![T::default(); self.n * self.features * places.len()];
        let k = cg * taps.len();
        for chunk in (0..places.len()).step_by(PATCHES) {
            let positions = &places[chunk..places.len().min(chunk + PATCHES)];
            // The position that each tap reads, for all channels and images; usize::MAX is the padding.
            let reads: Vec<usize> = taps
                .iter()
                .flat_map(|t| {
                    positions
                        .iter()
                        .map(|p| self.source_index(p, t, self.input).unwrap_or(usize::MAX))
                })
                .collect();
            let count = positions.len();
            let (mut patches, mut part) = (vec![T::default(); k * count], vec![T::default(); fg * count]);
            for (image, group) in (0..self.n).flat_map(|i| (0..self.groups).map(move |g| (i, g))) {
                for c in 0..cg {
                    let plane = &x[(image * self.channels + group * cg + c) * size_in..][..size_in];
                    let rows = &mut patches[c * reads.len()..][..reads.len()];
                    for (o, &r) in rows.iter_mut().zip(&reads) {
                        *o = if r == usize::MAX { T::default() } else { plane[r] };
                    }
                }
                T::matrix_product(fg, k, count, &w[group * fg * k..][..fg * k], &patches, &mut part);
                for (f, row) in part.chunks(count).enumerate() {
                    let o = (image * self.features + group * fg + f) * places.len() + chunk;
                    out[o..o + count].copy_from_slice(row);
                }
            }
        }
        out
    }

    /// Transposed convolution: every input element adds its kernel to the result.
    fn convolve_transposed<T: Accumulator>(&self, x: &[T], w: &[T]) -> Vec<T> {
        let (cg, fg) = (self.channels / self.groups, self.features / self.groups);
        let taps = self.tap_indices();
        let places = all_indices(self.input);
        let size_out: usize = self.output.iter().product();
        let mut out = vec![T::default(); self.n * self.features * size_out];
        let k = fg * taps.len();
        // Input and result swap roles: `source_index` returns the result position to which a tap of an input element
        // contributes.
        let lands: Vec<usize> = taps
            .iter()
            .flat_map(|t| {
                places
                    .iter()
                    .map(|p| self.source_index(p, t, self.output).unwrap_or(usize::MAX))
            })
            .collect();
        for (image, group) in (0..self.n).flat_map(|i| (0..self.groups).map(move |g| (i, g))) {
            let planes = &x[(image * self.channels + group * cg) * places.len()..][..cg * places.len()];
            let kernels = transpose_each(&w[group * cg * k..][..cg * k], cg, k);
            let mut parts = vec![T::default(); k * places.len()];
            T::matrix_product(k, cg, places.len(), &kernels, planes, &mut parts);
            for f in 0..fg {
                let plane = &mut out[(image * self.features + group * fg + f) * size_out..][..size_out];
                let part = &parts[f * lands.len()..][..lands.len()];
                for (&v, &land) in part.iter().zip(&lands) {
                    if land != usize::MAX {
                        plane[land] = plane[land].add(v);
                    }
                }
            }
        }
        out
    }
}

/// Every index of `shape` in row-major order.
fn all_indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut out = vec![vec![]];
    for &n in shape {
        out = out
            .into_iter()
            .flat_map(|p| (0..n).map(move |i| [&p[..], &[i]].concat()))
            .collect();
    }
    out
}

#[cfg(test)]
mod tests;
