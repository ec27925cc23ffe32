//! Where torch places the elements of a result in memory, as observed by `stride()`, `is_contiguous()`, `storage_offset()` and
//! `as_strided`.
//!
//! Values do not depend on the layout, so only these ops use it. A view shares its operand's memory. Pointwise ops keep the order
//! of their operands' dims, as torch's `TensorIterator` does. Copies keep it too, unless they name a memory format. All other
//! results are assumed to be contiguous. Sizes may be symbolic; if the order depends on them, the layout is unknown.

mod calls;
mod window;

pub(crate) use calls::{check_strides, has_format, has_own_order, host_value, of_call, of_result, of_results, of_view};
pub(crate) use calls::{resize_order, template_format};
pub(crate) use window::StridedWindow;

use super::view::{DimIndex, DimMap, DimView};
use crate::types::Dim;

/// An offset into a storage and a stride per dim.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The position of the first element.
    pub offset: Dim,
    /// The distance between neighbours along each dim.
    pub strides: Vec<Dim>,
    /// The number of elements in the storage.
    pub storage: Dim,
}

/// Strides of a row-major tensor without gaps.
pub(crate) fn contiguous_dims(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::Const(1); shape.len()];
    for i in (1..shape.len()).rev() {
        // In an empty tensor torch computes strides as if sizes of 0 were 1.
        let size = if shape[i] == Dim::Const(0) {
            Dim::Const(1)
        } else {
            shape[i].clone()
        };
        strides[i - 1] = strides[i].mul(&size);
    }
    strides
}

impl Layout {
    /// A row-major layout from the start of a storage.
    pub fn contiguous(shape: &[Dim]) -> Layout {
        Layout::from_dense_strides(shape, contiguous_dims(shape))
    }

    /// A column-major matrix from the start of a storage.
    fn column_major(shape: &[Dim]) -> Layout {
        let mut strides = vec![Dim::Const(1); shape.len()];
        if let (Some(step), Some(rows)) = (strides.get_mut(1), shape.first()) {
            *step = rows.clone();
        }
        Layout::from_dense_strides(shape, strides)
    }

    /// A layout without gaps from the start of a storage of its own.
    fn from_dense_strides(shape: &[Dim], strides: Vec<Dim>) -> Layout {
        Layout {
            offset: Dim::Const(0),
            strides,
            storage: shape_numel(shape),
        }
    }

    /// A layout of known numbers.
    pub fn from_constants(offset: i64, strides: &[i64], storage: usize) -> Layout {
        Layout {
            offset: Dim::Const(offset),
            strides: strides.iter().map(|&s| Dim::Const(s)).collect(),
            storage: Dim::from(storage),
        }
    }

    /// The strides, if they are known.
    pub fn known_strides(&self) -> Option<Vec<i64>> {
        self.strides.iter().map(Dim::as_const).collect()
    }

    /// Whether the elements are in row-major order without gaps; `None` if that depends on sizes.
    pub fn is_contiguous(&self, shape: &[Dim]) -> Option<bool> {
        self.is_ordered(shape, (0..shape.len()).rev())
    }

    /// Whether images are in channels-last order (`torch.channels_last`, `torch.channels_last_3d`).
    pub fn is_channels_last(&self, shape: &[Dim]) -> Option<bool> {
        match shape.len() {
            n @ (4 | 5) => self.is_ordered(shape, channels_last_order(n)),
            _ => Some(false),
        }
    }

    /// Whether the elements are without gaps in this order of dims, fastest first.
    fn is_ordered(&self, shape: &[Dim], order: impl Iterator<Item = usize>) -> Option<bool> {
        // After a type error, the layout may belong to another shape.
        if self.strides.len() != shape.len() {
            return None;
        }
        if shape.contains(&Dim::Const(0)) {
            return Some(true);
        }
        let mut step = Dim::Const(1);
        for d in order {
            if shape[d] == Dim::Const(1) {
                continue;
            }
            let difference = self.strides[d].sub(&step);
            if difference != Dim::Const(0) {
                return difference.as_const().map(|_| false);
            }
            step = step.mul(&shape[d]);
        }
        Some(true)
    }

    /// The dims from outermost to innermost in memory, if the elements are without gaps from the start of their
    /// storage.
    pub fn dense_order(&self, shape: &[Dim]) -> Option<Vec<usize>> {
        if self.offset != Dim::Const(0) || self.strides.len() != shape.len() {
            return None;
        }
        if self.is_contiguous(shape) == Some(true) {
            return Some((0..shape.len()).collect());
        }
        let strides = self.known_strides()?;
        let mut order: Vec<usize> = (0..shape.len()).collect();
        // The stride of a dim of size 1 is arbitrary.
        order.sort_by_key(|&d| std::cmp::Reverse((strides[d], shape[d] != Dim::Const(1))));
        (self.is_ordered(shape, order.iter().rev().copied()) == Some(true)).then_some(order)
    }

    /// The dims from outermost to innermost in memory, if that differs from their logical order and no two elements
    /// share a place.
    pub fn memory_order(&self, shape: &[Dim]) -> Option<Vec<usize>> {
        let strides = self.known_strides().filter(|s| s.len() == shape.len())?;
        let is_one = |d: usize| shape[d] == Dim::Const(1);
        let mut order: Vec<usize> = (0..shape.len()).filter(|&d| !is_one(d)).collect();
        let sorted = |order: &[usize]| order.windows(2).all(|w| strides[w[0]] >= strides[w[1]]);
        if order.iter().any(|&d| strides[d] < 1) || sorted(&order) {
            return None;
        }
        order.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
        // A dim of size 1 can go anywhere in the order.
        Some((0..shape.len()).filter(|&d| is_one(d)).chain(order).collect())
    }

    /// The layout of a view of a tensor of shape `from`; `None` if torch copies here or if the layout is unknown.
    pub fn apply_view(&self, from: &[Dim], view: &DimView) -> Option<Layout> {
        if self.strides.len() != from.len() {
            return None;
        }
        let (offset, strides) = match &view.map {
            DimMap::Affine(map) => self.affine_strides(map, &view.shape),
            DimMap::Reshape => (self.offset.clone(), self.reshaped_strides(from, &view.shape)?),
            DimMap::Strided { offset, strides } => {
                let offset = offset.clone().unwrap_or_else(|| self.offset.clone());
                (offset, strides.clone())
            }
        };
        Some(Layout {
            offset,
            strides,
            storage: self.storage.clone(),
        })
    }

    /// The offset and strides of an affine view.
    fn affine_strides(&self, map: &[DimIndex], shape: &[Dim]) -> (Dim, Vec<Dim>) {
        let mut offset = self.offset.clone();
        let mut strides = vec![Dim::Const(0); shape.len()];
        let mut used = vec![false; shape.len()];
        for (x, s) in map.iter().zip(&self.strides) {
            offset = offset.add(&x.offset.mul(s));
            for &(d, c) in &x.terms {
                strides[d] = strides[d].add(&s.mul(&Dim::Const(c)));
                used[d] = true;
            }
        }
        // As in torch, the stride of a new dim of size 1 is the extent of the dims inside it.
        let mut step = Dim::Const(1);
        for (d, n) in shape.iter().enumerate().rev() {
            if !used[d] && *n == Dim::Const(1) {
                strides[d] = step;
            }
            step = strides[d].mul(n);
        }
        (offset, strides)
    }

    fn reshaped_strides(&self, from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
        match (fixed_sizes(from), self.known_strides(), fixed_sizes(to)) {
            (Some(old), Some(s), Some(new)) => {
                let strides = reshape_strides(&old, &s, &new)?;
                Some(strides.into_iter().map(Dim::Const).collect())
            }
            _ if self.is_contiguous(from) == Some(true) => Some(contiguous_dims(to)),
            _ if from == to => Some(self.strides.clone()),
            _ => None,
        }
    }
}

fn shape_numel(shape: &[Dim]) -> Dim {
    shape.iter().fold(Dim::Const(1), |a, n| a.mul(n))
}

fn fixed_sizes(shape: &[Dim]) -> Option<Vec<usize>> {
    shape.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect()
}

/// The dims of images from innermost to outermost in channels-last order: channels are innermost.
fn channels_last_order(rank: usize) -> impl Iterator<Item = usize> {
    std::iter::once(1).chain((2..rank).rev()).chain(std::iter::once(0))
}

/// The strides of a reshape as a view (torch's `computeStride`), or `None` if it must copy.
pub(crate) fn reshape_strides(old: &[usize], strides: &[i64], new: &[usize]) -> Option<Vec<i64>> {
    if old.contains(&0) && old == new {
        return Some(strides.to_vec());
    }
    if old.contains(&0) || old.is_empty() {
        let new: Vec<Dim> = new.iter().map(|&n| Dim::from(n)).collect();
        return contiguous_dims(&new).iter().map(Dim::as_const).collect();
    }
    let mut out = vec![0; new.len()];
    let mut view_d = new.len();
    let mut chunk_stride = strides[old.len() - 1];
    let (mut tensor_numel, mut view_numel) = (1usize, 1usize);
    for d in (0..old.len()).rev() {
        tensor_numel *= old[d];
        let ends_chunk = d == 0 || (old[d - 1] != 1 && strides[d - 1] != tensor_numel as i64 * chunk_stride);
        if !ends_chunk {
            continue;
        }
        while view_d > 0 && (view_numel < tensor_numel || new[view_d - 1] == 1) {
            out[view_d - 1] = view_numel as i64 * chunk_stride;
            view_numel *= new[view_d - 1];
            view_d -= 1;
        }
        if view_numel != tensor_numel {
            return None;
        }
        if d > 0 {
            chunk_stride = strides[d - 1];
            tensor_numel = 1;
            view_numel = 1;
        }
    }
    (view_d == 0).then_some(out)
}

/// The layout of a pointwise result of shape `out`, as `TensorIterator` chooses it: dims are ordered as in the
/// operands, and the first operand whose strides decide wins. `None` if the order depends on sizes.
pub(crate) fn pointwise_layout(out: &[Dim], operands: &[(&[Dim], &Layout)]) -> Option<Layout> {
    let fills_result = |(shape, layout): &(&[Dim], &Layout)| *shape == out && layout.is_contiguous(shape) == Some(true);
    if operands.iter().all(|o| fills_result(o) || o.0.is_empty()) {
        return Some(Layout::contiguous(out));
    }
    let sizes = fixed_sizes(out)?;
    if let Some((_, first)) = operands.first().filter(|(s, layout)| *s == out && is_dense(s, layout))
        && operands
            .iter()
            .all(|(s, layout)| *s == out && layout.strides == first.strides)
    {
        return Some(Layout::from_dense_strides(out, first.strides.clone()));
    }
    let rows: Option<Vec<Vec<i64>>> = operands.iter().map(|o| aligned_strides(out, o)).collect();
    let order = iteration_order(&sizes, &rows?);
    let mut strides = vec![Dim::Const(0); sizes.len()];
    let mut step = 1i64;
    for &d in &order {
        strides[d] = Dim::Const(step);
        step = step.checked_mul(sizes[d].max(1) as i64)?;
    }
    if order.iter().rev().copied().eq(0..sizes.len()) {
        return Some(Layout::contiguous(out));
    }
    Some(Layout::from_dense_strides(out, strides))
}

fn is_dense(shape: &[Dim], layout: &Layout) -> bool {
    let moved = Layout {
        offset: Dim::Const(0),
        ..layout.clone()
    };
    moved.dense_order(shape).is_some()
}

/// An operand's strides along the dims of the result; 0 where it is broadcast.
fn aligned_strides(out: &[Dim], (shape, layout): &(&[Dim], &Layout)) -> Option<Vec<i64>> {
    let lead = out
        .len()
        .checked_sub(shape.len())
        .filter(|_| layout.strides.len() == shape.len())?;
    let mut row = vec![0; out.len()];
    for (d, (n, s)) in shape.iter().zip(layout.known_strides()?).enumerate() {
        let broadcast = *n == Dim::Const(1) && out[lead + d] != Dim::Const(1);
        row[lead + d] = if broadcast { 0 } else { s };
    }
    Some(row)
}

/// The dims from fastest to slowest, as torch's `TensorIteratorBase::reorder_dimensions` orders them.
fn iteration_order(sizes: &[usize], rows: &[Vec<i64>]) -> Vec<usize> {
    let compare = |a: usize, b: usize| -> i32 {
        for row in rows {
            let (x, y) = (row[a], row[b]);
            if x == 0 || y == 0 {
                continue;
            }
            if x != y {
                return if x < y { -1 } else { 1 };
            }
            if sizes[a] > sizes[b] {
                return 1;
            }
        }
        0
    };
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    for i in 1..order.len() {
        let mut position = i;
        for before in (0..i).rev() {
            match compare(order[before], order[position]) {
                1 => {
                    order.swap(before, position);
                    position = before;
                }
                -1 => break,
                _ => {}
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(v: &[i64]) -> Vec<Dim> {
        v.iter().map(|&n| Dim::Const(n)).collect()
    }

    /// The strides of `a + b` in PyTorch, by the strides of both.
    #[test]
    fn sums_have_the_order_of_their_operands() {
        type Row = (&'static [i64], &'static [i64]);
        let cases: &[(&[i64], &[Row], &[i64])] = &[
            // `x.t() + 1`, `x.t() + y`, `y + x.t()`, and sums of channels-last images.
            (&[3, 2], &[(&[3, 2], &[1, 3])], &[1, 3]),
            (&[3, 2], &[(&[3, 2], &[1, 3]), (&[3, 2], &[2, 1])], &[1, 3]),
            (&[3, 2], &[(&[3, 2], &[2, 1]), (&[3, 2], &[1, 3])], &[2, 1]),
            (&[3, 2], &[(&[3, 2], &[1, 3]), (&[2], &[1])], &[1, 3]),
            (&[2, 3, 4, 5], &[(&[2, 3, 4, 5], &[60, 1, 15, 3])], &[60, 1, 15, 3]),
            (&[2, 3, 4], &[(&[4], &[1]), (&[2, 3, 1], &[1, 2, 1])], &[4, 8, 1]),
        ];
        for (out, operands, want) in cases {
            let layouts: Vec<(Vec<Dim>, Layout)> = operands
                .iter()
                .map(|(shape, s)| (dims(shape), Layout::from_constants(0, s, 120)))
                .collect();
            let refs: Vec<(&[Dim], &Layout)> = layouts.iter().map(|(s, l)| (&s[..], l)).collect();
            let got = pointwise_layout(&dims(out), &refs).and_then(|l| l.known_strides());
            assert_eq!(got.as_deref(), Some(*want), "{operands:?}");
        }
    }

    #[test]
    fn symbolic_sizes_leave_open_what_they_decide() {
        let shape = [Dim::var("N"), Dim::var("M")];
        let plain = Layout::contiguous(&shape);
        assert_eq!(plain.is_contiguous(&shape), Some(true));
        let turned = Layout {
            offset: Dim::Const(0),
            strides: vec![Dim::Const(1), Dim::var("N")],
            storage: Dim::var("N").mul(&Dim::var("M")),
        };
        assert_eq!(turned.is_contiguous(&shape), None);
        assert_eq!(pointwise_layout(&shape, &[(&shape, &turned)]), None);
    }

    #[test]
    fn reshapes_are_views_where_strides_can_say_them() {
        // For a transposed [2, 3], splitting a dim is a view but joining dims is not.
        assert_eq!(reshape_strides(&[3, 2], &[1, 3], &[3, 2, 1]), Some(vec![1, 3, 3]));
        assert_eq!(reshape_strides(&[3, 2], &[1, 3], &[6]), None);
        assert_eq!(reshape_strides(&[2, 3, 4], &[12, 4, 1], &[6, 4]), Some(vec![4, 1]));
    }
}
