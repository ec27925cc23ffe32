//! Kernels over few long rows. Threads share parts of rows: two threads that share three rows would leave one of them
//! without work for a third of the time.

use super::Scheduler;
use super::vars::Vars;
use crate::kernel::KernelBuilder;

/// Rows are divided if there are fewer than these.
const FEW: usize = 32;
/// The number of parts of all rows, so that many threads get nearly equal shares.
const PARTS: usize = 64;
/// The minimum length of a part, in elements. Shorter ones would cost more than equal shares gain.
const SHORTEST: usize = 4096;
/// Parts have a multiple of this number of elements if possible: whole vectors of every dtype.
const UNIT: usize = 64;

/// The number of parts of equal length into which to divide each of `rows` rows of `len` elements, if that is worthwhile.
/// `None` also for lengths without a suitable divisor: a shorter last part would need the code of an element twice.
fn divide_rows(rows: usize, len: usize) -> Option<usize> {
    if rows == 0 || rows >= FEW || len < 2 * SHORTEST {
        return None;
    }
    let most = len / SHORTEST;
    let wanted = PARTS.div_ceil(rows).clamp(2, most);
    // The least count above the wanted one, or else the greatest below it.
    let counts = || (wanted..=most.min(4 * wanted)).chain((2..wanted).rev());
    let divides = |unit: usize| counts().find(|n| len.is_multiple_of(n * unit));
    divides(UNIT).or_else(|| divides(1))
}

impl Scheduler<'_> {
    /// Emits the loops over parts of rows. Returns whether the rows are few and long; if they are not, emits nothing. The
    /// last kept loop runs along a row.
    pub(super) fn emit_long_rows(&mut self, k: &mut KernelBuilder) -> bool {
        let kept = self.kept.clone();
        let Some((row, outer)) = kept.split_last().filter(|(_, outer)| !outer.is_empty()) else {
            return false;
        };
        let mut extents: Vec<usize> = outer.iter().map(|l| l.extent).collect();
        let rows = extents.iter().fold(1usize, |n, &e| n.saturating_mul(e));
        let Some(count) = divide_rows(rows, row.extent) else {
            return false;
        };
        let len = row.extent / count;
        extents.push(count);
        k.parallel(&extents, |k, v| {
            let part = v[outer.len()];
            let vars = Vars::default().with_loops(outer, v).with_part(row.last, 0, len, part);
            k.vector(len, |k, v| {
                self.emit_point(k, vars.with_loops(&kept[outer.len()..], &[v]));
            });
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::divide_rows;

    #[test]
    fn rows_are_divided_evenly() {
        assert_eq!(divide_rows(7, 131_072), Some(16));
        assert_eq!(divide_rows(3, 224 * 224), Some(8));
        assert_eq!(divide_rows(2, 29 * 1733), None);
        assert_eq!(divide_rows(15, 65_537), None);
        assert_eq!(divide_rows(1, 1 << 20), Some(64));
        assert_eq!(divide_rows(32, 1 << 20), None);
        assert_eq!(divide_rows(3, 8191), None);
        assert_eq!(divide_rows(0, 1 << 20), None);
    }
}
