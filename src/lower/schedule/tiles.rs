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
/// The range of the side of a tile along the other dim.
const ROWS: [usize; 2] = [8, 64];
/// The most operands of a tile that are copied to scratch memory. The others are read in place.
const MOST_COPIES: usize = 8;

/// How a map is tiled: over one of the outer loops and the last one.
pub(super) struct Tiling {
    /// The position of the outer loop among the kept ones.
    outer: usize,
    /// The number of its iterations in a tile; divides its extent.
    rows: usize,
    /// The number of iterations of the last loop in a tile.
    columns: usize,
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
        if !self.row.is_empty() || last.extent < COLUMNS[0] {
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
        let extent = self.kept[outer].extent;
        let [least, most] = ROWS;
        let full_line = (LINE / size).clamp(least, most);
        let divides = |n: &usize| extent.is_multiple_of(*n);
        // At least a line if the extent has such a divisor.
        let rows = (full_line..=most)
            .find(divides)
            .or_else(|| (least..full_line).rev().find(divides))?;
        let columns = (LINE / size).clamp(COLUMNS[0], COLUMNS[1]).min(last.extent);
        Some(Tiling { outer, rows, columns })
    }

    /// Emits a map in tiles.
    pub(super) fn emit_tiles(&mut self, k: &mut KernelBuilder, t: &Tiling) {
        let mut outers = self.kept.clone();
        let Some(last) = outers.pop() else { return };
        let row = outers[t.outer].last;
        let mut extents: Vec<usize> = outers.iter().map(|l| l.extent).collect();
        extents[t.outer] /= t.rows;
        self.declare_copies(k, t, row, last.last);
        k.parallel(&extents, |k, v| {
            let others = (0..outers.len()).filter(|&i| i != t.outer);
            let (dims, vars): (Vec<LoopDim>, Vec<Var>) = others.map(|i| (outers[i].clone(), v[i])).unzip();
            let vars = Vars::default()
                .with_loops(&dims, &vars)
                .with_part(row, 0, t.rows, v[t.outer]);
            let sides = |columns: usize| {
                let side = |extent: usize, last: usize| LoopDim { extent, last };
                [side(t.rows, row), side(columns, last.last)]
            };
            k.serial(last.extent / t.columns, |k, part| {
                let vars = vars.with_part(last.last, 0, t.columns, part);
                self.emit_tile(k, &vars, &sides(t.columns), t);
            });
            let rest = last.extent % t.columns;
            if rest > 0 {
                let vars = vars.with_offset(last.last, last.extent - rest);
                self.emit_tile(k, &vars, &sides(rest), t);
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
