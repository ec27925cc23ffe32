//! Rounds a matrix of weights to integers with a scale for each row or each group of a row's elements.

use crate::tensor::Tensor;
use crate::types::DType;
use half::bf16;

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightFormat {
    /// Signed 8-bit integers with one f32 scale for each row: the elements that one output feature is computed from.
    Int8,
    /// Unsigned 4-bit integers, two to a byte, with a zero point and a bf16 scale for each group of a row's elements.
    Int4 {
        /// The number of elements in a group.
        group: usize,
    },
}

impl WeightFormat {
    /// Parses `int8`, `int4` (groups of 32) or `int4-gN`.
    pub fn parse(name: &str) -> Result<WeightFormat, String> {
        let group = match name {
            "int8" => return Ok(WeightFormat::Int8),
            "int4" => Some(32),
            _ => name.strip_prefix("int4-g").and_then(|n| n.parse::<usize>().ok()),
        };
        match group {
            Some(group) if group >= 2 && group.is_multiple_of(2) => Ok(WeightFormat::Int4 { group }),
            _ => Err("expected int8, int4, or int4-gN with an even group size N, such as int4-g32".to_string()),
        }
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WeightFormat::Int8 => f.write_str("int8"),
            WeightFormat::Int4 { group } => write!(f, "int4-g{group}"),
        }
    }
}

/// A rounded matrix: element `(i, j)` is `(integer - zero) * scale`, with the zero point and the scale of its group.
#[derive(Clone, Debug)]
pub(super) struct RoundedMatrix {
    pub format: WeightFormat,
    /// The numbers of rows and columns.
    pub shape: [usize; 2],
    /// The integers: i8, or u8 with the element of the even column in the low half of a byte.
    pub integers: Tensor,
    /// The zero points, u8 `[rows, groups, 1]`; none for symmetric formats.
    pub zeros: Option<Tensor>,
    /// The scales: f32 `[rows, 1]`, or bf16 `[rows, groups, 1]`.
    pub scales: Tensor,
}

/// Rounds a row-major matrix of finite numbers. The group size must divide `shape[1]`.
pub(super) fn round_matrix(values: &[f32], shape: [usize; 2], format: WeightFormat) -> RoundedMatrix {
    match format {
        WeightFormat::Int8 => round_rows(values, shape),
        WeightFormat::Int4 { group } => round_groups(values, shape, group),
    }
}

fn round_rows(values: &[f32], shape: [usize; 2]) -> RoundedMatrix {
    let mut integers = Vec::with_capacity(values.len());
    let mut scales = Vec::with_capacity(shape[0]);
    for row in values.chunks_exact(shape[1]) {
        let largest = row.iter().fold(0f32, |m, x| m.max(x.abs()));
        // A row of zeros, or of numbers whose scale underflows, becomes zeros.
        let scale = if largest / 127.0 > 0.0 { largest / 127.0 } else { 1.0 };
        integers.extend(
            row.iter()
                .map(|x| (x / scale).round_ties_even().clamp(-127.0, 127.0) as i8),
        );
        scales.push(scale);
    }
    RoundedMatrix {
        format: WeightFormat::Int8,
        shape,
        integers: Tensor::from_slice(&shape, &integers),
        zeros: None,
        scales: Tensor::from_slice(&[shape[0], 1], &scales),
    }
}

fn round_groups(values: &[f32], shape: [usize; 2], group: usize) -> RoundedMatrix {
    let groups = values.len() / group;
    let mut integers = Vec::with_capacity(values.len() / 2);
    let (mut zeros, mut scales) = (Vec::with_capacity(groups), Vec::with_capacity(groups));
    for elements in values.chunks_exact(group) {
        let grid = best_grid(elements);
        integers.extend(
            elements
                .chunks_exact(2)
                .map(|pair| grid.integer(pair[0]) | grid.integer(pair[1]) << 4),
        );
        zeros.push(grid.zero as u8);
        scales.push(bf16::from_f32(grid.scale));
    }
    let per_group = [shape[0], shape[1] / group, 1];
    RoundedMatrix {
        format: WeightFormat::Int4 { group },
        shape,
        integers: Tensor::from_slice(&[shape[0], shape[1] / 2], &integers),
        zeros: Some(Tensor::from_slice(&per_group, &zeros)),
        scales: Tensor::from_slice(&per_group, &scales),
    }
}

/// The sixteen values of a group: `(integer - zero) * scale`.
#[derive(Clone, Copy)]
struct ValueGrid {
    scale: f32,
    /// An integer from 0 to 15.
    zero: f32,
}

impl ValueGrid {
    /// The grid whose ends are the least and the greatest element (and zero, which must be representable), times
    /// `shrink`.
    fn spanning(low: f32, high: f32, shrink: f32) -> ValueGrid {
        // The scale is stored as bf16. Integers are chosen for the stored scale.
        let stored = bf16::from_f32((high - low) * shrink / 15.0).to_f32();
        let scale = if stored > 0.0 && stored.is_finite() {
            stored
        } else {
            1.0
        };
        let zero = (-low * shrink / scale).round_ties_even().clamp(0.0, 15.0);
        ValueGrid { scale, zero }
    }

    fn integer(&self, x: f32) -> u8 {
        (x / self.scale + self.zero).round_ties_even().clamp(0.0, 15.0) as u8
    }

    fn squared_error(&self, elements: &[f32]) -> f32 {
        let error = |x: &f32| (self.integer(*x) as f32 - self.zero) * self.scale - x;
        elements.iter().map(|x| error(x).powi(2)).sum()
    }
}

/// The grid with the least squared error among some that cut off more or fewer of the extreme elements. With few
/// levels, a finer grid for most elements is often worth the larger errors of the extremes.
fn best_grid(elements: &[f32]) -> ValueGrid {
    let low = elements.iter().fold(0f32, |m, &x| m.min(x));
    let high = elements.iter().fold(0f32, |m, &x| m.max(x));
    let mut best = ValueGrid::spanning(low, high, 1.0);
    let mut least = best.squared_error(elements);
    for step in 1..8 {
        let grid = ValueGrid::spanning(low, high, 1.0 - 0.04 * step as f32);
        let error = grid.squared_error(elements);
        if error < least {
            (best, least) = (grid, error);
        }
    }
    best
}

impl RoundedMatrix {
    /// The bytes of the integers, zero points and scales.
    pub(super) fn byte_count(&self) -> usize {
        let zeros = self.zeros.as_ref().map_or(0, Tensor::byte_count);
        self.integers.byte_count() + self.scales.byte_count() + zeros
    }

    /// The values that calls compute with, row-major, before they are rounded to the dtype of the weight.
    pub(super) fn values(&self) -> Vec<f32> {
        let scales = self.scales.to(DType::F32);
        let scales = scales.as_slice::<f32>();
        match (&self.zeros, self.format) {
            (Some(zeros), WeightFormat::Int4 { group }) => {
                let halves = self.integers.as_slice::<u8>().iter().flat_map(|b| [b & 15, b >> 4]);
                let zeros = zeros.as_slice::<u8>();
                let value = |(i, q): (usize, u8)| (q as f32 - zeros[i / group] as f32) * scales[i / group];
                halves.enumerate().map(value).collect()
            }
            _ => {
                let rows = self.integers.as_slice::<i8>().chunks_exact(self.shape[1].max(1));
                let row = |(row, &scale): (&[i8], &f32)| row.iter().map(|&q| q as f32 * scale).collect::<Vec<_>>();
                rows.zip(scales).flat_map(row).collect()
            }
        }
    }
}

/// `|got - want| / |want|`, Euclidean norms: the error relative to the magnitude. 0 if both are equal.
pub(super) fn relative_error(got: impl IntoIterator<Item = f64>, want: impl IntoIterator<Item = f64>) -> f64 {
    let (mut error, mut size) = (0f64, 0f64);
    for (got, want) in got.into_iter().zip(want) {
        // Equal infinities have no difference.
        error += if got == want { 0.0 } else { (got - want).powi(2) };
        size += want.powi(2);
    }
    if error == 0.0 { 0.0 } else { (error / size).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rows: usize, cols: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 2654435761 % 1000) as f32 / 500.0 - 1.0) * (1.0 + (i / cols) as f32);
        (0..rows * cols).map(value).collect()
    }

    #[test]
    fn integers_are_within_half_a_step() {
        let x = sample(3, 64);
        let rounded = round_matrix(&x, [3, 64], WeightFormat::Int8);
        let scales = rounded.scales.as_slice::<f32>();
        for (i, (got, want)) in rounded.values().iter().zip(&x).enumerate() {
            assert!((got - want).abs() <= scales[i / 64] * 0.5001, "{got} {want}");
        }
        assert_eq!(rounded.byte_count(), 3 * 64 + 3 * 4);
    }

    #[test]
    fn groups_keep_zero_and_beat_the_plain_grid() {
        let mut x = sample(2, 64);
        x[5] = 0.0;
        x[70] = 40.0;
        let rounded = round_matrix(&x, [2, 64], WeightFormat::Int4 { group: 32 });
        let values = rounded.values();
        assert_eq!(values[5], 0.0);
        for (got, want) in values.chunks(32).zip(x.chunks(32)) {
            let error = |v: &[f32]| v.iter().zip(want).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            let low = want.iter().fold(0f32, |m, &x| m.min(x));
            let high = want.iter().fold(0f32, |m, &x| m.max(x));
            assert!(error(got) <= ValueGrid::spanning(low, high, 1.0).squared_error(want) * 1.0001);
        }
        assert_eq!(rounded.byte_count(), 2 * 32 + 4 + 4 * 2);
    }

    #[test]
    fn zeros_and_tiny_numbers_round_to_zero() {
        for format in [WeightFormat::Int8, WeightFormat::Int4 { group: 2 }] {
            for value in [0.0, 1e-45] {
                let rounded = round_matrix(&[value; 4], [2, 2], format);
                assert!(rounded.values().iter().all(|x| x.abs() <= 1e-45), "{format} {value}");
            }
        }
    }

    #[test]
    fn formats_parse() {
        assert_eq!(WeightFormat::parse("int4-g128"), Ok(WeightFormat::Int4 { group: 128 }));
        assert_eq!(WeightFormat::parse("int8").unwrap().to_string(), "int8");
        for wrong in ["int4-g0", "int4-g3", "int4-gx", "f32", ""] {
            assert!(WeightFormat::parse(wrong).is_err(), "{wrong}");
        }
    }
}
