//! Maps in tiles.
//!
//! A map that reads a transposed operand along its last dim touches another cache line with each element, and returns
//! to a line only in the next iteration of an outer dim. If the lines in between do not fit the cache, each of them is
//! loaded once per element. Tiles over both dims use all of a line while it is cached.

use super::vars::Vars;
use super::{LoopDim, OperandSource, Scheduler};
use crate::kernel::{KernelBuilder, Var};

/// The size of a cache line.
const LINE: usize = 64;
/// The number of lines that stay cached even where their addresses compete for a part of the cache.
const LINES: usize = 64;
/// The side of a tile along the last dim. More lines a power of two apart would evict each other.
const COLUMNS: usize = 16;
/// The range of the side of a tile along the other dim.
const ROWS: [usize; 2] = [8, 64];

/// How a map is tiled: over one of the outer loops and the last one.
pub(super) struct Tiling {
    /// The position of the outer loop among the kept ones.
    outer: usize,
    /// The number of its iterations in a tile; divides its extent.
    rows: usize,
}

impl Scheduler<'_> {
    /// The tiles of a map, if one of its loads needs them.
    pub(super) fn tiling(&self) -> Option<Tiling> {
        let (last, outers) = self.kept.split_last()?;
        if !self.row.is_empty() || last.extent < COLUMNS {
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
        let lines: usize = self.kept[outer + 1..].iter().map(|l| l.extent).product();
        let extent = self.kept[outer].extent;
        let [least, most] = ROWS;
        let full_line = (LINE / size).clamp(least, most);
        let divides = |n: &usize| extent.is_multiple_of(*n);
        // At least a line if the extent has such a divisor.
        let rows = (full_line..=most)
            .find(divides)
            .or_else(|| (least..full_line).rev().find(divides));
        (lines > LINES).then_some(Tiling { outer, rows: rows? })
    }

    /// Emits a map in tiles.
    pub(super) fn emit_tiles(&mut self, k: &mut KernelBuilder, t: &Tiling) {
        let mut outers = self.kept.clone();
        let Some(last) = outers.pop() else { return };
        let row = outers[t.outer].last;
        let mut extents: Vec<usize> = outers.iter().map(|l| l.extent).collect();
        extents[t.outer] /= t.rows;
        k.parallel(&extents, |k, v| {
            let others = (0..outers.len()).filter(|&i| i != t.outer);
            let (dims, vars): (Vec<LoopDim>, Vec<Var>) = others.map(|i| (outers[i].clone(), v[i])).unzip();
            let vars = Vars::default()
                .with_loops(&dims, &vars)
                .with_part(row, 0, t.rows, v[t.outer]);
            let rows = LoopDim {
                extent: t.rows,
                last: row,
            };
            k.serial(last.extent / COLUMNS, |k, part| {
                let vars = vars.with_part(last.last, 0, COLUMNS, part);
                self.emit_tile(k, &vars, &rows, &last, COLUMNS);
            });
            let rest = last.extent % COLUMNS;
            if rest > 0 {
                let vars = vars.with_offset(last.last, last.extent - rest);
                self.emit_tile(k, &vars, &rows, &last, rest);
            }
        });
    }

    /// Emits the loops over a tile.
    fn emit_tile(&mut self, k: &mut KernelBuilder, vars: &Vars, rows: &LoopDim, last: &LoopDim, columns: usize) {
        k.serial(rows.extent, |k, v| {
            let vars = vars.with_loops(std::slice::from_ref(rows), &[v]);
            k.vector(columns, |k, v| {
                let vars = vars.with_loops(std::slice::from_ref(last), &[v]);
                self.emit_point(k, vars);
            });
        });
    }
}
