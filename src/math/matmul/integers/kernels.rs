//! The kernels of products with integers.

use super::form::StoredWidth;
use crate::math::isa::per_isa;
use crate::math::simd::{Bf16, Simd, prefetch};

/// The rows of A and C of a product with few rows. Strides are in elements.
#[derive(Clone, Copy)]
pub(in crate::math::matmul) struct FewRows {
    /// Row 0 of A.
    pub a: *const f32,
    /// The strides of A between rows and between product indices.
    pub a_strides: [usize; 2],
    /// The number of rows.
    pub count: usize,
    /// The panel's first column of C.
    pub c: *mut f32,
    /// The stride between rows of C; columns are contiguous.
    pub c_row: usize,
    /// The panel's number of columns.
    pub cols: usize,
}

/// What the groups of a panel have: `2 * LANES` values each.
#[derive(Clone, Copy)]
pub(super) struct GroupValues {
    /// The scales, f32 or bf16.
    pub scales: *const u8,
    pub has_narrow_scales: bool,
    /// The zero points, or null.
    pub zeros: *const i8,
    /// The number of product indices of a group.
    pub size: usize,
}

pub(super) struct ProductJob {
    pub data: *const u8,
    pub storage: StoredWidth,
    /// Whether four product indices are side by side.
    pub in_quads: bool,
    pub groups: GroupValues,
    pub k: usize,
    /// For each row, the sums of its groups, if there are zero points.
    pub sums: *const f32,
    pub rows: FewRows,
}

pub(super) struct UnpackJob {
    pub data: *const u8,
    pub storage: StoredWidth,
    /// Whether four product indices are side by side.
    pub in_quads: bool,
    pub groups: GroupValues,
    pub k0: usize,
    pub k1: usize,
    pub dst: *mut f32,
}

/// Sums of groups of the elements of rows.
pub(super) struct SumJob {
    pub rows: FewRows,
    pub group: usize,
    pub groups: usize,
    pub sums: *mut f32,
}

/// How far ahead of the integers that it multiplies a kernel prefetches, in bytes. The processor's own prefetcher starts anew at
/// each page and does not keep up with one byte or half a byte for each multiply-add.
pub(super) const AHEAD: usize = 2048;

impl GroupValues {
    /// The scales of group `g`.
    #[inline(always)]
    pub(super) unsafe fn load_scales<S: Bf16>(&self, g: usize) -> [S::V; 2] {
        let at = 2 * g * S::LANES;
        // SAFETY: the caller provides a group of the panel.
        unsafe {
            if self.has_narrow_scales {
                let p = self.scales.cast::<u16>().add(at);
                return [S::load_bf16(p), S::load_bf16(p.add(S::LANES))];
            }
            let p = self.scales.cast::<f32>().add(at);
            [S::load(p), S::load(p.add(S::LANES))]
        }
    }

    /// Prefetches what group `g` has in the next panel of `k` product indices. The few bytes of each panel do not start the processor's own
    /// prefetcher.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn prefetch_next_panel(&self, g: usize, k: usize) {
        use crate::math::pairs::COLS;
        let scale = if self.has_narrow_scales { 2 } else { 4 };
        let group = COLS * (scale + !self.zeros.is_null() as usize);
        let next = self.scales.wrapping_add(k / self.size * group);
        prefetch(next.wrapping_add(g * COLS * scale));
        if !self.has_narrow_scales {
            prefetch(next.wrapping_add(g * COLS * scale + 64));
        }
        if !self.zeros.is_null() {
            prefetch(next.wrapping_add(k / self.size * COLS * scale + g * COLS));
        }
    }

    /// The zero points of group `g`, if there are any.
    #[inline(always)]
    pub(super) unsafe fn load_zeros<S: Bf16>(&self, g: usize) -> Option<[S::V; 2]> {
        // SAFETY: the caller provides a group of the panel.
        unsafe {
            let p = self.zeros.wrapping_add(2 * g * S::LANES);
            (!self.zeros.is_null()).then(|| [S::load_i8(p), S::load_i8(p.add(S::LANES))])
        }
    }
}

/// Calls `multiply_rows` of the module that uses it for all rows of a job, up to four at a time. Unsafe as `multiply_rows` is.
#[cfg(target_arch = "x86_64")]
macro_rules! multiply_in_fours {
    ($job:expr, $rows:expr) => {{
        let (job, mut row) = ($job, 0);
        while row < job.rows.count {
            let rows = [1, 1, 2, 2, 4][(job.rows.count - row).min(4)];
            match (rows, job.storage) {
                (1, StoredWidth::Nibbles) => multiply_rows::<1, true>(job, $rows, row),
                (2, StoredWidth::Nibbles) => multiply_rows::<2, true>(job, $rows, row),
                (_, StoredWidth::Nibbles) => multiply_rows::<4, true>(job, $rows, row),
                (1, _) => multiply_rows::<1, false>(job, $rows, row),
                (2, _) => multiply_rows::<2, false>(job, $rows, row),
                _ => multiply_rows::<4, false>(job, $rows, row),
            }
            row += rows;
        }
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use multiply_in_fours;

const NIBBLES: u8 = 0;
const BYTES: u8 = 1;
const WORDS: u8 = 2;
/// Nibbles and bytes of four product indices side by side.
const QUAD_NIBBLES: u8 = 3;
const QUAD_BYTES: u8 = 4;

/// The integers of product indices `k` and `k + 1` as numbers: for each index two vectors. `k` is even. If `pair` is
/// false, only index `k` is read, and the other is zero.
#[inline(always)]
unsafe fn load_integers<S: Bf16, const FORM: u8>(data: *const u8, k: usize, pair: bool) -> [[S::V; 2]; 2] {
    let nr = 2 * S::LANES;
    // SAFETY: the caller provides a panel that contains these product indices.
    unsafe {
        if FORM >= QUAD_NIBBLES {
            return load_from_quads::<S, FORM>(data, k);
        }
        let bytes = [1, 2, 4][FORM as usize] * nr;
        prefetch(data.wrapping_add(k / 2 * bytes + AHEAD));
        if FORM == WORDS {
            prefetch(data.wrapping_add(k / 2 * bytes + AHEAD + 64));
        }
        let mut w = [[S::splat(0.0); 2]; 2];
        for v in 0..2 {
            if FORM == NIBBLES {
                [w[0][v], w[1][v]] = S::load_nibbles(data.add(k / 2 * nr + v * S::LANES));
                continue;
            }
            for p in 0..1 + pair as usize {
                let offset = (k + p) * nr + v * S::LANES;
                w[p][v] = match FORM {
                    BYTES => S::load_i8(data.cast::<i8>().add(offset)),
                    _ => S::load_i16(data.cast::<i16>().add(offset)),
                };
            }
        }
        w
    }
}

/// [`load_integers`] of both product indices, four of which are side by side.
#[inline(always)]
unsafe fn load_from_quads<S: Bf16, const FORM: u8>(data: *const u8, k: usize) -> [[S::V; 2]; 2] {
    let quad = 8 * S::LANES;
    // SAFETY: the caller provides a panel that contains these product indices.
    unsafe {
        let mut w = [[S::splat(0.0); 2]; 2];
        for (v, p) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let vector = |q: usize| data.add(q * quad + v * 4 * S::LANES).cast::<u32>();
            w[p][v] = match FORM {
                QUAD_BYTES => S::load_byte_of(vector(k / 4), (k + p) % 4),
                _ => S::load_nibble_of(vector(k / 8), (k + p) % 4 * 2 + k / 4 % 2),
            };
        }
        w
    }
}

/// Adds the products of the numbers `w` of one product index with an element of each of `R` rows.
#[inline(always)]
unsafe fn add_products<S: Bf16, const R: usize>(sums: &mut [[S::V; 2]; R], w: [S::V; 2], a: *const f32, a_row: usize) {
    for r in 0..R {
        // SAFETY: the caller provides the rows.
        unsafe {
            let x = S::splat(*a.add(r * a_row));
            for v in 0..2 {
                sums[r][v] = S::fma(x, w[v], sums[r][v]);
            }
        }
    }
}

/// `R` rows from row `row` on. Each group is summed before it is scaled, in two sums for each result, so that one row
/// keeps four multiply-adds in flight. The group's zero point, times the sum of the row's elements, is subtracted from the sum.
#[inline(always)]
unsafe fn multiply_rows<S: Bf16, const R: usize, const FORM: u8>(j: &ProductJob, row: usize) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let [a_row, a_k] = j.rows.a_strides;
        let a = j.rows.a.add(row * a_row);
        let groups = j.k / j.groups.size;
        let mut total = [[S::splat(0.0); 2]; R];
        for g in 0..groups {
            let (mut k, end) = (g * j.groups.size, (g + 1) * j.groups.size);
            let mut sums = [[[S::splat(0.0); 2]; R]; 2];
            while k + 1 < end {
                let w = load_integers::<S, FORM>(j.data, k, true);
                for p in 0..2 {
                    add_products::<S, R>(&mut sums[p], w[p], a.add((k + p) * a_k), a_row);
                }
                k += 2;
            }
            // Not in the loop above: the sums stay in registers only if their indices are constants.
            if k < end {
                let w = load_integers::<S, FORM>(j.data, k, false);
                add_products::<S, R>(&mut sums[0], w[0], a.add(k * a_k), a_row);
            }
            let scales = j.groups.load_scales::<S>(g);
            let zeros = j.groups.load_zeros::<S>(g);
            for r in 0..R {
                for v in 0..2 {
                    let mut sum = S::add(sums[0][r][v], sums[1][r][v]);
                    if let Some(zeros) = zeros {
                        let of_row = S::splat(-*j.sums.add((row + r) * groups + g));
                        sum = S::fma(of_row, zeros[v], sum);
                    }
                    total[r][v] = S::fma(sum, scales[v], total[r][v]);
                }
            }
        }
        for r in 0..R {
            store_row::<S>(&j.rows, row + r, total[r]);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn store_row<S: Bf16>(rows: &FewRows, row: usize, sums: [S::V; 2]) {
    for (v, sum) in sums.into_iter().enumerate() {
        let first = v * S::LANES;
        let n = rows.cols.saturating_sub(first).min(S::LANES);
        // SAFETY: the caller provides the panel's columns of C.
        unsafe { S::store_first(rows.c.add(row * rows.c_row).wrapping_add(first), n, sum) };
    }
}

#[inline(always)]
unsafe fn product_body<S: Bf16>(j: &ProductJob) {
    let mut row = 0;
    while row < j.rows.count {
        let rows = [1, 1, 2, 2, 4][(j.rows.count - row).min(4)];
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (rows, j.storage) {
                // Only rows with infinities or NaN.
                (_, StoredWidth::Nibbles) if j.in_quads => {
                    (row..row + rows).for_each(|r| multiply_rows::<S, 1, QUAD_NIBBLES>(j, r))
                }
                (_, StoredWidth::Bytes) if j.in_quads => {
                    (row..row + rows).for_each(|r| multiply_rows::<S, 1, QUAD_BYTES>(j, r))
                }
                (1, StoredWidth::Nibbles) => multiply_rows::<S, 1, NIBBLES>(j, row),
                (2, StoredWidth::Nibbles) => multiply_rows::<S, 2, NIBBLES>(j, row),
                (_, StoredWidth::Nibbles) => multiply_rows::<S, 4, NIBBLES>(j, row),
                (1, StoredWidth::Bytes) => multiply_rows::<S, 1, BYTES>(j, row),
                (2, StoredWidth::Bytes) => multiply_rows::<S, 2, BYTES>(j, row),
                (_, StoredWidth::Bytes) => multiply_rows::<S, 4, BYTES>(j, row),
                (1, StoredWidth::Words) => multiply_rows::<S, 1, WORDS>(j, row),
                (2, StoredWidth::Words) => multiply_rows::<S, 2, WORDS>(j, row),
                (_, StoredWidth::Words) => multiply_rows::<S, 4, WORDS>(j, row),
            }
        }
        row += rows;
    }
}

#[inline(always)]
unsafe fn unpack_form<S: Bf16, const FORM: u8>(j: &UnpackJob) {
    let nr = 2 * S::LANES;
    // SAFETY: the caller provides a panel that contains these product indices, and room for them.
    unsafe {
        let mut k = j.k0;
        while k < j.k1 {
            let group = k / j.groups.size;
            let scales = j.groups.load_scales::<S>(group);
            let zeros = j.groups.load_zeros::<S>(group).unwrap_or([S::splat(0.0); 2]);
            let end = ((group + 1) * j.groups.size).min(j.k1);
            while k < end {
                let in_pairs = FORM == NIBBLES || FORM >= QUAD_NIBBLES;
                let (first, odd) = if in_pairs { (k / 2 * 2, k % 2) } else { (k, 0) };
                let w = load_integers::<S, FORM>(j.data, first, false)[odd];
                let dst = j.dst.add((k - j.k0) * nr);
                // Differences of small integers are exact.
                S::store(dst, S::mul(S::sub(w[0], zeros[0]), scales[0]));
                S::store(dst.add(S::LANES), S::mul(S::sub(w[1], zeros[1]), scales[1]));
                k += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack_body<S: Bf16>(j: &UnpackJob) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match j.storage {
            StoredWidth::Nibbles if j.in_quads => unpack_form::<S, QUAD_NIBBLES>(j),
            StoredWidth::Bytes if j.in_quads => unpack_form::<S, QUAD_BYTES>(j),
            StoredWidth::Nibbles => unpack_form::<S, NIBBLES>(j),
            StoredWidth::Bytes => unpack_form::<S, BYTES>(j),
            StoredWidth::Words => unpack_form::<S, WORDS>(j),
        }
    }
}

#[inline(always)]
unsafe fn sum_body<S: Simd>(j: &SumJob) {
    let [a_row, a_k] = j.rows.a_strides;
    for i in 0..j.rows.count * j.groups {
        // SAFETY: the caller provides the rows, and room for the sums.
        unsafe {
            let (row, group) = (i / j.groups, i % j.groups);
            let a = j.rows.a.add(row * a_row + group * j.group * a_k);
            let mut sum = S::splat(0.0);
            let mut rest = 0.0;
            let whole = if a_k == 1 { j.group / S::LANES * S::LANES } else { 0 };
            for k in (0..whole).step_by(S::LANES) {
                sum = S::add(sum, S::load(a.add(k)));
            }
            for k in whole..j.group {
                rest += *a.add(k * a_k);
            }
            *j.sums.add(i) = S::sum_lanes(sum) + rest;
        }
    }
}

per_isa! {
    /// The kernel that sums groups.
    pub(super) fn sum_kernel = sum_body(j: &SumJob)
}

per_isa! {
    /// The kernel of products with few rows.
    pub(super) fn product_kernel = product_body(j: &ProductJob)
}

per_isa! {
    /// The kernel that unpacks a panel.
    pub(super) fn unpack_kernel = unpack_body(j: &UnpackJob)
}
