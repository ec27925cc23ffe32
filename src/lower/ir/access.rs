//! Views as strides: maps the elements of a value to the elements of a buffer.

use super::{Def, Tir, ValueId};
use crate::op::IndexMap;
use crate::op::view::compose_affine;
use crate::tensor::contiguous_strides;
use smallvec::{SmallVec, smallvec};

/// A strided window on the buffer of a value. Element `i` of the window is element `offset + Σ i[d] * strides[d]` of
/// the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The value that owns the buffer.
    pub base: ValueId,
    /// The index of the first element.
    pub offset: i64,
    /// One stride per dim, in elements.
    pub strides: Vec<i64>,
}

impl Access {
    /// The whole buffer of `v`, in row-major order.
    pub(crate) fn whole_buffer(v: ValueId, shape: &[usize]) -> Access {
        let strides = contiguous_strides(shape).into_iter().map(|s| s as i64).collect();
        Access {
            base: v,
            offset: 0,
            strides,
        }
    }

    /// Whether it is a row-major run of elements starting at `offset`. Dims of size one may have any stride.
    pub(crate) fn is_contiguous(&self, shape: &[usize]) -> bool {
        shape.contains(&0)
            || contiguous_strides(shape)
                .iter()
                .zip(&self.strides)
                .zip(shape)
                .all(|((&c, &s), &d)| d == 1 || c as i64 == s)
    }

    /// The access of a view of this window of shape `from`, or `None` if no strides can express it.
    fn compose_view(&self, from: &[usize], map: &IndexMap, to: &[usize]) -> Option<Access> {
        match map {
            IndexMap::Affine(dims) => {
                let (offset, strides) = compose_affine(dims, self.offset, &self.strides, to.len());
                Some(Access {
                    base: self.base,
                    offset,
                    strides,
                })
            }
            IndexMap::Reshape => {
                let strides = reshape_strides(from, &self.strides, to)?;
                Some(Access {
                    base: self.base,
                    offset: self.offset,
                    strides,
                })
            }
            IndexMap::Strided { offset, strides } => self.is_contiguous(from).then(|| Access {
                base: self.base,
                offset: self.offset + offset.unwrap_or(0),
                strides: strides.clone(),
            }),
        }
    }
}

/// The strides that address the same elements in another shape (torch's `computeStride`), or `None` if there are none.
pub(crate) fn reshape_strides(from: &[usize], strides: &[i64], to: &[usize]) -> Option<Vec<i64>> {
    if to.contains(&0) {
        return Some(contiguous_strides(to).into_iter().map(|s| s as i64).collect());
    }
    let mut out = vec![0i64; to.len()];
    let mut d_to = to.len();
    let mut chunk_stride = strides.last().copied().unwrap_or(1);
    let (mut old, mut new) = (1usize, 1usize);
    for d in (0..from.len()).rev() {
        old *= from[d];
        let ends = d == 0 || (from[d - 1] != 1 && strides[d - 1] != old as i64 * chunk_stride);
        if !ends {
            continue;
        }
        while d_to > 0 && (new < old || to[d_to - 1] == 1) {
            d_to -= 1;
            out[d_to] = new as i64 * chunk_stride;
            new *= to[d_to];
        }
        if new != old {
            return None;
        }
        if d > 0 {
            chunk_stride = strides[d - 1];
            old = 1;
            new = 1;
        }
    }
    // The remaining target dims must have size 1.
    (0..d_to).all(|d| to[d] == 1).then_some(out)
}

/// Finds where the elements of a value are stored. `stored` returns whether a value has a buffer of its own. A view
/// that no strides can express, or a view of a value without a buffer, has no access and must be copied.
pub(crate) fn resolve_access(tir: &Tir, v: ValueId, stored: &dyn Fn(ValueId) -> bool) -> Option<Access> {
    // Follow the chain of views down to a buffer, then compose the accesses on the way back.
    let mut chain: SmallVec<[ValueId; 8]> = smallvec![v];
    let mut value = v;
    while !stored(value) {
        match &tir.value(value).def {
            Def::View { arg, .. } => value = *arg,
            _ => return None,
        }
        chain.push(value);
    }
    let mut a = Access::whole_buffer(value, &tir.value(value).shape);
    for pair in chain.windows(2).rev() {
        let (to, from) = (tir.value(pair[0]), tir.value(pair[1]));
        let Def::View { map, .. } = &to.def else { return None };
        a = a.compose_view(&from.shape, map, &to.shape)?;
    }
    Some(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_strides_as_torch_does() {
        assert_eq!(reshape_strides(&[2, 3, 4], &[12, 4, 1], &[6, 4]), Some(vec![4, 1]));
        assert_eq!(reshape_strides(&[4, 3], &[1, 4], &[12]), None);
        assert_eq!(reshape_strides(&[4, 6], &[1, 4], &[4, 2, 3]), Some(vec![1, 12, 4]));
        assert!(reshape_strides(&[], &[], &[1, 1]).is_some());
        assert_eq!(reshape_strides(&[2, 3], &[0, 1], &[6]), None);
        assert_eq!(reshape_strides(&[4, 4], &[0, 0], &[16]), Some(vec![0]));
    }
}
