//! Choices that depend on size: small gathers become kernels, and pools of many small volumes stay routines.

use crate::lower::ir::{Def, SpatialWindow, Special, Tir, ValueId};
use crate::op::{Call, OpResult};
use crate::types::DType;

/// The maximum number of elements of a gather that becomes a kernel. For more, the routine, which first lists positions, is faster.
const FEW: usize = 1 << 14;

/// The maximum number of elements of a small volume. If a row also has fewer windows than a vector has lanes, and there are at least [`LANES`]
/// volumes, the routine pools [`LANES`] volumes at once, where a kernel would compute one window after the other.
const SMALL_VOLUME: usize = 2048;
pub(super) const LANES: usize = 16;

/// A gather, if it is of few elements.
pub(super) fn gather_few(tir: &mut Tir, ids: &Call<ValueId>) -> OpResult<Option<ValueId>> {
    let (x, index) = (*ids.leaf("self")?, *ids.leaf("index")?);
    let [table, places] = [x, index].map(|v| tir.value(v));
    let (dtype, shape) = (table.dtype, places.shape.clone());
    let is_number = matches!(places.dtype, DType::I64 | DType::I32);
    let dim = crate::op::wrap_dim(ids.int("dim")?, table.shape.len())?;
    let fits = shape.len() == table.shape.len() && table.shape.get(dim).is_some_and(|&n| n > 0);
    if !fits || !is_number || !dtype.is_computed() || !(1..=FEW).contains(&count(&shape)) {
        return Ok(None);
    }
    tir.push(
        dtype,
        &shape,
        Def::Special {
            args: vec![x, index],
            special: Special::Gather { dim },
        },
    )
    .map(Some)
}

/// Whether windows that share elements are over many small volumes.
pub(super) fn has_small_volumes(shape: &[usize], w: &SpatialWindow) -> bool {
    let (lead, volume) = shape.split_at(w.first);
    let columns = volume.last().zip(w.stride.last()).map_or(0, |(&n, &s)| n / s.max(1));
    let (elements, steps): (usize, usize) = (w.kernel.iter().product(), w.stride.iter().product());
    volume.len() == 3 && elements > steps && columns < LANES && count(volume) <= SMALL_VOLUME && count(lead) >= LANES
}

fn count(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |n, &s| n.saturating_mul(s))
}
