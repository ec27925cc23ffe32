//! Constant operands, packed when the plan is made.

use crate::math::contract::{Constant, MatMul};
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// A packed constant operand: A tile after tile, B panel after panel, each over the whole product size.
pub(crate) struct Packed {
    data: Arc<AlignedBytes>,
    /// The number of bytes in one packed matrix.
    item: usize,
    /// The number of bytes before the matrix of index 0.
    first: usize,
    /// For each batch dimension, the number of packed matrices to step over; 0 where the operand repeats.
    steps: Vec<usize>,
}

impl Packed {
    /// Packs every distinct matrix of `constant`. `strides[i]` is the operand's stride along batch dimension `i`.
    /// `pack` packs the matrix at an element offset of the constant into a destination of `item` elements. `key`
    /// identifies the packed form.
    pub(crate) fn new(
        desc: &MatMul,
        strides: &[usize],
        item: usize,
        constant: Constant,
        key: &[usize],
        pack: impl Fn(&[f32], usize, *mut f32),
    ) -> Packed {
        Packed::build(desc, strides, [item, 4], constant, key, |bytes, offset, dst| {
            pack(&to_aligned_f32(bytes), offset, dst.cast())
        })
    }

    /// As [`Packed::new`], with packed elements of 16 bits. `pack` gets the address of the constant's bytes, which is
    /// aligned for its dtype.
    pub(crate) fn in_pairs(
        desc: &MatMul,
        strides: &[usize],
        item: usize,
        constant: Constant,
        key: &[usize],
        pack: impl Fn(*const u8, usize, *mut u16),
    ) -> Packed {
        Packed::build(desc, strides, [item, 2], constant, key, |bytes, offset, dst| {
            let aligned = bytes.as_ptr().align_offset(desc.dtype.size()) == 0;
            let copy = (!aligned).then(|| AlignedBytes::from_slice(bytes));
            pack(copy.as_ref().map_or(bytes, |c| c.bytes()).as_ptr(), offset, dst.cast())
        })
    }

    /// Packs items of `item` elements of `size` bytes.
    fn build(
        desc: &MatMul,
        strides: &[usize],
        [item, size]: [usize; 2],
        constant: Constant,
        key: &[usize],
        pack: impl Fn(&[u8], usize, *mut u8),
    ) -> Packed {
        let mut steps = vec![0; strides.len()];
        // The dimensions along which the operand changes, outermost first, as sizes and strides.
        let mut dims = vec![];
        let mut count = 1;
        for i in (0..strides.len()).rev() {
            if strides[i] != 0 && desc.batch[i].size > 1 {
                steps[i] = count;
                count *= desc.batch[i].size;
                dims.insert(0, [desc.batch[i].size, strides[i]]);
            }
        }
        // If the batch is empty, there is nothing to read.
        let count = if desc.batch_size() == 0 { 0 } else { count };
        let key = [key, &[count], dims.as_flattened()].concat();
        let data = constant.get_or_pack(&key, |bytes| {
            let mut data = AlignedBytes::zeroed_in_huge_pages(item * count * size);
            let base = data.bytes_mut().as_mut_ptr();
            for index in 0..count {
                // SAFETY: `index < count`.
                pack(bytes, row_major_offset(&dims, index), unsafe {
                    base.add(index * item * size)
                });
            }
            data
        });
        let item = item * size;
        Packed::whole(data, item, steps)
    }

    fn whole(data: Arc<AlignedBytes>, item: usize, steps: Vec<usize>) -> Packed {
        Packed {
            data,
            item,
            first: 0,
            steps,
        }
    }

    /// Only packed matrix `index`, for a product without batch dims.
    pub(crate) fn single(&self, index: usize) -> Packed {
        Packed {
            data: self.data.clone(),
            item: self.item,
            first: self.first + index * self.item,
            steps: vec![],
        }
    }

    /// The packed matrix that matrix `index` of the batch uses.
    pub(crate) fn matrix_at(&self, desc: &MatMul, index: usize) -> *const f32 {
        self.bytes_at(desc, index).cast()
    }

    /// As [`Packed::matrix_at`], for elements of 16 bits.
    pub(crate) fn pairs_at(&self, desc: &MatMul, index: usize) -> *const u16 {
        self.bytes_at(desc, index).cast()
    }

    fn bytes_at(&self, desc: &MatMul, mut index: usize) -> *const u8 {
        let mut packed = 0;
        for (d, step) in desc.batch.iter().zip(&self.steps).rev() {
            packed += index % d.size * step;
            index /= d.size;
        }
        // SAFETY: `packed` is below the number of matrices packed.
        unsafe { self.data.bytes().as_ptr().add(self.first + packed * self.item) }
    }
}

/// The offset of item `index`, row-major over dimensions that are given as sizes and strides.
fn row_major_offset(dims: &[[usize; 2]], index: usize) -> usize {
    let (mut offset, mut rest) = (0, index);
    for [size, stride] in dims.iter().rev() {
        offset += rest % size * stride;
        rest /= size;
    }
    offset
}

/// Constant bytes as f32, copied only if they are not aligned.
pub(crate) fn to_aligned_f32(bytes: &[u8]) -> std::borrow::Cow<'_, [f32]> {
    // SAFETY: any bits are an f32.
    match unsafe { bytes.align_to::<f32>() } {
        ([], body, _) => body.into(),
        _ => {
            let le = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            bytes.chunks_exact(4).map(le).collect::<Vec<f32>>().into()
        }
    }
}
