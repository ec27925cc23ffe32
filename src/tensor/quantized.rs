//! Matrices of numbers that are stored as integers with a scale.

use super::storage::{AlignedBytes, Storage};
use super::{Scalar, Tensor};
use crate::types::DType;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The number of elements from which weights stay integers. Smaller ones are folded to floats.
pub(crate) const FEWEST_INTEGERS: usize = 1 << 8;

/// The greatest magnitude of a zero point. An integer minus a zero point then fits 16 bits.
pub(crate) const MAX_ZERO: i64 = 1 << 14;

/// A matrix whose element `(i, j)` is `(integer(i, j) - zero(i, j)) * scale(i, j)`, rounded to `dtype` after each
/// operation, as torch computes it.
pub struct Quantized {
    /// The integers, i8 or u8.
    pub integers: Tensor,
    /// The strides of the integers along the rows and the columns of the matrix.
    pub strides: [usize; 2],
    /// The sizes of the matrix.
    pub shape: [usize; 2],
    /// The zero points, of an integer dtype and at most [`MAX_ZERO`]; 0 if absent.
    pub zero: Option<BlockValues>,
    /// The scales, of a float dtype; 1 if absent.
    pub scale: Option<BlockValues>,
    /// The dtype of the elements: f32, f16 or bf16.
    pub dtype: DType,
}

/// One value for each block of a matrix.
#[derive(Clone)]
pub struct BlockValues {
    /// The values.
    pub values: Tensor,
    /// The position of the first block's value.
    pub offset: usize,
    /// The rows and columns of a block. A block spans a dim in which its stride is 0.
    pub block: [usize; 2],
    /// The strides of the values along the blocks.
    pub strides: [usize; 2],
}

impl BlockValues {
    /// The value of the block that contains element `(i, j)`.
    pub fn value_at(&self, i: usize, j: usize) -> Scalar {
        let [rows, cols] = self.block;
        let [down, across] = self.strides;
        self.values.get(self.offset + i / rows * down + j / cols * across)
    }

    /// Subtracts the values of a line along dim `inner` from its elements.
    fn subtract_from_line(&self, inner: usize, index: usize, line: &mut [i16]) {
        let run = match self.strides[inner] {
            0 => line.len(),
            _ => self.block[inner],
        };
        for (block, part) in line.chunks_mut(run.max(1)).enumerate() {
            let mut indices = [index; 2];
            indices[inner] = block * run;
            let zero = self.value_at(indices[0], indices[1]).to_i64() as i16;
            part.iter_mut().for_each(|x| *x -= zero);
        }
    }

    /// Numbers that identify the values and their blocks. Values in memory are identified by their contents: nothing
    /// keeps them alive as long as the integers, so their address may be used again.
    fn identity(&self) -> Vec<u64> {
        let place = [
            self.offset,
            self.block[0],
            self.block[1],
            self.strides[0],
            self.strides[1],
        ];
        let mut numbers: Vec<u64> = place.into_iter().map(|n| n as u64).collect();
        if self.values.is_mapped() {
            numbers.extend(self.values.life().bytes_id().numbers());
        } else {
            let mut hasher = DefaultHasher::new();
            self.values.with_bytes(|b| b.hash(&mut hasher));
            numbers.extend([self.values.numel() as u64, hasher.finish()]);
        }
        numbers
    }
}

impl Quantized {
    /// The dim along which the integers are closest to each other in memory.
    pub fn inner_dim(&self) -> usize {
        (self.strides[1] <= self.strides[0]) as usize
    }

    /// Calls `f` with each line along [`Quantized::inner_dim`]: its index in the other dim, and its integers minus
    /// their zero points.
    pub fn for_each_line(&self, mut f: impl FnMut(usize, &[i16])) {
        let inner = self.inner_dim();
        let mut difference = vec![0i16; self.shape[inner]];
        self.for_each_stored_line(|index, line| match &self.zero {
            Some(zero) => {
                difference.copy_from_slice(line);
                zero.subtract_from_line(inner, index, &mut difference);
                f(index, &difference);
            }
            None => f(index, line),
        });
    }

    /// [`Quantized::for_each_line`] with the integers as they are stored.
    pub fn for_each_stored_line(&self, mut f: impl FnMut(usize, &[i16])) {
        let inner = self.inner_dim();
        let (count, len) = (self.shape[1 - inner], self.shape[inner]);
        let (step, stride) = (self.strides[1 - inner], self.strides[inner]);
        let signed = self.integers.dtype() == DType::I8;
        let mut line = vec![0i16; len];
        self.integers.with_bytes(|bytes| {
            for index in 0..count {
                for (x, at) in line.iter_mut().zip((index * step..).step_by(stride.max(1))) {
                    *x = if signed {
                        bytes[at] as i8 as i16
                    } else {
                        bytes[at] as i16
                    };
                }
                f(index, &line);
            }
        });
    }

    /// The same integers and zero points with a scale of 1.
    pub fn without_scale(&self) -> Quantized {
        Quantized {
            integers: self.integers.clone(),
            zero: self.zero.clone(),
            scale: None,
            ..*self
        }
    }

    /// The scale at `(i, j)`.
    pub fn scale_at(&self, i: usize, j: usize) -> f32 {
        self.scale.as_ref().map_or(1.0, |s| s.value_at(i, j).to_f64() as f32)
    }

    /// The zero point at `(i, j)`.
    pub fn zero_at(&self, i: usize, j: usize) -> i16 {
        self.zero.as_ref().map_or(0, |z| z.value_at(i, j).to_i64() as i16)
    }

    /// The number of consecutive elements along `dim` that share a zero point.
    pub fn zero_run(&self, dim: usize) -> usize {
        run_of(&self.zero, dim, self.shape[dim])
    }

    /// The number of consecutive elements along `dim` that share a scale.
    pub fn scale_run(&self, dim: usize) -> usize {
        run_of(&self.scale, dim, self.shape[dim])
    }

    /// The matrix as a tensor of shape `shape`, whose elements are computed when they are first read. `None` if the
    /// sizes do not match.
    pub fn into_tensor(self, shape: &[usize]) -> Option<Tensor> {
        let (dtype, len) = (self.dtype, super::byte_len(self.dtype, shape)?);
        let numel = self.shape[0].checked_mul(self.shape[1])?;
        if shape.iter().product::<usize>() != numel {
            return None;
        }
        let identity = self.identity();
        let storage = Storage::quantized(Arc::new(self), identity, len);
        Some(Tensor::from_storage(dtype, shape, storage))
    }

    /// Numbers that, with the integers, identify the elements.
    fn identity(&self) -> Arc<[u64]> {
        let sizes = [
            self.strides[0],
            self.strides[1],
            self.shape[0],
            self.shape[1],
            self.dtype as usize,
        ];
        let mut numbers: Vec<u64> = sizes.into_iter().map(|n| n as u64).collect();
        for part in [&self.zero, &self.scale] {
            numbers.push(part.is_some() as u64);
            numbers.extend(part.iter().flat_map(BlockValues::identity));
        }
        numbers.into()
    }

    /// The bytes of the elements.
    pub(super) fn compute_bytes(&self) -> AlignedBytes {
        let [rows, cols] = self.shape;
        let mut out = AlignedBytes::zeroed(rows * cols * self.dtype.size());
        let bytes = out.bytes_mut();
        let inner = self.inner_dim();
        let step = if inner == 1 { 1 } else { cols };
        let run = self.scale_run(inner).max(1);
        let round = |x: f32| Scalar::from_f64(self.dtype, x as f64);
        self.for_each_line(|index, line| {
            for (block, integers) in line.chunks(run).enumerate() {
                let mut first = [index; 2];
                first[inner] = block * run;
                let scale = self.scale_at(first[0], first[1]);
                let place = first[0] * cols + first[1];
                for (k, &x) in integers.iter().enumerate() {
                    // torch rounds after each operation. A scale of 1 rounds nothing.
                    let x = round(round(x as f32).to_f64() as f32 * scale);
                    x.write(bytes, place + k * step);
                }
            }
        });
        out
    }
}

/// The number of consecutive elements along `dim`, which has `size`, that share a value.
fn run_of(values: &Option<BlockValues>, dim: usize, size: usize) -> usize {
    match values {
        Some(v) if v.strides[dim] != 0 => v.block[dim],
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(scales: &[f32]) -> Tensor {
        let scale = BlockValues {
            values: Tensor::from_slice(&[2, 2], scales),
            offset: 0,
            block: [1, 2],
            strides: [2, 1],
        };
        let quantized = Quantized {
            integers: Tensor::from_slice(&[2, 4], &[1i8, 2, 3, 4, -1, -2, -3, -4]),
            strides: [4, 1],
            shape: [2, 4],
            zero: Some(BlockValues {
                values: Tensor::scalar(1i64),
                offset: 0,
                block: [1, 1],
                strides: [0, 0],
            }),
            scale: Some(scale),
            dtype: DType::F32,
        };
        quantized.into_tensor(&[2, 4]).unwrap()
    }

    #[test]
    fn elements_are_scaled_differences() {
        let t = matrix(&[1.0, 10.0, 0.5, 2.0]);
        assert_eq!(t.as_slice::<f32>(), [0.0, 1.0, 20.0, 30.0, -1.0, -1.5, -8.0, -10.0]);
    }

    #[test]
    fn the_order_of_the_integers_does_not_change_elements() {
        let values = [3i8, -7, 100, 5, -128, 127];
        for (strides, shape, block) in [
            ([3, 1], [2, 3], [1, 2]),
            ([1, 2], [2, 3], [1, 2]),
            ([1, 3], [3, 2], [2, 1]),
        ] {
            let blocks = |values: Tensor| BlockValues {
                values,
                offset: 0,
                block,
                strides: [1, 2],
            };
            let quantized = Quantized {
                integers: Tensor::from_slice(&[6], &values),
                strides,
                shape,
                zero: Some(blocks(Tensor::from_slice(&[4], &[1i64, -2, 3, 0]))),
                scale: Some(blocks(Tensor::from_slice(&[4], &[0.5f32, 3.0, 0.1, 7.0]))),
                dtype: DType::BF16,
            };
            let elements = quantized.compute_bytes();
            for (i, j) in (0..shape[0]).flat_map(|i| (0..shape[1]).map(move |j| (i, j))) {
                let zero = quantized.zero.as_ref().unwrap().value_at(i, j).to_i64();
                let integer = values[i * strides[0] + j * strides[1]] as i64;
                let centred = Scalar::from_f64(DType::BF16, (integer - zero) as f64);
                let product = centred.to_f64() as f32 * quantized.scale_at(i, j);
                let mut want = [0; 2];
                Scalar::from_f64(DType::BF16, product as f64).write(&mut want, 0);
                let place = 2 * (i * shape[1] + j);
                assert_eq!(elements.bytes()[place..place + 2], want, "{strides:?} {i} {j}");
            }
        }
    }

    #[test]
    fn other_scales_are_other_elements() {
        let (a, b) = (matrix(&[1.0; 4]), matrix(&[2.0; 4]));
        assert_ne!(a.life().bytes_id(), b.life().bytes_id());
    }

    #[test]
    fn sizes_must_match() {
        let quantized = matrix(&[1.0; 4]).quantized().map(|q| q.shape);
        assert_eq!(quantized, Some([2, 4]));
        assert!(Tensor::from_slice(&[1], &[1.0f32]).quantized().is_none());
    }
}
