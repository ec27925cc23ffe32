//! AMX: `tdpbf16ps` adds the products of 16 rows by 32 product indices with 16 columns to a tile of 16 by 16 sums.
//! `tdpbusd` and `tdpbssd` do so for 64 product indices of bytes, the first factors of which are u8 or i8.
//!
//! Rust's intrinsics are unstable, so this is assembly. Tiles are state of the thread: [`configure`] sets their sizes, which
//! costs about 50 ns, and [`release`] returns them to their initial state, so that the system need not save them. The
//! registers: 0 to 3 are sums (rows of the first tile of A, then of the second, by two groups of 16 columns), 4 and 5 are
//! the tiles of A, 6 and 7 those of B.

use super::{COLS, Factors, PREFETCHED, PairJob, STEP_GROUPS, SumRows};
use crate::math::contract::ByteInput;
use std::arch::asm;
use std::sync::OnceLock;

/// Whether this process may use AMX. The first call asks the system.
pub(super) fn is_permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(ask_permission)
}

/// Asks Linux to allow this process, with all its threads, to use the tiles' data (see arch/x86/xstate in its
/// documentation).
#[cfg(target_os = "linux")]
fn ask_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call reads no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask_permission() -> bool {
    false
}

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// The number of bytes in a row of each tile.
    row_bytes: [u16; 16],
    /// The number of rows of each tile.
    rows: [u8; 16],
}

/// Configures the tiles for blocks with these rows.
///
/// # Safety
/// The machine has AMX, and the process may use it. Both numbers are at most 16.
pub(super) unsafe fn configure([first, second]: [usize; 2]) {
    let mut config = TileConfig {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    // A tile cannot be empty. An unused one is not touched.
    let (first, second) = (first as u8, second.max(1) as u8);
    for (i, rows) in [first, first, second, second, first, second, 16, 16]
        .into_iter()
        .enumerate()
    {
        (config.row_bytes[i], config.rows[i]) = (64, rows);
    }
    // SAFETY: the configuration is valid.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, preserves_flags, readonly)) };
}

/// Returns the tiles to their initial state.
///
/// # Safety
/// The machine has AMX.
pub(super) unsafe fn release() {
    // SAFETY: guaranteed by the caller.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
}

/// The instructions of a step, by the tile that they load or the sums that they add to. The first argument multiplies.
macro_rules! tile {
    ($dot:literal a0) => {
        "tileloadd tmm4, [{a0} + {row}]"
    };
    ($dot:literal a1) => {
        "tileloadd tmm5, [{a1} + {row}]"
    };
    ($dot:literal b0) => {
        "tileloadd tmm6, [{b} + {bs}]"
    };
    ($dot:literal b1) => {
        "tileloadd tmm7, [{b} + {bs} + 64]"
    };
    ($dot:literal a0b0) => {
        concat!($dot, " tmm0, tmm4, tmm6")
    };
    ($dot:literal a0b1) => {
        concat!($dot, " tmm1, tmm4, tmm7")
    };
    ($dot:literal a1b0) => {
        concat!($dot, " tmm2, tmm5, tmm6")
    };
    ($dot:literal a1b1) => {
        concat!($dot, " tmm3, tmm5, tmm7")
    };
}

/// The loop over the steps of a segment, with the instructions for the tiles that are used.
macro_rules! steps {
    ($dot:literal, $job:ident, $a:ident, $b:ident, $next:ident, [$($tile:ident)*]) => {
        asm!(
            "2:",
            $(tile!($dot $tile),)*
            "prefetcht1 [{next}]",
            "prefetcht1 [{next} + 64]",
            "prefetcht1 [{next} + 128]",
            "prefetcht1 [{next} + 192]",
            "prefetcht1 [{next} + 256]",
            "prefetcht1 [{next} + 320]",
            "prefetcht1 [{next} + 384]",
            "prefetcht1 [{next} + 448]",
            "add {next}, 512",
            "add {b}, 2048",
            "add {a0}, 64",
            "add {a1}, 64",
            "dec {n}",
            "jnz 2b",
            a0 = inout(reg) $a[0] => _, a1 = inout(reg) $a[1] => _, row = in(reg) $job.a_row,
            b = inout(reg) $b => _, next = inout(reg) $next => _, bs = in(reg) 4 * COLS, n = inout(reg) $job.groups / STEP_GROUPS => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
            out("tmm7") _, options(nostack, readonly)
        )
    };
}

/// The tiles of a block that are used.
#[derive(Clone, Copy)]
enum UsedTiles {
    /// Two of A, two of B.
    All,
    /// Two of A, one of B: at most 16 columns.
    Narrow,
    /// One of A, two of B: at most 16 rows.
    Low,
    /// One of each.
    One,
}

/// Defines a function that adds the products of one segment to the sums, which are in tiles, with the given instruction.
macro_rules! segment_function {
    ($name:ident, $dot:literal) => {
        /// # Safety
        /// As for [`run_block`]; there is a step.
        #[inline]
        unsafe fn $name(job: &PairJob, used: UsedTiles, a: [*const u8; 2], [b, next]: [*const u16; 2]) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                match used {
                    UsedTiles::All => steps!($dot, job, a, b, next, [b0 a0 a0b0 b1 a0b1 a1 a1b0 a1b1]),
                    UsedTiles::Narrow => steps!($dot, job, a, b, next, [b0 a0 a0b0 a1 a1b0]),
                    UsedTiles::Low => steps!($dot, job, a, b, next, [b0 a0 a0b0 b1 a0b1]),
                    UsedTiles::One => steps!($dot, job, a, b, next, [b0 a0 a0b0]),
                }
            }
        }
    };
}

segment_function!(add_pairs, "tdpbf16ps");
segment_function!(add_unsigned_bytes, "tdpbusd");
segment_function!(add_signed_bytes, "tdpbssd");

/// Computes a block into `sums`, which have [`COLS`] columns.
///
/// # Safety
/// As for [`PairBlocks::compute`](super::PairBlocks::compute); the tiles are configured for the block's rows.
#[inline]
pub(super) unsafe fn run_block(factors: Factors, job: &PairJob, sums: SumRows) {
    let tall = job.rows[1] > 0;
    let used = match (tall, job.cols > COLS / 2) {
        (true, true) => UsedTiles::All,
        (true, false) => UsedTiles::Narrow,
        (false, true) => UsedTiles::Low,
        (false, false) => UsedTiles::One,
    };
    let segments = if job.groups == 0 { &[] } else { job.segments };
    // SAFETY: guaranteed by the caller. The sums in tiles survive from one piece of assembly to the next, because
    // compiled code uses no tiles.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, preserves_flags, nomem)
        );
        let (mut b, mut next) = (job.b, job.next);
        for &offset in segments {
            let a = job.a.map(|a| a.wrapping_add(offset));
            match factors {
                Factors::Bf16 => add_pairs(job, used, a, [b, next]),
                Factors::Bytes(ByteInput::Unsigned) => add_unsigned_bytes(job, used, a, [b, next]),
                Factors::Bytes(ByteInput::Signed) => add_signed_bytes(job, used, a, [b, next]),
            }
            b = b.wrapping_add(job.groups * 2 * COLS);
            next = next.wrapping_add(job.groups / STEP_GROUPS * PREFETCHED);
        }
        asm!("tilestored [{c} + {s}], tmm0", "tilestored [{c} + {s} + 64], tmm1",
            c = in(reg) sums.first, s = in(reg) 4 * sums.row, options(nostack, preserves_flags));
        if tall {
            asm!("tilestored [{c} + {s}], tmm2", "tilestored [{c} + {s} + 64], tmm3",
                c = in(reg) sums.at(job.rows[0], 0), s = in(reg) 4 * sums.row, options(nostack, preserves_flags));
        }
    }
}
