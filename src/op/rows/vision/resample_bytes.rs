//! Resizing byte images in integer arithmetic.

use crate::tensor::Tensor;

/// For one index of the result along a dim: operand indices with weights.
pub(in crate::op::rows) type Taps = Vec<(usize, f64)>;

/// Interpolates byte images like torch (and Pillow): the last dim first, then the one before it, with a byte image in
/// between. Weights are 16-bit fixed-point numbers with as many fractional bits as the largest weight permits.
pub(in crate::op::rows) fn fixed_point(x: &Tensor, along: &[Vec<Taps>]) -> Vec<u8> {
    let [h, w] = [x.shape()[2], x.shape()[3]];
    let planes = x.shape()[0] * x.shape()[1];
    let rows = blend_dim(x.as_slice::<u8>(), planes * h, w, 1, &along[1]);
    blend_dim(&rows, planes, h, along[1].len(), &along[0])
}

/// Interpolates along the middle dim of `[outer, n, inner]` bytes.
fn blend_dim(x: &[u8], outer: usize, n: usize, inner: usize, taps: &[Taps]) -> Vec<u8> {
    let merged: Vec<Taps> = taps.iter().map(merge_taps).collect();
    let largest = merged.iter().flatten().map(|t| t.1).fold(0.0, f64::max);
    let digits = (0..22)
        .find(|d| (0.5 + largest * f64::from(1 << (d + 1))) as i64 >= 1 << 15)
        .unwrap_or(22);
    let whole = |w: f64| (w * f64::from(1 << digits)).round() as i64;
    let weights: Vec<Vec<(usize, i64)>> = merged
        .iter()
        .map(|t| t.iter().map(|&(i, w)| (i, whole(w))).collect())
        .collect();
    let half = if digits > 0 { 1i64 << (digits - 1) } else { 0 };
    let mut out = Vec::with_capacity(outer * taps.len() * inner);
    for o in 0..outer {
        for t in &weights {
            for k in 0..inner {
                let sum = t
                    .iter()
                    .fold(half, |s, &(i, w)| s + x[(o * n + i) * inner + k] as i64 * w);
                out.push((sum >> digits).clamp(0, 255) as u8);
            }
        }
    }
    out
}

/// Sums the weights of taps with the same index.
fn merge_taps(taps: &Taps) -> Taps {
    let mut out = Taps::new();
    for &(i, w) in taps {
        match out.iter_mut().find(|t| t.0 == i) {
            Some(t) => t.1 += w,
            None => out.push((i, w)),
        }
    }
    out
}
