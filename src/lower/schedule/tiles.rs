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

/// The size of a cache line.
const LINE: usize = 64;
/// The range of the side of a tile along the last dim: a line of the result if its elements are small. More lines a power
/// of two apart would evict each other.
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
    /// The dim whose tiles threads share; a tile divides its extent. The loops over the others are serial, with a last tile that may be
    /// smaller.
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
        let (last, outers) = self.kept.split_last()?;
        let least = if self.is_cached_copy() { NARROW } else { COLUMNS[0] };
        if !self.row.is_empty() || last.extent < least {
            return None;
        }
        let jumps = |strides: &[i64], size: usize| strides[last.last].unsigned_abs() as usize * size >= LINE;
        let loads = self.sources.values().flatten().filter_map(|s| match s {
            OperandSource::Load(base, _, strides) => Some((self.tir.value(*base).dtype.size(), strides)),
            _ => None,
        });
        let mut loads = loads.filter(|(size, strides)| jumps(strides, *size));
        let along = |strides: &[i64]| outers.iter().position(|l| strides[l.last].abs() == 1);
        let (size, outer) = loads.find_map(|(size, strides)| Some((size, along(strides)?)))?;
        let line = LINE / size;
        let columns = line.clamp(COLUMNS[0], COLUMNS[1]).min(last.extent);
        let most_rows = most_rows(columns, self.kept[outer].extent, line);
        let rows = longest_dividing(self.kept[outer].extent, line, [ROWS[0], most_rows]);
        if let Some(rows) = rows {
            let shared = Some(Side::Rows);
            return Some(Tiling {
                outer,
                rows,
                columns,
                shared,
            });
        }
        if self.kept[outer].extent < line.clamp(ROWS[0], ROWS[1]) {
            return None;
        }
        let rows = most_rows.min(self.kept[outer].extent);
        let divisor = tile_dividing(last.extent, line, COLUMNS);
        Some(Tiling {
            outer,
            rows,
            columns: divisor.unwrap_or(columns),
            shared: divisor.map(|_| Side::Columns),
        })
    }

    /// Emits a map in tiles.
    pub(super) fn emit_tiles(&mut self, k: &mut KernelBuilder, t: &Tiling) {
        let mut outers = self.kept.clone();
        let Some(last) = outers.pop() else { return };
        let row = outers[t.outer].clone();
        self.declare_copies(k, t, row.last, last.last);
        let mut extents: Vec<usize> = outers.iter().map(|l| l.extent).collect();
        extents[t.outer] = if t.shared == Some(Side::Rows) {
            row.extent / t.rows
        } else {
            1
        };
        if t.shared == Some(Side::Columns) {
            extents.push(last.extent / t.columns);
        }
        k.parallel(&extents, |k, v| {
            let others = (0..outers.len()).filter(|&i| i != t.outer);
            let (dims, vars): (Vec<LoopDim>, Vec<Var>) = others.map(|i| (outers[i].clone(), v[i])).unzip();
            let vars = Vars::default().with_loops(&dims, &vars);
            let side = |extent: usize, d: &LoopDim| LoopDim { extent, last: d.last };
            match t.shared {
                Some(Side::Rows) => {
                    let vars = vars.with_part(row.last, 0, t.rows, v[t.outer]);
                    visit_parts(k, &vars, &last, t.columns, &mut |k, vars, columns| {
                        self.emit_tile(k, vars, &[side(t.rows, &row), side(columns, &last)], t);
                    });
                }
                Some(Side::Columns) => {
                    let vars = vars.with_part(last.last, 0, t.columns, v[outers.len()]);
                    visit_parts(k, &vars, &row, t.rows, &mut |k, vars, rows| {
                        self.emit_tile(k, vars, &[side(rows, &row), side(t.columns, &last)], t);
                    });
                }
                None => visit_parts(k, &vars, &row, t.rows, &mut |k, vars, rows| {
                    visit_parts(k, vars, &last, t.columns, &mut |k, vars, columns| {
                        self.emit_tile(k, vars, &[side(rows, &row), side(columns, &last)], t);
                    });
                }),
            }
        });
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

/// The size in a range of a tile that divides an extent: at least a line if there is such a divisor.
fn tile_dividing(extent: usize, line: usize, [least, most]: [usize; 2]) -> Option<usize> {
    let line = line.clamp(least, most);
    let divides = |n: &usize| extent.is_multiple_of(*n);
    let longer = (line..=most).find(divides);
    longer.or_else(|| (least..line).rev().find(divides))
}

/// The most rows of a tile with so many columns, of an operand of which a cache line has `line` elements.
fn most_rows(columns: usize, extent: usize, line: usize) -> usize {
    let most = match columns < COLUMNS[0] {
        true => ELEMENTS / columns,
        false => ROWS[1],
    };
    let shared = (extent / PARTS).max(line.clamp(ROWS[0], ROWS[1]));
    most.min(shared).min(extent)
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
