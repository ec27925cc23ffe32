//! Conversions from and to arrays of the crate `ndarray`.

use super::{Element, LayoutError, Tensor, View};
use ndarray::{ArrayView, ArrayViewD, Dimension, IxDyn};

/// Reads the elements in place. The elements of a view with gaps, or not in row-major order, are copied.
impl<'a, T: Element, D: Dimension> From<ArrayView<'a, T, D>> for View<'a> {
    fn from(a: ArrayView<'a, T, D>) -> View<'a> {
        // SAFETY: the array is borrowed for the view's life, and its shape and strides stay within it.
        let view = unsafe { View::from_raw_parts(T::DTYPE, a.shape(), Some(a.strides()), a.as_ptr().cast()) };
        view.expect("an array has a stride for each dimension and fits the address space")
    }
}

impl Tensor {
    /// The elements as an array, or an error if `T` is not the tensor's element type.
    pub fn array<T: Element>(&self) -> Result<ArrayViewD<'_, T>, LayoutError> {
        let data = self.try_as_slice()?;
        let view = ArrayViewD::from_shape(IxDyn(self.shape()), data);
        Ok(view.expect("a tensor has its shape's elements"))
    }
}
