//! Models of the instructions, for tests: on machines that have them, the kernels are compared with these bit for bit, and
//! elsewhere the models check that operands lie where the instructions read them.

use super::{COLS, PairJob, STEP, STEP_GROUPS, TILE_ROWS};

fn widen(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// One sum of `vdpbf16ps`, or of the widening kernels: `sum` plus the products of pairs. The second elements come first.
/// Both instructions flush denormals; inputs here have none.
pub(super) fn sum_of_dots(sum: f32, a: &[u16], b: &[u16]) -> f32 {
    let pairs = a.chunks_exact(2).zip(b.chunks_exact(2));
    pairs.fold(sum, |sum, (a, b)| {
        let odd = widen(a[1]).mul_add(widen(b[1]), sum);
        widen(a[0]).mul_add(widen(b[0]), odd)
    })
}

/// One sum of `tdpbf16ps` over several steps: in each, the products of first and of second elements are summed separately
/// from zero, and the two sums are added to each other and then to the tile. (From Intel's description of the
/// instruction.)
pub(super) fn sum_of_tiles(sum: f32, a: &[u16], b: &[u16]) -> f32 {
    let steps = a.chunks(STEP).zip(b.chunks(STEP));
    steps.fold(sum, |sum, (a, b)| {
        let part = |first: usize| {
            let products = a.iter().zip(b).skip(first).step_by(2);
            products.fold(0f32, |s, (&a, &b)| widen(a).mul_add(widen(b), s))
        };
        sum + (part(0) + part(1))
    })
}

/// A tile register: up to 16 rows of 64 bytes.
type TileData = [[u16; STEP]; TILE_ROWS];

/// `tileloadd` of `rows` rows, `stride` bytes apart.
///
/// # Safety
/// The rows are readable.
unsafe fn load_tile(p: *const u16, rows: usize, stride: usize) -> TileData {
    let mut tile = [[0; STEP]; TILE_ROWS];
    for (r, row) in tile.iter_mut().enumerate().take(rows) {
        // SAFETY: guaranteed by the caller.
        *row = unsafe { p.byte_add(r * stride).cast::<[u16; STEP]>().read_unaligned() };
    }
    tile
}

/// A block as AMX computes it, with the tiles modelled.
///
/// # Safety
/// As for [`PairBlocks::compute`](super::PairBlocks::compute).
pub(super) unsafe fn run_block(job: &PairJob) -> Vec<f32> {
    let mut sums = vec![0f32; (job.rows[0] + job.rows[1]) * COLS];
    let mut b = job.b;
    for &offset in job.segments {
        for step in 0..job.groups / STEP_GROUPS {
            for (t, (a, rows)) in job.a.into_iter().zip(job.rows).enumerate() {
                for half in 0..2 {
                    // SAFETY: guaranteed by the caller.
                    let (a, b) = unsafe {
                        let a = a.add(offset).cast::<u16>().add(step * STEP);
                        (
                            load_tile(a, rows, job.a_row),
                            load_tile(b.add(half * STEP), 16, 4 * COLS),
                        )
                    };
                    for r in 0..rows {
                        for c in 0..16 {
                            let column: Vec<u16> = b.iter().flat_map(|k| [k[2 * c], k[2 * c + 1]]).collect();
                            let sum = &mut sums[(t * job.rows[0] + r) * COLS + half * 16 + c];
                            *sum = sum_of_tiles(*sum, &a[r], &column);
                        }
                    }
                }
            }
            // SAFETY: the panel has as many product indices.
            b = unsafe { b.add(STEP * COLS) };
        }
    }
    sums
}
