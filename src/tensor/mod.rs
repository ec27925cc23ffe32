//! Host tensors: the values of the interpreter, the contents of files, and the inputs and results of a compiled
//! program.
//!
//! A [`Tensor`] is an element type, a shape, and shared storage in row-major order without gaps; views copy. Storage is
//! owned memory (64-byte aligned), a part of a mapped file, memory that a caller lends for one call, or computed when
//! it is first read. Therefore it is read-only until [`Tensor::bytes_mut`] makes it unique.

mod blocks;
mod byte_runs;
mod convert;
mod copies;
mod element;
#[cfg(feature = "compiler")]
pub(crate) mod files;
mod float8;
mod gather;
mod guard;
mod half_rows;
mod halves;
mod heap;
mod layout;
mod lost;
mod mapped;
#[cfg(feature = "ndarray")]
mod nd;
mod neighbours;
mod places;
mod product;
mod quantized;
mod rounded;
mod row_copy;
mod saved;
mod splitmix;
mod storage;
mod view;
mod wide;
mod windows;

pub(crate) use blocks::{transpose_into, transpose_tile};
pub(crate) use copies::StridedCopies;
pub use element::{Element, Scalar};
pub(crate) use element::{cells_of, cells_of_mut};
pub(crate) use gather::{IndexedBlock, Offsets, Sources, indices_within, take_elements};
pub(crate) use half_rows::{add_f16s, round_to_bf16s, round_to_f16s, widen_bf16s, widen_f16s};
pub(crate) use halves::{F16c, round_one_to_f16, round_to_bf16, round_to_f16, widen_bf16, widen_f16, widen_one_f16};
pub use heap::{BlockAllocator, CountingAllocator};
pub use layout::LayoutError;
pub(crate) use lost::{end_process, explain_lost_files};
pub(crate) use mapped::{COMPILED_MAGIC, map_file, mapped_bytes};
pub(crate) use neighbours::{Neighbours, POINTS, Reads};
pub(crate) use places::{Places, gather_weighted};
pub(crate) use product::{Factor, Product, add_product, matmul, matmul_f64, matmul_f64_strided, subtract_from_columns};
pub(crate) use quantized::{BlockValues, FEWEST_INTEGERS, MAX_ZERO, Quantized};
pub(crate) use rounded::{RealBf16, RealF16, f32_to_i32, f32_to_i32_within, f64_to_i32, f64_to_i32_within};
pub(crate) use row_copy::{copy_row, copy_rows};
pub(crate) use saved::SavedBytes;
pub use splitmix::SplitMix;
pub(crate) use storage::{ALIGN, BorrowedBytes, BytesId, Life, Storage, is_available};
pub use storage::{AlignedBytes, Prefault};
pub use view::{View, ViewMut};
pub(crate) use wide::wide_function;
pub(crate) use wide::{WideLoop, run_wide, with_wide_vectors};
pub(crate) use windows::Windows;

use crate::types::{DType, TensorType};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A dense row-major tensor with shared storage.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Arc<[usize]>,
    storage: Arc<Storage>,
}

impl Tensor {
    /// A tensor of zeros. Panics if the size in bytes overflows, and unwinds to
    /// [`catch_refusal`](crate::budget::catch_refusal) if the memory is not allowed or not available: check sizes that an
    /// input determines with [`byte_len`] and [`is_available`].
    pub fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        let bytes = byte_len(dtype, shape).expect("the size in bytes fits");
        Tensor::from_storage(dtype, shape, Storage::Owned(AlignedBytes::zeroed(bytes)))
    }

    /// Wraps storage. Panics if its length does not match the shape.
    pub fn from_storage(dtype: DType, shape: &[usize], storage: Storage) -> Tensor {
        assert_eq!(
            Some(storage.len()),
            byte_len(dtype, shape),
            "storage length of {dtype}{shape:?}"
        );
        Tensor {
            dtype,
            shape: shape.into(),
            storage: Arc::new(storage),
        }
    }

    /// A tensor with the elements of `data`. Panics if their number does not match the shape.
    pub fn from_slice<T: Element>(shape: &[usize], data: &[T]) -> Tensor {
        let mut t = Tensor::zeros(T::DTYPE, shape);
        t.as_mut_slice::<T>().copy_from_slice(data);
        t
    }

    /// A 0-d tensor.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(&[], &[value])
    }

    /// Lets the system drop the resident pages of a tensor in a mapped file; see [`Storage::release_pages`].
    pub fn release_pages(&self) {
        self.storage.release_pages();
    }

    /// Whether the elements are in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(*self.storage, Storage::Mapped { .. })
    }

    /// Advises the system how a tensor in a mapped file will be read; see [`Storage::read_sparsely`].
    pub fn read_sparsely(&self) {
        self.storage.read_sparsely();
    }

    /// [`Tensor::release_pages`] of some of its bytes.
    pub fn release_part(&self, bytes: Range<usize>) {
        self.storage.release_part(bytes);
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::with_fixed_shape(self.dtype, &self.shape)
    }

    /// The number of bytes of all elements.
    pub fn byte_count(&self) -> usize {
        self.storage.len()
    }

    /// The elements' bytes, little-endian, row-major.
    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// Calls `f` with the elements' bytes. Does not keep deferred bytes: see [`Storage::with_bytes`].
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.storage.with_bytes(f)
    }

    /// The bytes for writing. Copies them first if they are shared or mapped.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.storage).is_none_or(|s| !matches!(s, Storage::Owned(_))) {
            self.storage = Arc::new(Storage::Owned(AlignedBytes::from_slice(self.bytes())));
        }
        match Arc::get_mut(&mut self.storage) {
            Some(Storage::Owned(b)) => b.bytes_mut(),
            _ => unreachable!("storage was just made unique and owned"),
        }
    }

    /// Copies the tensor if its elements are in the memory of a caller, which is valid for one call only. Otherwise
    /// returns it unchanged.
    pub fn detach(self) -> Tensor {
        match &*self.storage {
            Storage::Borrowed(b) if b.is_of_a_call() => self.deep_copy(),
            _ => self,
        }
    }

    /// A copy of the tensor in unshared memory.
    pub fn deep_copy(&self) -> Tensor {
        let own = Storage::Owned(AlignedBytes::from_slice(self.bytes()));
        Tensor::from_storage(self.dtype, &self.shape, own)
    }

    /// The quantized matrix whose elements these are, if they are computed from one.
    pub fn quantized(&self) -> Option<&Quantized> {
        self.storage.as_quantized()
    }

    /// A token that tells, while it is kept, whether the elements are still the current ones.
    pub fn life(&self) -> Life {
        Life::of_storage(&self.storage)
    }

    /// Whether no other tensor shares the storage, so that it may be written in place.
    pub fn is_unique(&mut self) -> bool {
        matches!(Arc::get_mut(&mut self.storage), Some(Storage::Owned(_)))
    }

    /// The address of the tensor's memory for writing, if no other tensor shares it. Cheaper than
    /// [`Tensor::bytes_mut`].
    pub fn own_address(&mut self) -> Option<*mut u8> {
        let Storage::Owned(b) = &*self.storage else {
            return None;
        };
        // Nothing turns a weak reference ([`Life`]) into a strong one, so no new one appears. Whatever another thread
        // did before it dropped its reference happens before what the caller does.
        let alone = Arc::strong_count(&self.storage) == 1;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        alone.then(|| b.address())
    }

    /// The elements. Panics if `T` is not the tensor's element type.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        element::cast_slice(self.bytes())
    }

    /// The elements for writing. Panics if `T` is not the tensor's element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        element::cast_slice_mut(self.bytes_mut())
    }

    /// The element at linear index `i` as a [`Scalar`].
    pub fn get(&self, i: usize) -> Scalar {
        Scalar::read(self.dtype, self.bytes(), i)
    }

    /// Stores `v`, converted as torch casts, at linear index `i`. This makes the storage unique first, so inside a loop
    /// prefer [`Tensor::from_scalars`].
    pub fn set(&mut self, i: usize, v: Scalar) {
        let dtype = self.dtype;
        v.cast(dtype).write(self.bytes_mut(), i);
    }

    /// A tensor whose element `i` is `f(i)`, converted as torch casts.
    pub fn from_fn(dtype: DType, shape: &[usize], mut f: impl FnMut(usize) -> Scalar) -> Tensor {
        let mut t = Tensor::zeros(dtype, shape);
        let n = t.numel();
        let bytes = t.bytes_mut();
        for i in 0..n {
            f(i).cast(dtype).write(bytes, i);
        }
        t
    }

    /// A tensor of scalars, each converted as torch casts. Panics if their number does not match the shape.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: &[Scalar]) -> Tensor {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "element count");
        Tensor::from_fn(dtype, shape, |i| values[i])
    }

    /// The same elements in another shape. Panics if the numbers of elements differ.
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), self.numel(), "element count");
        let shape = match *shape == *self.shape {
            true => self.shape.clone(),
            false => shape.into(),
        };
        Tensor {
            dtype: self.dtype,
            shape,
            storage: self.storage.clone(),
        }
    }

    /// Converts every element like `Tensor.to(dtype)`.
    pub fn to(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype {
            return self.clone();
        }
        convert::convert(self, dtype).unwrap_or_else(|| Tensor::from_fn(dtype, &self.shape, |i| self.get(i)))
    }

    /// The only element of a one-element tensor, like `Tensor.item()`.
    pub fn item(&self) -> Option<Scalar> {
        (self.numel() == 1).then(|| self.get(0))
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        contiguous_strides(&self.shape)
    }

    /// Whether shape, dtype and every bit are equal.
    pub fn bit_eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

/// The row-major strides of a shape, in elements.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        // If a size is zero, the others may be arbitrarily large; nothing is read through these strides.
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// The size of a tensor in bytes, or `None` if it overflows or exceeds `isize`.
pub(crate) fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    // With a zero size the product is zero even if the other sizes overflow, so check for it first.
    if shape.contains(&0) {
        return Some(0);
    }
    let n = shape.iter().try_fold(dtype.size(), |a, &d| a.checked_mul(d))?;
    (n <= isize::MAX as usize).then_some(n)
}

/// A number of bytes in human-readable form: `12.5 KiB`.
pub(crate) fn shown_bytes(n: usize) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [", self.ty())?;
        let n = self.numel();
        for i in 0..n.min(16) {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.get(i))?;
        }
        f.write_str(if n > 16 { ", …]" } else { "]" })
    }
}

impl PartialEq for Tensor {
    /// Equal types and bits. A NaN equals itself.
    fn eq(&self, other: &Tensor) -> bool {
        self.bit_eq(other)
    }
}
