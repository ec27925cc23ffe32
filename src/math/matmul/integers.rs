//! A constant B whose elements are integers times scales. It is packed as integers: a product with few rows reads one
//! byte or half a byte for each weight. Products with more rows unpack panels, to f32 for the f32 tiles or to pairs of bf16.

mod pairing;

use crate::math::contract::{Constant, MatMul};
use crate::math::isa::per_isa;
use crate::math::simd::Simd;
use crate::target::Isa;
use crate::tensor::{AlignedBytes, Quantized};
use std::sync::Arc;

/// The maximum number of rows for which the integers are converted in registers, once for every four rows.
pub(super) const ROWS: usize = 4;

/// How an integer is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    /// Half a byte, with an offset of 8. The low half belongs to the even product index.
    Nibbles,
    /// A signed byte.
    Bytes,
    /// Two signed bytes.
    Words,
}

impl Storage {
    /// The bytes of one column of `k` integers.
    fn column_bytes(self, k: usize) -> usize {
        match self {
            Storage::Nibbles => k.div_ceil(2),
            Storage::Bytes => k,
            Storage::Words => 2 * k,
        }
    }

    /// The smallest storage for the integers of a matrix.
    fn for_matrix(q: &Quantized, paired: bool) -> Storage {
        let (mut least, mut most) = (0i16, 0i16);
        q.for_each_line(|_, line| {
            line.iter().for_each(|&x| (least, most) = (least.min(x), most.max(x)));
        });
        match (least, most) {
            (-8.., ..=7) if paired => Storage::Nibbles,
            (-128.., ..=127) => Storage::Bytes,
            _ => Storage::Words,
        }
    }
}

/// A packed B: for each panel of `nr` columns and each group of product indices `nr` scales, then for each panel the
/// integers, product index by product index.
pub(super) struct PackedIntegers {
    bytes: Arc<AlignedBytes>,
    pub(super) storage: Storage,
    k: usize,
    nr: usize,
    /// The number of product indices that share their scales.
    group: usize,
    panels: usize,
}

impl PackedIntegers {
    /// Packs B of `desc`, whose scales are shared by `group` product indices. `None` if this form does not fit B.
    pub(super) fn new(desc: &MatMul, group: usize, nr: usize, b: Constant) -> Option<PackedIntegers> {
        let (k, panels) = (desc.k, desc.n.div_ceil(nr));
        if group == 0 || !k.is_multiple_of(group) || desc.batch.iter().any(|d| d.b != 0) {
            return None;
        }
        let columns = panels.checked_mul(nr)?;
        let scales = columns.checked_mul(k / group)?.checked_mul(4)?;
        let key = [7, desc.n, k, desc.b[0], desc.b[1], nr, group];
        let bytes = b.get_or_pack_quantized(&key, |q| pack(q, desc, group, nr))?;
        let stored = |s: &Storage| {
            let integers = columns.checked_mul(s.column_bytes(k));
            integers.and_then(|n| n.checked_add(scales)) == Some(bytes.bytes().len())
        };
        let storage = [Storage::Nibbles, Storage::Bytes, Storage::Words]
            .into_iter()
            .find(stored)?;
        Some(PackedIntegers {
            bytes,
            storage,
            k,
            nr,
            group,
            panels,
        })
    }

    /// The integers and the scales of panel `j`.
    fn panel(&self, j: usize) -> (*const u8, *const f32) {
        let (groups, panel) = (self.k / self.group, self.nr * self.storage.column_bytes(self.k));
        let start = self.bytes.bytes().as_ptr();
        let scales = 4 * self.panels * groups * self.nr;
        let scale = start.wrapping_add(4 * j * groups * self.nr).cast();
        (start.wrapping_add(scales + j * panel), scale)
    }

    /// Writes product indices `k0..k1` of panel `j` to `dst`, `nr` elements for each.
    ///
    /// # Safety
    /// The panel exists, `k1 <= k`, `dst` has room, and the machine supports `isa`.
    pub(super) unsafe fn unpack(&self, isa: Isa, j: usize, [k0, k1]: [usize; 2], dst: *mut f32) {
        let (data, scales) = self.panel(j);
        let (storage, group) = (self.storage, self.group);
        let job = UnpackJob {
            data,
            scales,
            storage,
            group,
            k0,
            k1,
            dst,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { unpack_kernel(isa)(&job) };
    }

    /// Multiplies all rows of A with panel `j`.
    ///
    /// # Safety
    /// The panel exists, the pointers of `rows` are valid for it, and the machine supports `isa`.
    pub(super) unsafe fn multiply(&self, isa: Isa, j: usize, rows: FewRows) {
        let (data, scales) = self.panel(j);
        let (storage, group, k) = (self.storage, self.group, self.k);
        let job = ProductJob {
            data,
            scales,
            storage,
            group,
            k,
            rows,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { product_kernel(isa)(&job) };
    }
}

/// Packs a quantized B.
fn pack(q: &Quantized, desc: &MatMul, group: usize, nr: usize) -> AlignedBytes {
    let (k, groups, panels) = (desc.k, desc.k / group, desc.n.div_ceil(nr));
    // Pairs of product indices must not straddle groups.
    let storage = Storage::for_matrix(q, group.is_multiple_of(2) || groups == 1);
    let (scales, column) = (4 * panels * groups * nr, storage.column_bytes(k));
    let mut out = AlignedBytes::zeroed(scales + panels * nr * column);
    let (head, data) = out.bytes_mut().split_at_mut(scales);
    let columns_last = desc.b[1] == 1 && desc.b[0] == desc.n;
    for (i, s) in head.chunks_exact_mut(4).enumerate() {
        let (panel, g, column) = (i / nr / groups, i / nr % groups, i % nr);
        let column = (panel * nr + column).min(desc.n - 1);
        let scale = match columns_last {
            true => q.scale_at(g * group, column),
            false => q.scale_at(column, g * group),
        };
        s.copy_from_slice(&scale.to_ne_bytes());
    }
    // Lines run along the product index or along the columns.
    let along_k = (q.inner_dim() == 0) == columns_last;
    q.for_each_line(|index, line| {
        for (i, &x) in line.iter().enumerate() {
            let (p, c) = if along_k { (i, index) } else { (index, i) };
            let panel = c / nr * nr * column;
            match storage {
                Storage::Nibbles => data[panel + p / 2 * nr + c % nr] |= ((x + 8) as u8) << (p % 2 * 4),
                Storage::Bytes => data[panel + p * nr + c % nr] = x as u8,
                Storage::Words => {
                    let offset = panel + 2 * (p * nr + c % nr);
                    data[offset..offset + 2].copy_from_slice(&x.to_ne_bytes());
                }
            }
        }
    });
    out
}

/// The rows of A and C of a product with few rows. Strides are in elements.
#[derive(Clone, Copy)]
pub(super) struct FewRows {
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

struct ProductJob {
    data: *const u8,
    scales: *const f32,
    storage: Storage,
    group: usize,
    k: usize,
    rows: FewRows,
}

struct UnpackJob {
    data: *const u8,
    scales: *const f32,
    storage: Storage,
    group: usize,
    k0: usize,
    k1: usize,
    dst: *mut f32,
}

const NIBBLES: u8 = 0;
const BYTES: u8 = 1;
const WORDS: u8 = 2;

/// The integers of product indices `k` and `k + 1` as numbers: for each index two vectors. `k` is even. If `PAIR` is
/// not set, only index `k` is read, and the other is zero.
#[inline(always)]
unsafe fn load_integers<S: Simd, const FORM: u8>(data: *const u8, k: usize, pair: bool) -> [[S::V; 2]; 2] {
    let nr = 2 * S::LANES;
    // SAFETY: the caller provides a panel that contains these product indices.
    unsafe {
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

/// `R` rows from row `row` on. Each group is summed before it is scaled, in two sums for each result, so that one row
/// keeps four multiply-adds in flight.
#[inline(always)]
unsafe fn multiply_rows<S: Simd, const R: usize, const FORM: u8>(j: &ProductJob, row: usize) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let [a_row, a_k] = j.rows.a_strides;
        let a = j.rows.a.add(row * a_row);
        let mut total = [[S::splat(0.0); 2]; R];
        let mut scales = j.scales;
        let mut k = 0;
        while k < j.k {
            let end = k + j.group;
            let mut sums = [[[S::splat(0.0); 2]; R]; 2];
            while k < end {
                let pair = k + 1 < end;
                let w = load_integers::<S, FORM>(j.data, k, pair);
                for p in 0..1 + pair as usize {
                    for r in 0..R {
                        let x = S::splat(*a.add(r * a_row + (k + p) * a_k));
                        for v in 0..2 {
                            sums[p][r][v] = S::fma(x, w[p][v], sums[p][r][v]);
                        }
                    }
                }
                k += 1 + pair as usize;
            }
            for v in 0..2 {
                let scale = S::load(scales.add(v * S::LANES));
                for r in 0..R {
                    total[r][v] = S::fma(S::add(sums[0][r][v], sums[1][r][v]), scale, total[r][v]);
                }
            }
            scales = scales.add(2 * S::LANES);
        }
        for r in 0..R {
            store_row::<S>(&j.rows, row + r, total[r]);
        }
    }
}

#[inline(always)]
unsafe fn store_row<S: Simd>(rows: &FewRows, row: usize, sums: [S::V; 2]) {
    for (v, sum) in sums.into_iter().enumerate() {
        let first = v * S::LANES;
        let n = rows.cols.saturating_sub(first).min(S::LANES);
        // SAFETY: the caller provides the panel's columns of C.
        unsafe { S::store_first(rows.c.add(row * rows.c_row).wrapping_add(first), n, sum) };
    }
}

#[inline(always)]
unsafe fn product_body<S: Simd>(j: &ProductJob) {
    let mut row = 0;
    while row < j.rows.count {
        let rows = [1, 1, 2, 2, 4][(j.rows.count - row).min(4)];
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (rows, j.storage) {
                (1, Storage::Nibbles) => multiply_rows::<S, 1, NIBBLES>(j, row),
                (2, Storage::Nibbles) => multiply_rows::<S, 2, NIBBLES>(j, row),
                (_, Storage::Nibbles) => multiply_rows::<S, 4, NIBBLES>(j, row),
                (1, Storage::Bytes) => multiply_rows::<S, 1, BYTES>(j, row),
                (2, Storage::Bytes) => multiply_rows::<S, 2, BYTES>(j, row),
                (_, Storage::Bytes) => multiply_rows::<S, 4, BYTES>(j, row),
                (1, Storage::Words) => multiply_rows::<S, 1, WORDS>(j, row),
                (2, Storage::Words) => multiply_rows::<S, 2, WORDS>(j, row),
                (_, Storage::Words) => multiply_rows::<S, 4, WORDS>(j, row),
            }
        }
        row += rows;
    }
}

#[inline(always)]
unsafe fn unpack_form<S: Simd, const FORM: u8>(j: &UnpackJob) {
    let nr = 2 * S::LANES;
    // SAFETY: the caller provides a panel that contains these product indices, and room for them.
    unsafe {
        let mut k = j.k0;
        while k < j.k1 {
            let group = k / j.group;
            let scales = j.scales.add(group * nr);
            let scales = [S::load(scales), S::load(scales.add(S::LANES))];
            let end = ((group + 1) * j.group).min(j.k1);
            while k < end {
                let (first, odd) = if FORM == NIBBLES { (k / 2 * 2, k % 2) } else { (k, 0) };
                let w = load_integers::<S, FORM>(j.data, first, false)[odd];
                let dst = j.dst.add((k - j.k0) * nr);
                S::store(dst, S::mul(w[0], scales[0]));
                S::store(dst.add(S::LANES), S::mul(w[1], scales[1]));
                k += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack_body<S: Simd>(j: &UnpackJob) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match j.storage {
            Storage::Nibbles => unpack_form::<S, NIBBLES>(j),
            Storage::Bytes => unpack_form::<S, BYTES>(j),
            Storage::Words => unpack_form::<S, WORDS>(j),
        }
    }
}

per_isa! {
    /// The kernel of products with few rows.
    fn product_kernel = product_body(j: &ProductJob)
}

per_isa! {
    /// The kernel that unpacks a panel.
    fn unpack_kernel = unpack_body(j: &UnpackJob)
}

#[cfg(test)]
mod tests;
