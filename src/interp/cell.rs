//! Values that may share memory.
//!
//! Host tensors copy; torch's views do not: after `y = x.view(-1); y.add_(1)` the change is visible through `x`. A
//! [`TensorCell`] is a tensor with the storage that it views and its location in it. A write goes to the storage, and
//! every other cell of that storage gathers its elements again when it is next read.

mod place;

use self::place::place_elements;
use crate::op::layout::{Layout, StridedWindow, reshape_strides};
use crate::op::sharing::{expanded_write_error, is_expanded, may_share};
use crate::op::view::{compose_affine, strided_positions};
use crate::op::{IndexMap, OpError, OpResult, View};
use crate::tensor::{Tensor, contiguous_strides};
use crate::types::{Dim, TensorType};
use std::cell::RefCell;
use std::rc::Rc;

/// Memory that cells share: its elements in a row, and the number of writes so far.
struct CellStorage {
    data: Tensor,
    version: u64,
}

/// A tensor and its location in a storage.
#[derive(Clone)]
pub struct TensorCell {
    tensor: Tensor,
    storage: Rc<RefCell<CellStorage>>,
    version: u64,
    offset: i64,
    strides: Vec<i64>,
    /// The identity of the Python object: the result of an in-place call is the same object as the tensor that was
    /// written.
    object: Rc<()>,
}

impl TensorCell {
    /// A tensor with a storage of its own.
    pub fn new(tensor: Tensor) -> TensorCell {
        let data = tensor.reshape(&[tensor.numel()]);
        let strides = contiguous_strides(tensor.shape())
            .into_iter()
            .map(|s| s as i64)
            .collect();
        TensorCell {
            tensor,
            storage: Rc::new(RefCell::new(CellStorage { data, version: 0 })),
            version: 0,
            offset: 0,
            strides,
            object: Rc::new(()),
        }
    }

    /// A tensor with a storage of its own, stored as `layout` specifies: a permutation of its dims without gaps.
    pub fn laid_out(tensor: Tensor, layout: Option<&Layout>) -> TensorCell {
        let mut cell = TensorCell::new(tensor);
        let Some(strides) = layout.and_then(Layout::known_strides) else {
            return cell;
        };
        if strides == cell.strides || cell.tensor.numel() == 0 {
            return cell;
        }
        let mut data = Tensor::zeros(cell.tensor.dtype(), &[cell.tensor.numel()]);
        place_elements(&cell.tensor, &strides, data.bytes_mut());
        cell.storage = Rc::new(RefCell::new(CellStorage { data, version: 0 }));
        cell.strides = strides;
        cell
    }

    /// The memory layout of the elements.
    pub fn layout(&self) -> Layout {
        let storage = self.storage.borrow().data.bytes().len() / self.tensor.dtype().size();
        Layout::from_constants(self.offset, &self.strides, storage)
    }

    /// Whether both are the same Python object, so that changing the shape of one changes the other.
    pub fn is_same(&self, other: &TensorCell) -> bool {
        Rc::ptr_eq(&self.object, &other.object)
    }

    /// Whether a write to one may show in the other.
    #[cfg(test)]
    pub fn shares_with(&self, other: &TensorCell) -> bool {
        Rc::ptr_eq(&self.storage, &other.storage)
    }

    /// The cell `new`, as the same Python object as this cell.
    pub fn with_value(&self, new: &TensorCell) -> TensorCell {
        TensorCell {
            object: self.object.clone(),
            ..new.clone()
        }
    }

    /// The cell with a copy of its whole storage (torch's `clone_preserve_strides`).
    pub fn with_own_storage(&self) -> TensorCell {
        let storage = self.storage.borrow();
        TensorCell {
            storage: Rc::new(RefCell::new(CellStorage {
                data: storage.data.clone(),
                version: self.version,
            })),
            object: Rc::new(()),
            ..self.clone()
        }
    }

    /// The cell with the current elements of its storage.
    pub fn fresh(&self) -> TensorCell {
        let mut cell = self.clone();
        let storage = self.storage.borrow();
        if storage.version != self.version {
            cell.tensor = gather_elements(&storage.data, &self.ty(), self.offset, &self.strides);
            cell.version = storage.version;
        }
        cell
    }

    /// The elements. They are current if the cell is [`TensorCell::fresh`].
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Whether the cell's storage was written to, through this cell or another.
    pub fn is_written(&self) -> bool {
        self.storage.borrow().version > 0
    }

    /// A view of the bytes as another dtype. `tensor` holds its elements.
    pub fn view_as_dtype(&self, tensor: Tensor) -> OpResult<TensorCell> {
        let (from, to) = (self.tensor.dtype().size() as i64, tensor.dtype().size() as i64);
        let fits = |x: &i64| x * from % to == 0;
        let (last, outer) = self.strides.split_last().map_or((1, &[][..]), |(l, o)| (*l, o));
        let refuse = |reason: String| Err(OpError::shape(format!("{reason} (different element sizes)")));
        if from != to && last != 1 && tensor.numel() > 0 {
            return refuse(format!(
                "self.stride(-1) must be 1 to view {} as {}",
                self.tensor.dtype().scalar_type_name(),
                tensor.dtype().scalar_type_name()
            ));
        }
        if from != to && !(fits(&self.offset) && outer.iter().all(fits)) {
            return refuse("self.storage_offset() and self.stride() must be divisible by the ratio of sizes".into());
        }
        let scaled = |x: &i64| x * from / to;
        let mut strides: Vec<i64> = outer.iter().map(scaled).collect();
        strides.extend((!self.strides.is_empty()).then_some(last));
        Ok(TensorCell {
            storage: self.storage.clone(),
            version: self.version,
            offset: scaled(&self.offset),
            strides,
            tensor,
            object: Rc::new(()),
        })
    }

    /// The type.
    pub fn ty(&self) -> TensorType {
        self.tensor.ty()
    }

    /// Whether torch detects that elements share memory.
    pub fn is_expanded(&self) -> bool {
        is_expanded(&self.ty().shape.unwrap_or_default(), &self.layout().strides)
    }

    /// Whether the elements are in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let shape = self.tensor.shape();
        let want = contiguous_strides(shape);
        shape.contains(&0) || (0..shape.len()).all(|d| shape[d] == 1 || self.strides[d] == want[d] as i64)
    }

    /// A view. It shares the storage where torch's would: always, except for a reshape that no strides can express.
    pub fn view(&self, view: &View) -> OpResult<TensorCell> {
        if let IndexMap::Strided { offset, strides } = &view.map {
            return self.strided_window(&view.shape, offset.unwrap_or(self.offset), strides);
        }
        let tensor = apply_view(&self.tensor, view)?;
        let place = match &view.map {
            IndexMap::Reshape => {
                reshape_strides(self.tensor.shape(), &self.strides, &view.shape).map(|s| (self.offset, s))
            }
            IndexMap::Strided { .. } => None,
            IndexMap::Affine(map) => {
                let (offset, mut strides) = compose_affine(map, self.offset, &self.strides, view.shape.len());
                let mut used = vec![false; view.shape.len()];
                map.iter().flat_map(|x| &x.terms).for_each(|&(d, _)| used[d] = true);
                // As in torch, the stride of a new dim of size one spans the dims inside it.
                let mut step = 1;
                for (d, &n) in view.shape.iter().enumerate().rev() {
                    if !used[d] && n == 1 {
                        strides[d] = step;
                    }
                    step = strides[d].saturating_mul(n.max(1) as i64);
                }
                Some((offset, strides))
            }
        };
        let Some((offset, strides)) = place else {
            return Ok(TensorCell::new(tensor));
        };
        Ok(TensorCell {
            tensor,
            storage: self.storage.clone(),
            version: self.version,
            offset,
            strides,
            object: Rc::new(()),
        })
    }

    /// Any sizes and strides over the storage (torch's `as_strided`).
    fn strided_window(&self, shape: &[usize], offset: i64, strides: &[i64]) -> OpResult<TensorCell> {
        let storage = self.storage.borrow();
        let dtype = self.tensor.dtype();
        let window = StridedWindow {
            size: shape.iter().map(|&n| Dim::from(n)).collect(),
            strides: strides.iter().map(|&s| Dim::Const(s)).collect(),
            offset: Some(Dim::Const(offset)),
        };
        window.check_bounds(&Dim::from(storage.data.bytes().len() / dtype.size()), dtype)?;
        if crate::tensor::byte_len(dtype, shape).is_none() {
            return Err(OpError::shape(format!(
                "the size of a view of shape {shape:?} overflows"
            )));
        }
        Ok(TensorCell {
            tensor: gather_elements(
                &storage.data,
                &TensorType::with_fixed_shape(dtype, shape),
                offset,
                strides,
            ),
            storage: self.storage.clone(),
            version: storage.version,
            offset,
            strides: strides.to_vec(),
            object: Rc::new(()),
        })
    }

    /// Writes `value`, which has the cell's type, to the cell's location in the storage. `shared`: where elements share
    /// memory, only the changed ones are stored. Otherwise such a write is an error if torch detects it.
    pub fn write(&self, value: &Tensor, shared: bool) -> OpResult<TensorCell> {
        let shape = self.tensor.shape();
        let (dims, layout) = (value.ty().shape.unwrap_or_default(), self.layout());
        let shares = may_share(&dims, &layout.strides);
        if shares && !shared && is_expanded(&dims, &layout.strides) {
            return Err(expanded_write_error());
        }
        let mut storage = self.storage.borrow_mut();
        let size = self.tensor.dtype().size();
        let (source, old) = (value.bytes(), self.tensor.bytes());
        let target = storage.data.bytes_mut();
        strided_positions(shape, self.offset, &self.strides, &mut |i, p| {
            let new = &source[i * size..(i + 1) * size];
            if !shares || new != &old[i * size..(i + 1) * size] {
                target[p * size..(p + 1) * size].copy_from_slice(new);
            }
        });
        storage.version += 1;
        let mut cell = self.clone();
        cell.tensor = match shares {
            true => gather_elements(&storage.data, &self.ty(), self.offset, &self.strides),
            false => value.clone(),
        };
        cell.version = storage.version;
        Ok(cell)
    }
}

/// The elements of a view.
pub fn apply_view(t: &Tensor, view: &View) -> OpResult<Tensor> {
    let numel = view.shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d));
    if view.map == IndexMap::Reshape {
        if numel != Some(t.numel()) {
            return Err(OpError::shape(format!(
                "shape '{:?}' is invalid for input of size {}",
                view.shape,
                t.numel()
            )));
        }
        return Ok(t.reshape(&view.shape));
    }
    if crate::tensor::byte_len(t.dtype(), &view.shape).is_none() {
        return Err(OpError::shape(format!(
            "the size of a view of shape {:?} overflows",
            view.shape
        )));
    }
    let (offset, strides) = view.offset_and_strides(t.shape());
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&n, &s) in view.shape.iter().zip(&strides) {
        let reach = (n as i128 - 1) * s as i128;
        if reach < 0 { low += reach } else { high += reach }
    }
    if numel != Some(0) && (low < 0 || high >= t.numel() as i128) {
        return Err(OpError::shape(format!(
            "a view of sizes {:?}, strides {strides:?} and storage offset {offset} is out of bounds for storage of size {}",
            view.shape,
            t.numel()
        )));
    }
    Ok(gather_elements(
        t,
        &TensorType::with_fixed_shape(t.dtype(), &view.shape),
        offset,
        &strides,
    ))
}

/// Gathers elements of `data`, read as elements of the type, at `offset + Σ index[d] * strides[d]`, which must be in
/// bounds.
fn gather_elements(data: &Tensor, ty: &TensorType, offset: i64, strides: &[i64]) -> Tensor {
    fn gather_chunks<const N: usize>(data: &[u8], out: &mut [u8], shape: &[usize], offset: i64, strides: &[i64]) {
        let (data, _) = data.as_chunks::<N>();
        let (out, _) = out.as_chunks_mut::<N>();
        strided_positions(shape, offset, strides, &mut |i, p| out[i] = data[p]);
    }
    let shape = &ty.fixed_shape().unwrap_or_default();
    let mut out = Tensor::zeros(ty.dtype, shape);
    let (src, dst) = (data.bytes(), out.bytes_mut());
    match ty.dtype.size() {
        1 => gather_chunks::<1>(src, dst, shape, offset, strides),
        2 => gather_chunks::<2>(src, dst, shape, offset, strides),
        4 => gather_chunks::<4>(src, dst, shape, offset, strides),
        8 => gather_chunks::<8>(src, dst, shape, offset, strides),
        _ => gather_chunks::<16>(src, dst, shape, offset, strides),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_through_a_view_of_a_view_is_seen_by_all() {
        let base = TensorCell::new(Tensor::from_slice(&[2, 3], &[0f32, 1., 2., 3., 4., 5.]));
        let view = |map, shape: &[usize]| View {
            operand: 0,
            map,
            shape: shape.to_vec(),
        };
        let swap = IndexMap::Affine(vec![
            crate::op::AffineIndex {
                offset: 0,
                terms: vec![(1, 1)],
            },
            crate::op::AffineIndex {
                offset: 0,
                terms: vec![(0, 1)],
            },
        ]);
        let t = base.view(&view(swap, &[3, 2])).unwrap();
        let row = IndexMap::Affine(vec![
            crate::op::AffineIndex {
                offset: 1,
                terms: vec![],
            },
            crate::op::AffineIndex {
                offset: 0,
                terms: vec![(0, 1)],
            },
        ]);
        let row = t.view(&view(row, &[2])).unwrap();
        assert_eq!(row.tensor().as_slice::<f32>(), [1., 4.]);
        row.write(&Tensor::from_slice(&[2], &[10f32, 40.]), false).unwrap();
        assert_eq!(base.fresh().tensor().as_slice::<f32>(), [0., 10., 2., 3., 40., 5.]);
        assert_eq!(t.fresh().tensor().as_slice::<f32>(), [0., 3., 10., 40., 2., 5.]);
    }
}
