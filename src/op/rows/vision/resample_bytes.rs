//! Resizing images of bytes in integers.

use crate::tensor::Tensor;

/// For one index of the result along a dim: indices of the operand with weights.
pub(in crate::op::rows) type Taps = Vec<(usize, f64)>;

/// Images of bytes as torch (and Pillow) blends them: the last dim, then the one before, each with weights of 16 bits that
/// have as many digits as the largest one leaves room for, and bytes between.
pub(in crate::op::rows) fn fixed_point(x: &Tensor, along: &[Vec<Taps>]) -> Vec<u8> {
    let [h, w] = [x.shape()[2], x.shape()[3]];
    let planes = x.shape()[0] * x.shape()[1];
    let rows = blend_dim(x.as_slice::<u8>(), planes * h, w, 1, &along[1]);
    blend_dim(&rows, planes, h, along[1].len(), &along[0])
}

/// One dim of `[outer, n, inner]` bytes blended.
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

/// The taps with one weight for each index.
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
