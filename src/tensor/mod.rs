//! Host tensors: what the interpreter computes with, what files hold, and what goes into and comes out of a compiled
//! program.
//!
//! A [`Tensor`] is an element type, a shape, and shared storage in row-major order without gaps; views copy. Storage is
//! owned memory (64-byte aligned), a part of a mapped file, a caller's for one call, or computed when it is first read, which is why it is read-only until [`Tensor::bytes_mut`]
//! makes it unique.

mod element;
pub mod files;
mod float8;
mod layout;
#[cfg(feature = "ndarray")]
mod nd;
mod product;
mod splitmix;
mod storage;
mod view;

pub use element::{Element, Scalar};
pub use layout::LayoutError;
pub use product::{matmul_f64, matmul_f64_strided};
pub use splitmix::SplitMix;
pub use storage::{ALIGN, AlignedBytes, BorrowedBytes, BytesId, Life, Storage, is_available};
pub use view::{View, ViewMut};

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
    /// A tensor of zeros. Panics if the size in bytes overflows, and ends the program if the system has not so much memory:
    /// check sizes that an input decides with [`byte_len`] and [`is_available`].
    pub fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        let bytes = byte_len(dtype, shape).expect("the size in bytes fits");
        Tensor::from_storage(dtype, shape, Storage::Owned(AlignedBytes::zeroed(bytes)))
    }

    /// Wraps storage. Panics if its length is not the shape's.
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

    /// A tensor of the elements of `data`. Panics if their count is not the shape's.
    pub fn from_slice<T: Element>(shape: &[usize], data: &[T]) -> Tensor {
        let mut t = Tensor::zeros(T::DTYPE, shape);
        t.as_mut_slice::<T>().copy_from_slice(data);
        t
    }

    /// A 0-d tensor.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(&[], &[value])
    }

    /// Lets the system drop what is resident of a tensor in a mapped file; see [`Storage::release_pages`].
    pub fn release_pages(&self) {
        self.storage.release_pages();
    }

    /// Whether the elements lie in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(*self.storage, Storage::Mapped { .. })
    }

    /// Says how a tensor in a mapped file will be read; see [`Storage::read_sparsely`].
    pub fn read_sparsely(&self) {
        self.storage.read_sparsely();
    }

    /// [`Tensor::release_pages`] of some of its bytes.
    pub fn release_part(&self, bytes: Range<usize>) {
        self.storage.release_part(bytes);
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
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

    /// How many bytes the elements have.
    pub fn byte_count(&self) -> usize {
        self.storage.len()
    }

    /// The elements' bytes, little-endian, row-major.
    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// `f` of the elements' bytes, without keeping those that are computed late: see [`Storage::with_bytes`].
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.storage.with_bytes(f)
    }

    /// The bytes for writing; copies them first if they are shared or mapped.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.storage).is_none_or(|s| !matches!(s, Storage::Owned(_))) {
            self.storage = Arc::new(Storage::Owned(AlignedBytes::from_slice(self.bytes())));
        }
        match Arc::get_mut(&mut self.storage) {
            Some(Storage::Owned(b)) => b.bytes_mut(),
            _ => unreachable!("storage was just made unique and owned"),
        }
    }

    /// The tensor in memory of its own if the elements are a caller's, which lasts for one call; else the tensor.
    pub fn detach(self) -> Tensor {
        match &*self.storage {
            Storage::Borrowed(b) if b.is_of_a_call() => self.deep_copy(),
            _ => self,
        }
    }

    /// The tensor in memory that nothing else shares.
    pub fn deep_copy(&self) -> Tensor {
        let own = Storage::Owned(AlignedBytes::from_slice(self.bytes()));
        Tensor::from_storage(self.dtype, &self.shape, own)
    }

    /// Tells as long as it is kept whether the elements are still those of now.
    pub fn life(&self) -> Life {
        Life::of_storage(&self.storage)
    }

    /// Whether no other tensor shares the storage and it may be written in place.
    pub fn is_unique(&mut self) -> bool {
        matches!(Arc::get_mut(&mut self.storage), Some(Storage::Owned(_)))
    }

    /// The address for writing of memory that this tensor alone has, if it has such: cheaper than [`Tensor::bytes_mut`].
    pub fn own_address(&mut self) -> Option<*mut u8> {
        let Storage::Owned(b) = &*self.storage else {
            return None;
        };
        // Nothing makes a strong reference of a weak one ([`Life`]), so no new one appears. What another thread did
        // before it gave up its own happens before what the caller does.
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

    /// Stores `v`, converted as torch casts, at linear index `i`. Makes the storage unique first, so inside a loop
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

    /// A tensor of scalars, each converted as torch casts. Panics if their count is not the shape's.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: &[Scalar]) -> Tensor {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "element count");
        Tensor::from_fn(dtype, shape, |i| values[i])
    }

    /// The same elements in another shape. Panics if the element counts differ.
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

    /// Every element converted as `Tensor.to(dtype)` does.
    pub fn to(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype {
            return self.clone();
        }
        Tensor::from_fn(dtype, &self.shape, |i| self.get(i))
    }

    /// The only element of a one-element tensor, as `Tensor.item()`.
    pub fn item(&self) -> Option<Scalar> {
        (self.numel() == 1).then(|| self.get(0))
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        contiguous_strides(&self.shape)
    }

    /// Whether shape, dtype and every bit are the same.
    pub fn bit_eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

/// Row-major strides, in elements, of a shape.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        // A tensor without elements may have any sizes beside its zero; nothing is read by its strides.
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// The bytes a tensor takes, or `None` if the product overflows (or is beyond `isize`).
pub fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    // A zero size makes the whole product zero, but only if the others do not overflow first: check in that order.
    if shape.contains(&0) {
        return Some(0);
    }
    let n = shape.iter().try_fold(dtype.size(), |a, &d| a.checked_mul(d))?;
    (n <= isize::MAX as usize).then_some(n)
}

/// A number of bytes as a person writes it: `12.5 KiB`.
pub fn shown_bytes(n: usize) -> String {
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
    /// Equal types and bits; NaN equals itself.
    fn eq(&self, other: &Tensor) -> bool {
        self.bit_eq(other)
    }
}
