//! A constant B whose elements are integers times scales. It is packed as integers: a product with few rows reads one
//! byte or half a byte for each weight. Products with more rows unpack panels, to f32 for the f32 tiles or to pairs of bf16.

#[cfg(target_arch = "x86_64")]
mod digits;
mod form;
mod kernels;
mod pack;
mod pairing;
#[cfg(target_arch = "x86_64")]
mod small;

use crate::math::contract::{Constant, MatMul};
use crate::math::scratch::{self, Scratch};
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use form::{StoredForm, StoredWidth};
pub(super) use kernels::FewRows;
use kernels::{GroupValues, ProductJob, SumJob, UnpackJob, product_kernel, sum_kernel, unpack_kernel};
use std::sync::Arc;

/// The number of rows for which the integers are read once. Without digits, more rows multiply faster with an unpacked B.
pub(super) const ROWS: usize = 4;
/// The maximum number of rows that are multiplied as digits. At 200, an unpacked B is 0.84 to 0.96 times as fast.
const DIGIT_ROWS: usize = 256;
/// The same where an unpacked B is multiplied in pairs.
const DIGIT_ROWS_OF_PAIRS: usize = 8;
/// The maximum number of rows of 8-bit integers that are multiplied as such. Each panel reads all of them again, and more may not stay in the L2
/// cache; other limits were not measured.
const SMALL_ROWS: usize = 1024;
/// The largest group for these. The sum of as many products of a signed byte and an unsigned one, and of the correction for the offset, fits i32.
const MAX_SMALL_GROUP: usize = 1 << 15;
/// Groups of product indices are multiples of this if four are side by side.
const QUAD_BLOCK: usize = 32;

/// A packed B. For each panel of `nr` columns and each group of product indices it has `nr` scales, then as many zero points,
/// if there are any; after those of all panels, for each panel the integers: product index by product index, or, for kernels that
/// multiply four bytes at a time, four product indices side by side for each column. Then nibbles of a byte are four product indices apart.
pub(super) struct PackedIntegers {
    bytes: Arc<AlignedBytes>,
    form: StoredForm,
    k: usize,
    nr: usize,
    /// The number of product indices that share their scales.
    group: usize,
    panels: usize,
    /// Whether four product indices are side by side.
    in_quads: bool,
    /// Whether the elements of A are 8-bit integers.
    has_small_rows: bool,
}

/// Rows of A as the kernels need them.
pub(super) enum PreparedRows {
    /// The rows themselves. For each row, the sum of each group of its elements, by which products multiply the zero points. Empty
    /// without zero points.
    Plain(Scratch),
    #[cfg(target_arch = "x86_64")]
    Digits(digits::Digits),
    #[cfg(target_arch = "x86_64")]
    Small(small::SmallRows),
}

impl PackedIntegers {
    /// Packs B of `desc`, whose scales are shared by `group` product indices, for kernels that multiply four bytes at a time if `quads`.
    /// `None` if this form does not fit B.
    pub(super) fn new(desc: &MatMul, group: usize, nr: usize, quads: bool, b: Constant) -> Option<PackedIntegers> {
        let (k, panels) = (desc.k, desc.n.div_ceil(nr));
        if group == 0 || !k.is_multiple_of(group) || desc.batch.iter().any(|d| d.b != 0) {
            return None;
        }
        let columns = panels.checked_mul(nr)?;
        let in_quads = quads && group.is_multiple_of(QUAD_BLOCK);
        let key = [7, desc.n, k, desc.b[0], desc.b[1], nr, group, in_quads as usize];
        let bytes = b.get_or_pack_quantized(&key, |q| pack::pack(q, desc, [group, nr], in_quads))?;
        let form = StoredForm::with_size(bytes.bytes().len(), columns, k, group)?;
        Some(PackedIntegers {
            bytes,
            form,
            k,
            nr,
            group,
            panels,
            in_quads,
            has_small_rows: desc.a_is_i8,
        })
    }

    /// The maximum number of rows that multiply faster with integers than with an unpacked B, which is multiplied in pairs if
    /// `in_pairs`.
    pub(super) fn most_rows(&self, in_pairs: bool) -> usize {
        match (self.has_digits(), in_pairs) {
            (false, _) => ROWS,
            (true, _) if self.multiplies_small_rows() => SMALL_ROWS,
            (true, false) => DIGIT_ROWS,
            (true, true) => DIGIT_ROWS_OF_PAIRS,
        }
    }

    /// Whether rows are multiplied as digits.
    fn has_digits(&self) -> bool {
        self.in_quads && self.form.storage != StoredWidth::Words
    }

    /// Whether rows are multiplied as the 8-bit integers that they are.
    fn multiplies_small_rows(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.has_digits() && self.has_small_rows && self.group <= MAX_SMALL_GROUP
    }

    /// The integers of panel `j`, and what its groups have.
    fn panel(&self, j: usize) -> (*const u8, GroupValues) {
        let groups = self.k / self.group;
        let values = groups * self.nr * self.form.group_bytes();
        let integers = self.nr * self.form.storage.column_bytes(self.k);
        let start = self.bytes.bytes().as_ptr();
        let scales = start.wrapping_add(j * values);
        let zeros = scales.wrapping_add(groups * self.nr * self.form.scale_bytes());
        let groups = GroupValues {
            scales,
            has_narrow_scales: self.form.has_narrow_scales,
            zeros: if self.form.has_zeros {
                zeros.cast()
            } else {
                std::ptr::null()
            },
            size: self.group,
        };
        (start.wrapping_add(self.panels * values + j * integers), groups)
    }

    /// Writes product indices `k0..k1` of panel `j` to `dst`, `nr` elements for each.
    ///
    /// # Safety
    /// The panel exists, `k1 <= k`, `dst` has room, and the machine supports `isa`.
    pub(super) unsafe fn unpack(&self, isa: Isa, j: usize, [k0, k1]: [usize; 2], dst: *mut f32) {
        let (data, groups) = self.panel(j);
        let job = UnpackJob {
            data,
            storage: self.form.storage,
            in_quads: self.in_quads,
            groups,
            k0,
            k1,
            dst,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { unpack_kernel(isa)(&job) };
    }

    /// Prepares the rows of A for [`PackedIntegers::multiply`].
    ///
    /// # Safety
    /// The pointers of `rows` are valid, and the machine supports `isa`, and multiplies four bytes at a time if B was packed for that.
    pub(super) unsafe fn prepare(&self, isa: Isa, rows: &FewRows) -> PreparedRows {
        #[cfg(target_arch = "x86_64")]
        if self.multiplies_small_rows() {
            // SAFETY: guaranteed by the caller.
            return PreparedRows::Small(unsafe { small::SmallRows::new(rows, self.k, self.group) });
        }
        #[cfg(target_arch = "x86_64")]
        if self.has_digits()
            // SAFETY: guaranteed by the caller.
            && let Some(digits) = unsafe { digits::Digits::new(rows, self.k) }
        {
            return PreparedRows::Digits(digits);
        }
        // SAFETY: guaranteed by the caller.
        PreparedRows::Plain(unsafe { self.sum_groups(isa, rows) })
    }

    /// The sums of [`PreparedRows::Plain`].
    ///
    /// # Safety
    /// As for [`PackedIntegers::prepare`].
    unsafe fn sum_groups(&self, isa: Isa, rows: &FewRows) -> Scratch {
        let groups = if self.form.has_zeros { self.k / self.group } else { 0 };
        let mut sums = scratch::take_buffer(groups * rows.count);
        if groups > 0 {
            let job = SumJob {
                rows: *rows,
                group: self.group,
                groups,
                sums: sums.as_mut_ptr(),
            };
            // SAFETY: guaranteed by the caller; the buffer has the sums.
            unsafe { sum_kernel(isa)(&job) };
        }
        sums
    }

    /// Multiplies all rows of A with panel `j`. `prepared` is what [`PackedIntegers::prepare`] returned for them.
    ///
    /// # Safety
    /// The panel exists, the pointers of `rows` are valid for it, and the machine is as for [`PackedIntegers::prepare`].
    pub(super) unsafe fn multiply(&self, isa: Isa, j: usize, rows: FewRows, prepared: &PreparedRows) {
        let (data, groups) = self.panel(j);
        let mut job = ProductJob {
            data,
            storage: self.form.storage,
            in_quads: self.in_quads,
            groups,
            k: self.k,
            sums: std::ptr::null(),
            rows,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match prepared {
                PreparedRows::Plain(sums) => {
                    job.sums = sums.as_ptr();
                    product_kernel(isa)(&job);
                }
                #[cfg(target_arch = "x86_64")]
                PreparedRows::Digits(digits) => digits::multiply(&job, digits),
                #[cfg(target_arch = "x86_64")]
                PreparedRows::Small(small) => small::multiply(&job, small),
            }
        }
    }
}

#[cfg(test)]
mod tests;
