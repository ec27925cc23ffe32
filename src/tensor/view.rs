//! Tensors in the caller's memory: a call reads from them and writes to them without a copy.

use super::byte_runs::ByteRuns;
use super::element::cast_slice_mut;
use super::layout::{LayoutError, check_count, is_row_major, last_element};
use super::storage::{AlignedBytes, BorrowedBytes, MemoryKeeper, Storage};
use super::{Element, Tensor, byte_len, contiguous_strides};
use crate::types::{DType, TensorType};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;

/// Sizes or strides. Few tensors have more dimensions than this, so usually no heap allocation is needed.
type Dims<T> = SmallVec<[T; 6]>;

/// A tensor in memory borrowed for reading: a dtype, a shape, strides and the address of the first element.
///
/// ```
/// use fxc::View;
///
/// let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let rows = View::from_slice(&[2, 3], &data)?;
/// let columns = View::strided(&[3, 2], &[1, 3], &data)?; // its transpose
/// assert_eq!(columns.to_tensor().as_slice::<f32>(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # let _ = rows;
/// # Ok::<(), fxc::LayoutError>(())
/// ```
#[derive(Clone)]
pub struct View<'a> {
    dtype: DType,
    shape: Dims<usize>,
    /// In elements; `None` if the elements are row-major without gaps.
    strides: Option<Dims<isize>>,
    data: *const u8,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a view only reads, like the slice that it represents.
unsafe impl Send for View<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// The elements of a slice, row-major.
    pub fn from_slice<T: Element>(shape: &[usize], data: &'a [T]) -> Result<View<'a>, LayoutError> {
        check_count(T::DTYPE, shape, data.len())?;
        Ok(View::dense(T::DTYPE, shape, data.as_ptr().cast()))
    }

    /// Bools, row-major.
    pub fn from_bools(shape: &[usize], data: &'a [bool]) -> Result<View<'a>, LayoutError> {
        check_count(DType::B8, shape, data.len())?;
        Ok(View::dense(DType::B8, shape, data.as_ptr().cast()))
    }

    /// A strided view of a slice that starts at the slice's first element. Strides are in elements.
    pub fn strided<T: Element>(shape: &[usize], strides: &[usize], data: &'a [T]) -> Result<View<'a>, LayoutError> {
        let strides: Dims<isize> = strides
            .iter()
            .map(|&s| isize::try_from(s).unwrap_or(isize::MAX))
            .collect();
        let end = last_element(T::DTYPE, shape, &strides)?;
        if end.is_none_or(|end| end >= data.len()) && !shape.contains(&0) {
            return Err(LayoutError::OutOfBounds {
                shape: shape.to_vec(),
                strides: strides.to_vec(),
                given: data.len(),
            });
        }
        // SAFETY: all elements lie within the slice, which is borrowed for the view's life.
        unsafe { View::from_raw_parts(T::DTYPE, shape, Some(&strides), data.as_ptr().cast()) }
    }

    /// Memory that another library owns. `data` is the address of the first element. Strides are in elements and may
    /// be negative; `None` means row-major without gaps. Unaligned memory is copied when it is read.
    ///
    /// # Safety
    /// All elements that the shape and strides reach must be initialised, and must be neither freed nor written while
    /// the view lives. Elements of [`DType::B8`] must be 0 or 1.
    pub unsafe fn from_raw_parts(
        dtype: DType,
        shape: &[usize],
        strides: Option<&[isize]>,
        data: *const u8,
    ) -> Result<View<'a>, LayoutError> {
        if byte_len(dtype, shape).is_none() {
            return Err(LayoutError::TooLarge(dtype, shape.to_vec()));
        }
        let mut view = View::dense(dtype, shape, data);
        if let Some(strides) = strides {
            if strides.len() != shape.len() {
                return Err(LayoutError::StrideCount {
                    rank: shape.len(),
                    strides: strides.len(),
                });
            }
            if !is_row_major(shape, strides) {
                view.strides = Some(strides.into());
            }
        }
        Ok(view)
    }

    fn dense(dtype: DType, shape: &[usize], data: *const u8) -> View<'a> {
        View {
            dtype,
            shape: shape.into(),
            strides: None,
            data,
            memory: PhantomData,
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::with_fixed_shape(self.dtype, &self.shape)
    }

    /// Copies the view to a tensor.
    pub fn to_tensor(&self) -> Tensor {
        let mut bytes = AlignedBytes::zeroed(self.byte_count());
        self.copy_to(bytes.bytes_mut());
        Tensor::from_storage(self.dtype, &self.shape, Storage::Owned(bytes))
    }

    /// Copies the elements in row-major order to memory of their size.
    pub(super) fn copy_to(&self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.byte_count(), "bytes of the copy");
        let size = self.dtype.size();
        let dense: Dims<isize> = contiguous_strides(&self.shape).iter().map(|&s| s as isize).collect();
        let strides = self.strides.as_ref().unwrap_or(&dense);
        let runs = ByteRuns::new(&self.shape, strides, size);
        if !bytes.is_empty() {
            // SAFETY: the source has all elements that shape and strides reach, and the copy has room for them.
            unsafe { runs.copy(self.data, bytes.as_mut_ptr()) };
        }
    }

    /// The address of the elements, if they are row-major and aligned. Compiled code reads such elements in place.
    pub(crate) fn dense_address(&self) -> Option<*const u8> {
        let aligned = (self.data as usize).is_multiple_of(self.dtype.size());
        (self.strides.is_none() && aligned).then_some(self.data)
    }

    /// The view as a tensor, which must not outlive it. Dense and aligned elements are not copied.
    pub(crate) fn as_tensor(&self) -> Tensor {
        match self.dense_address() {
            Some(data) => {
                // SAFETY: the view's contract. A caller that keeps the tensor for longer than a call detaches it.
                let bytes = unsafe { BorrowedBytes::new(data, self.byte_count()) };
                Tensor::from_storage(self.dtype, &self.shape, Storage::Borrowed(bytes))
            }
            None => self.to_tensor(),
        }
    }

    /// A tensor of the same elements. Dense, aligned elements stay in place, and `owner` keeps their memory valid.
    ///
    /// # Safety
    /// The memory is valid, and unchanged while code reads it, as long as the owner lives.
    pub unsafe fn to_kept_tensor(&self, owner: MemoryKeeper) -> Tensor {
        match self.dense_address() {
            Some(data) => {
                // SAFETY: guaranteed by the caller.
                let bytes = unsafe { BorrowedBytes::new(data, self.byte_count()) };
                Tensor::from_storage(self.dtype, &self.shape, Storage::Borrowed(bytes.kept_by(owner)))
            }
            None => self.to_tensor(),
        }
    }

    fn byte_count(&self) -> usize {
        // The constructors have checked this.
        byte_len(self.dtype, &self.shape).unwrap_or(0)
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_tensor().fmt(f)
    }
}

impl<'a> From<&'a Tensor> for View<'a> {
    fn from(t: &'a Tensor) -> View<'a> {
        View::dense(t.dtype(), t.shape(), t.bytes().as_ptr())
    }
}

/// A tensor in memory borrowed for writing, row-major without gaps, to which a call writes a result.
pub struct ViewMut<'a> {
    dtype: DType,
    shape: Dims<usize>,
    data: *mut u8,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is the only access to its memory, like the slice that it represents.
unsafe impl Send for ViewMut<'_> {}

impl<'a> ViewMut<'a> {
    /// The elements of a slice, row-major.
    pub fn from_slice<T: Element>(shape: &[usize], data: &'a mut [T]) -> Result<ViewMut<'a>, LayoutError> {
        check_count(T::DTYPE, shape, data.len())?;
        // SAFETY: the slice has the shape's elements, aligned, and is borrowed for the view's life.
        unsafe { ViewMut::from_raw_parts(T::DTYPE, shape, data.as_mut_ptr().cast()) }
    }

    /// Memory that another library owns; `data` is the address of the first element.
    ///
    /// # Safety
    /// The memory must have room for the shape's elements, and nothing else may read or write it while the view
    /// lives.
    pub unsafe fn from_raw_parts(dtype: DType, shape: &[usize], data: *mut u8) -> Result<ViewMut<'a>, LayoutError> {
        if byte_len(dtype, shape).is_none() {
            return Err(LayoutError::TooLarge(dtype, shape.to_vec()));
        }
        if !(data as usize).is_multiple_of(dtype.size()) {
            return Err(LayoutError::Unaligned(dtype));
        }
        Ok(ViewMut {
            dtype,
            shape: shape.into(),
            data,
            memory: PhantomData,
        })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        TensorType::with_fixed_shape(self.dtype, &self.shape)
    }

    /// The address of the first element.
    pub(crate) fn address(&mut self) -> *mut u8 {
        self.data
    }

    /// The elements' bytes, row-major, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = byte_len(self.dtype, &self.shape).expect("checked when the view was made");
        if bytes == 0 {
            return &mut [];
        }
        // SAFETY: the memory has room for the shape's elements, and this view is the only access to it.
        unsafe { std::slice::from_raw_parts_mut(self.data, bytes) }
    }

    /// The elements for writing. Panics if `T` is not the element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        cast_slice_mut(self.bytes_mut())
    }

    /// Copies a tensor of the same type into the memory.
    pub(crate) fn fill_from(&mut self, t: &Tensor) {
        assert!(
            t.dtype() == self.dtype && t.shape() == &self.shape[..],
            "the types were compared"
        );
        // SAFETY: the memory has room for the tensor's elements, and belongs to no tensor.
        unsafe { std::ptr::copy_nonoverlapping(t.bytes().as_ptr(), self.data, t.byte_count()) };
    }
}

impl<'a> From<&'a mut Tensor> for ViewMut<'a> {
    fn from(t: &'a mut Tensor) -> ViewMut<'a> {
        let (dtype, shape) = (t.dtype(), t.shape().into());
        ViewMut {
            dtype,
            shape,
            data: t.bytes_mut().as_mut_ptr(),
            memory: PhantomData,
        }
    }
}

/// Variants of [`Tensor`]'s functions that return an error instead of panicking.
impl Tensor {
    /// [`Tensor::from_slice`], or an error if the shape and the slice differ in their number of elements.
    pub fn try_from_slice<T: Element>(shape: &[usize], data: &[T]) -> Result<Tensor, LayoutError> {
        check_count(T::DTYPE, shape, data.len())?;
        Ok(Tensor::from_slice(shape, data))
    }

    /// [`Tensor::as_slice`], or an error if `T` is not the tensor's element type.
    pub fn try_as_slice<T: Element>(&self) -> Result<&[T], LayoutError> {
        self.check_dtype(T::DTYPE).map(|()| self.as_slice())
    }

    /// [`Tensor::as_mut_slice`], or an error if `T` is not the tensor's element type.
    pub fn try_as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], LayoutError> {
        self.check_dtype(T::DTYPE).map(|()| self.as_mut_slice())
    }

    /// [`Tensor::reshape`], or an error if the new shape has a different number of elements.
    pub fn try_reshape(&self, shape: &[usize]) -> Result<Tensor, LayoutError> {
        check_count(self.dtype(), shape, self.numel())?;
        Ok(self.reshape(shape))
    }

    fn check_dtype(&self, asked: DType) -> Result<(), LayoutError> {
        let is = self.dtype();
        if is == asked {
            Ok(())
        } else {
            Err(LayoutError::WrongDtype { is, asked })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_memory_is_read_in_the_order_of_the_shape() {
        let data: Vec<i32> = (0..24).collect();
        let t = View::strided(&[2, 3], &[12, 2], &data).unwrap().to_tensor();
        assert_eq!(t.as_slice::<i32>(), [0, 2, 4, 12, 14, 16]);
        let t = View::strided(&[4, 2, 1, 3], &[0, 6, 99, 1], &data[..12]);
        assert!(t.is_ok_and(|v| v.to_tensor().as_slice::<i32>()[..6] == [0, 1, 2, 6, 7, 8]));
        // SAFETY: the elements 23, 22, … 0 are exactly those of the slice.
        let back = unsafe { View::from_raw_parts(DType::I32, &[24], Some(&[-1]), data[23..].as_ptr().cast()) };
        let back = back.unwrap();
        assert_eq!(back.to_tensor().as_slice::<i32>()[..3], [23, 22, 21]);
        assert!(back.dense_address().is_none());
    }

    #[test]
    fn dense_memory_is_not_copied() {
        let data = [1.0f64, 2.0];
        for shape in [vec![2], vec![1, 2], vec![2, 1, 1]] {
            let v = View::from_slice(&shape, &data).unwrap();
            assert_eq!(v.as_tensor().bytes().as_ptr(), data.as_ptr().cast());
            assert_ne!(v.as_tensor().detach().bytes().as_ptr(), data.as_ptr().cast());
        }
        let v = View::strided(&[1, 2], &[77, 1], &data);
        // The stride of a single row is unused, so it may have any value.
        assert!(v.unwrap().dense_address().is_some());
        let none: [f32; 0] = [];
        assert_eq!(View::from_slice(&[0, 3], &none).unwrap().as_tensor().numel(), 0);
    }

    #[test]
    fn memory_that_is_not_aligned_is_copied() {
        let words = [0x0100_0000u32.to_le_bytes(), [2, 0, 0, 0]].concat();
        let t = Tensor::from_slice(&[8], &words);
        // SAFETY: the four bytes starting at the fourth are within the tensor.
        let v = unsafe { View::from_raw_parts(DType::I32, &[1], None, t.bytes()[3..].as_ptr()) }.unwrap();
        assert_eq!(v.as_tensor().as_slice::<i32>(), [0x0000_0201]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let data = [0f32; 6];
        let count = |shape: &[usize]| View::from_slice(shape, &data).err();
        assert!(matches!(count(&[7]), Some(LayoutError::ElementCount { given: 6, .. })));
        assert!(matches!(count(&[usize::MAX, 3]), Some(LayoutError::TooLarge(..))));
        let strided = |shape: &[usize], strides: &[usize]| View::strided(shape, strides, &data).err();
        assert!(matches!(
            strided(&[2, 3], &[4, 1]),
            Some(LayoutError::OutOfBounds { .. })
        ));
        assert!(matches!(
            strided(&[2], &[usize::MAX]),
            Some(LayoutError::OutOfBounds { .. })
        ));
        assert!(matches!(strided(&[2], &[1, 1]), Some(LayoutError::StrideCount { .. })));
        assert_eq!(strided(&[2, 0], &[100, 1]), None);
        let t = Tensor::from_slice(&[6], &data);
        assert!(t.try_as_slice::<i64>().is_err() && t.try_as_slice::<f32>().is_ok());
        assert!(t.try_reshape(&[2, 3]).is_ok() && t.try_reshape(&[4]).is_err());
        assert!(Tensor::try_from_slice(&[2, 2], &data).is_err());
        assert!(LayoutError::Unaligned(DType::F32).to_string().contains("f32"));
    }
}
