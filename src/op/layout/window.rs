//! The window of a storage that `as_strided` selects.

use crate::op::rows::spell::list_text;
use crate::op::{Call, OpError, OpResult};
use crate::types::{DType, Dim, TensorType};

/// The sizes, strides and offset passed to `as_strided`.
pub(crate) struct StridedWindow {
    /// The result's sizes.
    pub size: Vec<Dim>,
    /// The distance between neighbours along each dim.
    pub strides: Vec<Dim>,
    /// The position of the first element; if absent, that of the operand.
    pub offset: Option<Dim>,
}

impl StridedWindow {
    /// The window that a call selects.
    pub(crate) fn from_call(c: &Call<TensorType>) -> OpResult<StridedWindow> {
        let (size, strides) = (c.dims("size")?, c.dims("stride")?);
        if size.len() != strides.len() {
            return Err(OpError::shape("mismatch in length of strides and shape"));
        }
        if strides.iter().filter_map(Dim::as_const).any(|s| s < 0) {
            return Err(OpError::shape(format!(
                "as_strided: Negative strides are not supported at the moment, got strides: {}",
                list_text(&strides)
            )));
        }
        let offset = match c.is_none("storage_offset") {
            true => None,
            false => c.dims("storage_offset")?.into_iter().next(),
        };
        Ok(StridedWindow { size, strides, offset })
    }

    /// Returns an error if the window exceeds a storage of `storage` elements. Unknown sizes are not checked.
    pub(crate) fn check_bounds(&self, storage: &Dim, dtype: DType) -> OpResult<()> {
        let (size, strides) = (&self.size, &self.strides);
        let offset = self.offset.clone().unwrap_or(Dim::Const(0));
        let last = size
            .iter()
            .zip(strides)
            .fold(offset.clone(), |a, (n, s)| a.add(&n.sub(&Dim::Const(1)).mul(s)));
        let empty = size.contains(&Dim::Const(0));
        let negative = size.iter().chain([&offset]).filter_map(Dim::as_const).any(|x| x < 0);
        let outside = matches!((last.as_const(), storage.as_const()), (Some(l), Some(n)) if l >= n);
        if !negative && (!outside || empty) {
            return Ok(());
        }
        let bytes = |n: &Dim| n.mul(&Dim::Const(dtype.size() as i64));
        Err(OpError::shape(format!(
            "setStorage: sizes {}, strides {}, storage offset {offset}, and itemsize {} requiring a storage size of {} are out of \
             bounds for storage of size {}",
            list_text(size),
            list_text(strides),
            dtype.size(),
            bytes(&last.add(&Dim::Const(1))),
            bytes(storage)
        )))
    }
}
