//! Maps in tiles.
//!
//! A map that reads a transposed operand along its last dim touches another cache line with each element, and returns
//! to a line only in the next iteration of an outer dim. Tiles over both dims use all of a line while it is cached. Within
//! a tile, the operand is first copied to scratch memory as the map reads it. Code generation transposes such copies in
//! registers. A map that only copies does so without scratch memory.

use super::vars::Vars;
use super::{LoopDim, OperandSource, Scheduler};
use crate::kernel::{Affine, Buf, KernelBuilder, LARGE, Var};
use crate::lower::ir::{Def, ValueId};
use std::collections::HashSet;

/// The size of a cache line.
const LINE: usize = 64;
/// The number of sets of the first cache of usual processors, and the lines of a tile in one set that do not slow it down.
const SETS: usize = 64;
const MOST_LINES: usize = 16;
/// The range of the side of a tile along the last dim. An operand that is copied to scratch memory has a line of the result at least.
const COLUMNS: [usize; 2] = [16, 64];
/// The least side along the last dim of a tile that is only copied: a block of registers, and more.
const NARROW: usize = 5;
/// The range of the side of a tile along the other dim. Long sides read several neighbouring lines of the operand at once.
const ROWS: [usize; 2] = [8, 64];
/// The number of elements that make the call for a tile worth its time: the rows of narrow tiles are more than the range allows.
const ELEMENTS: usize = 4096;
/// The number of tiles along a dim that threads share, if lines of the operand allow so many.
const PARTS: usize = 8;
/// The most operands of a tile that are copied to scratch memory. The others are read in place.
const MOST_COPIES: usize = 8;

/// How a map is tiled: over one of the outer loops and the last one.
pub(super) struct Tiling {
    /// The position of the outer loop among the kept ones.
    outer: usize,
    /// The number of its iterations in a tile.
    rows: usize,
    /// The number of iterations of the last loop in a tile.
    columns: usize,
    /// The dim whose tiles threads share: rows, of which a second range has the rest, or columns, whose extent a tile divides. The loops
    /// over the others are serial, with a last tile that may be smaller.
    shared: Option<Side>,
}

/// A dim of a tile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Rows,
    Columns,
}

/// The transposed operands of the current tile, in scratch memory.
#[derive(Default)]
pub(in crate::lower) struct TileCopies {
    /// Each operand, a [`OperandSource::Load`], with its copy.
    operands: Vec<(OperandSource, Buf)>,
    /// The place of the current point in each copy.
    index: Affine,
}

impl TileCopies {
    /// The copy of an operand, and the place of the current point in it.
    pub(super) fn find(&self, s: &OperandSource) -> Option<(Buf, Affine)> {
        let (_, copy) = self.operands.iter().find(|(o, _)| o == s)?;
        Some((*copy, self.index.clone()))
    }
}

impl Scheduler<'_> {
    /// The tiles of a map, if one of its loads needs them.
    pub(super) fn tiling(&self) -> Option<Tiling> {
        let (size, outer) = self.transposed_load()?;
        let (last, outers) = self.kept.split_last()?;
        let (extent, line) = (self.kept[outer].extent, LINE / size);
        let inner = outers[outer + 1..].iter().map(|l| l.extent);
        let is_crowded = is_crowded(inner.fold(last.extent.saturating_mul(size), usize::saturating_mul));
        let widest = match self.is_cached_copy() || is_crowded {
            true => COLUMNS[1],
            false => line.clamp(COLUMNS[0], COLUMNS[1]),
        };
        let columns = widest.min(last.extent);
        let most_rows = most_rows(columns, extent, line, is_crowded);
        let dividing = longest_dividing(extent, line, [ROWS[0], most_rows]);
        let rows = match self.is_cached_copy() {
            true => rows_of_blocks(extent, line, most_rows, dividing),
            false => dividing,
        };
        let (rows, columns, shared) = match rows {
            Some(rows) => (rows, columns, Some(Side::Rows)),
            None if extent < line.clamp(ROWS[0], ROWS[1]) => return None,
            None => {
                let divisor = tile_dividing(last.extent, widest, COLUMNS);
                (most_rows, divisor.unwrap_or(columns), divisor.map(|_| Side::Columns))
            }
        };
        Some(Tiling {
            outer,
            rows,
            columns,
            shared,
        })
    }

    /// The size of the elements of a load that is contiguous along an outer loop instead of the last one, and that loop.
    fn transposed_load(&self) -> Option<(usize, usize)> {
        let (last, outers) = self.kept.split_last()?;
        let least = if self.is_cached_copy() { NARROW } else { COLUMNS[0] };
        if !self.row.is_empty() || last.extent < least {
            return None;
        }
        let jumps = |strides: &[i64], size: usize| strides[last.last].unsigned_abs() as usize * size >= LINE;
        let along = |strides: &[i64]| outers.iter().position(|l| strides[l.last].abs() == 1);
        self.sources.values().flatten().find_map(|s| match s {
            OperandSource::Load(base, _, strides) => {
                let size = self.tir.value(*base).dtype.size();
                jumps(strides, size).then(|| Some((size, along(strides)?)))?
            }
            _ => None,
        })
    }

    /// Emits a map in tiles.
    pub(super) fn emit_tiles(&mut self, k: &mut KernelBuilder, t: &Tiling) {
        let mut outers = self.kept.clone();
        let Some(last) = outers.pop() else { return };
        let row = outers[t.outer].clone();
        self.declare_copies(k, t, row.last, last.last);
        let (whole, rest) = match t.shared {
            Some(Side::Rows) => (row.extent / t.rows, row.extent % t.rows),
            _ => (1, 0),
        };
        let ranges = [(0, t.rows, whole), (row.extent - rest, rest, 1)];
        for (first, rows, count) in ranges.into_iter().take(1 + usize::from(rest > 0)) {
            let mut extents: Vec<usize> = outers.iter().map(|l| l.extent).collect();
            extents[t.outer] = count;
            if t.shared == Some(Side::Columns) {
                extents.push(last.extent / t.columns);
            }
            k.parallel(&extents, |k, v| {
                let others = (0..outers.len()).filter(|&i| i != t.outer);
                let (dims, vars): (Vec<LoopDim>, Vec<Var>) = others.map(|i| (outers[i].clone(), v[i])).unzip();
                let vars = Vars::default().with_loops(&dims, &vars);
                let vars = match t.shared {
                    Some(Side::Rows) => vars.with_part(row.last, first, rows, v[t.outer]),
                    Some(Side::Columns) => vars.with_part(last.last, 0, t.columns, v[outers.len()]),
                    None => vars,
                };
                self.emit_part(k, &vars, [&row, &last], rows, t);
            });
        }
    }

    /// Emits the tiles of a part that a thread may run by itself, which has `rows` rows if threads share rows.
    fn emit_part(&mut self, k: &mut KernelBuilder, vars: &Vars, [row, last]: [&LoopDim; 2], rows: usize, t: &Tiling) {
        let side = |extent: usize, d: &LoopDim| LoopDim { extent, last: d.last };
        match t.shared {
            Some(Side::Rows) => visit_parts(k, vars, last, t.columns, &mut |k, vars, columns| {
                self.emit_tile(k, vars, &[side(rows, row), side(columns, last)], t);
            }),
            Some(Side::Columns) => visit_parts(k, vars, row, t.rows, &mut |k, vars, rows| {
                self.emit_tile(k, vars, &[side(rows, row), side(t.columns, last)], t);
            }),
            None => visit_parts(k, vars, row, t.rows, &mut |k, vars, rows| {
                visit_parts(k, vars, last, t.columns, &mut |k, vars, columns| {
                    self.emit_tile(k, vars, &[side(rows, row), side(columns, last)], t);
                });
            }),
        }
    }

    /// Declares scratch memory for the operands that are transposed in a tile over the dims `row` and `column`.
    fn declare_copies(&mut self, k: &mut KernelBuilder, t: &Tiling, row: usize, column: usize) {
        let mut operands: Vec<(OperandSource, Buf)> = vec![];
        for s in self.sources.values().flatten() {
            let OperandSource::Load(base, _, strides) = s else {
                continue;
            };
            let transposed = strides[row].abs() == 1 && strides[column].abs() > 1;
            let known = operands.iter().any(|(o, _)| o == s);
            if transposed && !known && operands.len() < MOST_COPIES && !self.is_cached_copy() {
                let def = self.tir.value(*base);
                let name = format!("{}_tile{}", def.name, operands.len());
                let copy = k.local(&name, def.dtype, &[t.rows, t.columns]);
                operands.push((s.clone(), copy));
            }
        }
        self.tile = TileCopies {
            operands,
            index: Affine::default(),
        };
    }

    /// Whether the cluster only copies one value, and its result is not so large that stores bypass the caches.
    fn is_cached_copy(&self) -> bool {
        let copies = |v: ValueId| {
            let def = self.tir.value(v);
            let bytes = def.shape.iter().fold(def.dtype.size(), |n, &d| n.saturating_mul(d));
            matches!(&def.def, Def::Pointwise { expr, .. } if expr.is_copy()) && bytes < LARGE
        };
        matches!(&self.cluster.members[..], [m] if copies(m.value))
    }

    /// Emits the copies of a tile and the loops over it. `sides` are its rows and columns.
    fn emit_tile(&mut self, k: &mut KernelBuilder, vars: &Vars, sides: &[LoopDim; 2], t: &Tiling) {
        let place = |r: Var, c: Var| r * t.columns as i64 + c;
        for (s, copy) in self.tile.operands.clone() {
            let OperandSource::Load(base, offset, strides) = s else {
                continue;
            };
            visit_tile(k, vars, sides, |k, vars, [r, c]| {
                let x = k.load(self.bufs[&base], vars.index(offset, &strides));
                k.store(copy, place(r, c), x);
            });
        }
        visit_tile(k, vars, sides, |k, vars, [r, c]| {
            self.tile.index = place(r, c);
            self.emit_point(k, vars);
        });
    }
}

/// The rows of a tile that is only copied: whole blocks of `line` rows instead of `dividing` ones, which divide the extent, if much
/// fewer rows are outside of whole blocks then.
fn rows_of_blocks(extent: usize, line: usize, most_rows: usize, dividing: Option<usize>) -> Option<usize> {
    let rows = most_rows / line * line;
    let outside = |d: usize| extent / d * (d % line);
    let saved = dividing.map_or(extent, outside).saturating_sub(extent % line);
    if rows > 0 && saved * 8 > extent {
        Some(rows)
    } else {
        dividing
    }
}

/// Whether the rows of a tile that are so many bytes apart evict each other from the first cache: if they are almost a power of two
/// apart, the lines of all rows belong to few of its sets. A tile then has few rows, whose lines are written whole.
fn is_crowded(row_bytes: usize) -> bool {
    let places = (0..ROWS[1]).map(|r| r.saturating_mul(row_bytes) / LINE % SETS);
    let sets = places.collect::<HashSet<_>>().len();
    let lines = ROWS[1] * if row_bytes.is_multiple_of(LINE) { 1 } else { 2 };
    lines > MOST_LINES * sets
}

/// The size in a range of a tile that divides an extent: at least `wanted` if there is such a divisor.
fn tile_dividing(extent: usize, wanted: usize, [least, most]: [usize; 2]) -> Option<usize> {
    let divides = |n: &usize| extent.is_multiple_of(*n);
    let longer = (wanted..=most).find(divides);
    longer.or_else(|| (least..wanted).rev().find(divides))
}

/// The most rows of a tile with so many columns, of an operand of which a cache line has `line` elements.
fn most_rows(columns: usize, extent: usize, line: usize, is_crowded: bool) -> usize {
    let line = line.clamp(ROWS[0], ROWS[1]);
    let most = match (columns < COLUMNS[0], is_crowded) {
        (true, false) => ELEMENTS / columns,
        // Other tiles write the other parts of these lines next.
        (true, true) => ROWS[0],
        (false, false) => ROWS[1],
        (false, true) => line,
    };
    most.min((extent / PARTS).max(line)).min(extent)
}

/// The longest side in a range of a tile that divides an extent: of whole lines if there is such a divisor.
fn longest_dividing(extent: usize, line: usize, [least, most]: [usize; 2]) -> Option<usize> {
    let divides = |n: &usize| extent.is_multiple_of(*n);
    let whole = |n: &usize| n.is_multiple_of(line) && divides(n);
    (least..=most)
        .rev()
        .find(whole)
        .or_else(|| (least..=most).rev().find(divides))
}

/// The loop over the tiles of a dim, and the tile that remains. `body` gets the number of iterations in a tile.
fn visit_parts(
    k: &mut KernelBuilder,
    vars: &Vars,
    dim: &LoopDim,
    tile: usize,
    body: &mut dyn FnMut(&mut KernelBuilder, &Vars, usize),
) {
    k.serial(dim.extent / tile, |k, part| {
        body(k, &vars.with_part(dim.last, 0, tile, part), tile)
    });
    let rest = dim.extent % tile;
    if rest > 0 {
        body(k, &vars.with_offset(dim.last, dim.extent - rest), rest);
    }
}

/// The loops over a tile.
fn visit_tile(
    k: &mut KernelBuilder,
    vars: &Vars,
    [rows, columns]: &[LoopDim; 2],
    body: impl FnOnce(&mut KernelBuilder, Vars, [Var; 2]),
) {
    k.serial(rows.extent, |k, r| {
        let vars = vars.with_loops(std::slice::from_ref(rows), &[r]);
        k.vector(columns.extent, |k, c| {
            body(k, vars.with_loops(std::slice::from_ref(columns), &[c]), [r, c]);
        });
    });
}
