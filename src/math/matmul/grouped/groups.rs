//! Which rows belong to which group, and their order.

use crate::math::contract::{Grouped, Grouping, InvalidGroups};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::types::DType;
use std::ops::Range;

/// The rows that a chunk copies.
const COPIED: usize = 64;

/// Some rows that are multiplied with the same matrix.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    pub rows: Range<usize>,
    pub matrix: usize,
}

/// The groups that have rows.
#[derive(Debug, PartialEq)]
pub(super) struct RowGroups {
    pub groups: Vec<Group>,
    /// The rows from here on belong to no group.
    pub used: usize,
    /// The rows that the groups consist of, if these are not consecutive: row `i` of the groups is row `order[i]`.
    pub order: Option<Vec<usize>>,
}

/// Reads the integers that tell the groups.
///
/// # Safety
/// They are readable and aligned.
pub(super) unsafe fn read(desc: &Grouped, integers: *const u8) -> Result<RowGroups, InvalidGroups> {
    let count = desc.integer_count();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match desc.integers {
            DType::I32 => {
                let integers = std::slice::from_raw_parts(integers.cast::<i32>(), count);
                find(desc, integers.iter().map(|&i| i.into()))
            }
            _ => {
                let integers = std::slice::from_raw_parts(integers.cast::<i64>(), count);
                find(desc, integers.iter().copied())
            }
        }
    }
}

fn find(desc: &Grouped, integers: impl Iterator<Item = i64>) -> Result<RowGroups, InvalidGroups> {
    match desc.grouping {
        Grouping::Ends => find_by_ends(integers, desc.rows),
        Grouping::Names { wrap } => find_by_names(integers, desc.groups, wrap),
    }
}

pub(super) fn find_by_ends(ends: impl Iterator<Item = i64>, rows: usize) -> Result<RowGroups, InvalidGroups> {
    let (mut used, mut groups) = (0, vec![]);
    for (matrix, end) in ends.enumerate() {
        let end = usize::try_from(end).ok().filter(|&end| end >= used && end <= rows);
        let end = end.ok_or(InvalidGroups::Ends)?;
        if end > used {
            let rows = used..end;
            groups.push(Group { rows, matrix });
        }
        used = end;
    }
    let order = None;
    Ok(RowGroups { groups, used, order })
}

pub(super) fn find_by_names(
    names: impl Iterator<Item = i64>,
    count: usize,
    wrap: bool,
) -> Result<RowGroups, InvalidGroups> {
    let matrix = |name: i64| {
        let from_end = if wrap && name < 0 { count as i64 } else { 0 };
        let matrix = usize::try_from(name.wrapping_add(from_end)).ok();
        matrix.filter(|&m| m < count).ok_or(InvalidGroups::Name)
    };
    let matrices: Vec<usize> = names.map(matrix).collect::<Result<_, _>>()?;
    let mut order: Vec<usize> = (0..matrices.len()).collect();
    // Rows of a group stay in order.
    order.sort_by_key(|&row| matrices[row]);
    let mut groups: Vec<Group> = vec![];
    for (i, &row) in order.iter().enumerate() {
        match groups.last_mut().filter(|g| g.matrix == matrices[row]) {
            Some(group) => group.rows.end = i + 1,
            None => groups.push(Group {
                rows: i..i + 1,
                matrix: matrices[row],
            }),
        }
    }
    // Groups may come in any order, so that only those in pieces have to be collected.
    let used = order.len();
    let is_whole = |g: &Group| order[g.rows.end - 1] - order[g.rows.start] == g.rows.len() - 1;
    if !groups.iter().all(is_whole) {
        let order = Some(order);
        return Ok(RowGroups { groups, used, order });
    }
    for g in &mut groups {
        let (first, len) = (order[g.rows.start], g.rows.len());
        g.rows = first..first + len;
    }
    let order = None;
    Ok(RowGroups { groups, used, order })
}

/// Copies rows of `len` bytes: row `order[i]` becomes row `i`.
///
/// # Safety
/// Both have the rows.
pub(super) unsafe fn gather_rows(pool: &Pool, order: &[usize], len: usize, src: *const u8, dst: *mut u8) {
    let places = order.iter().copied().enumerate().collect::<Vec<_>>();
    // SAFETY: guaranteed by the caller.
    unsafe { copy_rows(pool, &places, len, src, dst) };
}

/// Copies rows of `len` bytes: row `i` becomes row `order[i]`.
///
/// # Safety
/// As for [`gather_rows`].
pub(super) unsafe fn scatter_rows(pool: &Pool, order: &[usize], len: usize, src: *const u8, dst: *mut u8) {
    let places = order.iter().enumerate().map(|(i, &row)| (row, i)).collect::<Vec<_>>();
    // SAFETY: guaranteed by the caller.
    unsafe { copy_rows(pool, &places, len, src, dst) };
}

/// Copies a row to the first of each pair of rows from the second. The first ones differ.
///
/// # Safety
/// As for [`gather_rows`].
unsafe fn copy_rows(pool: &Pool, places: &[(usize, usize)], len: usize, src: *const u8, dst: *mut u8) {
    let (src, dst) = (SharedPtr(src.cast_mut()), SharedPtr(dst));
    pool.run(places.len().div_ceil(COPIED), |i| {
        for &(to, from) in places.iter().skip(i * COPIED).take(COPIED) {
            // SAFETY: guaranteed by the caller; each row is written once.
            unsafe { std::ptr::copy_nonoverlapping(src.get().add(from * len), dst.get().add(to * len), len) };
        }
    });
}
