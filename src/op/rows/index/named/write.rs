//! Writing named slices, without reading what was there.

use super::NamedSlices;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;

impl NamedSlices {
    /// Calls `f(to, from)` for each named slice of `dst`, or for parts of it, and the place where it begins in a tensor that has only
    /// these slices. Those of one place come in order. Without a pool, all come in order.
    pub(in crate::op::rows::index) fn write<D: Send>(
        &self,
        dst: &mut [D],
        pool: Option<&Pool>,
        f: impl Fn(&mut [D], usize) + Sync,
    ) {
        let (block, count) = (self.n * self.inner, self.places().len());
        if dst.is_empty() || count == 0 {
            return;
        }
        let Some(pool) = pool else {
            return self.write_blocks(dst, 0, &f);
        };
        if let Some(columns) = self.columns_per_part(size_of::<D>(), pool) {
            return pool.run_columns(dst, self.inner, columns, |part, mut dst| {
                for (k, &p) in self.places().iter().enumerate() {
                    f(dst.row(p as usize), k * self.inner + part * columns);
                }
            });
        }
        if self.outer == 1 && self.inner > 1 {
            let rows = self
                .n
                .div_ceil(self.place_parts(count * self.inner * size_of::<D>(), pool));
            return pool.run_parts(dst, rows * self.inner, |part, dst| {
                self.write_places(part * rows, dst, &f);
            });
        }
        let outer = units_per_part(self.outer, count * self.inner * size_of::<D>(), pool);
        pool.run_parts(dst, outer * block, |part, dst| {
            self.write_blocks(dst, part * outer * count * self.inner, &f);
        });
    }

    /// [`NamedSlices::write`] without dims before for the slices of `dst`, which are those from place `first` on.
    fn write_places<D>(&self, first: usize, dst: &mut [D], f: &impl Fn(&mut [D], usize)) {
        let places = first..first + dst.len() / self.inner;
        for (k, &p) in self.places().iter().enumerate() {
            if places.contains(&(p as usize)) {
                f(
                    &mut dst[(p as usize - first) * self.inner..][..self.inner],
                    k * self.inner,
                );
            }
        }
    }

    /// [`NamedSlices::write`] for some places of the dims before, whose slices begin at `from`.
    fn write_blocks<D>(&self, dst: &mut [D], mut from: usize, f: &impl Fn(&mut [D], usize)) {
        for dst in dst.chunks_exact_mut(self.n * self.inner) {
            for &p in self.places() {
                f(&mut dst[p as usize * self.inner..][..self.inner], from);
                from += self.inner;
            }
        }
    }
}
