//! Copies of rows.
//!
//! For rows of half a kilobyte to a few, a loop of 32-byte vectors moves up to 1.6 times as much from and to memory as the C library's
//! `memcpy` on AMD's processors (Zen 5, tensors beyond the caches), and as much within the caches. Wider vectors, which cross a cache line in
//! each unaligned access, gain less.

#[cfg(target_arch = "x86_64")]
use crate::target::{Isa, thread_target};

/// The bytes of rows for which this holds.
#[cfg(target_arch = "x86_64")]
const LONG: std::ops::RangeInclusive<usize> = 512..=4096;
/// The bytes of rows whose copy takes less time than a call of `memcpy`.
#[cfg(target_arch = "x86_64")]
const SHORT: std::ops::Range<usize> = 32..128;

/// Copies a row to another of the same length.
#[inline]
pub(crate) fn copy_row<T: Copy>(from: &[T], to: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if LONG.contains(&size_of_val(from)) && from.len() == to.len() && thread_target().isa() != Isa::Portable {
        // SAFETY: both rows have this many bytes, more than a vector, and the machine has AVX2. Copies of bytes may be of any type.
        return unsafe { copy_long_row(from.as_ptr().cast(), to.as_mut_ptr().cast(), size_of_val(from)) };
    }
    to.copy_from_slice(from);
}

/// [`copy_vectors`], out of line: callers copy most rows by `memcpy`.
///
/// # Safety
/// As for [`copy_vectors`].
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn copy_long_row(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { copy_vectors(from, to, n) };
}

/// Copies rows of `n` elements to others. One choice of the method serves all, and vectors copy short rows too.
///
/// # Panics
/// If a row has another number of elements.
#[inline]
pub(crate) fn copy_rows<'a, T: Copy + 'a>(n: usize, rows: impl Iterator<Item = (&'a [T], &'a mut [T])>) {
    #[cfg(target_arch = "x86_64")]
    {
        let bytes = n.saturating_mul(size_of::<T>());
        if (SHORT.contains(&bytes) || LONG.contains(&bytes)) && thread_target().isa() != Isa::Portable {
            // SAFETY: the machine has AVX2.
            return unsafe { copy_rows_of_vectors(n, rows) };
        }
    }
    rows.for_each(|(from, to)| {
        assert_eq!(from.len(), n);
        to.copy_from_slice(from);
    });
}

/// [`copy_rows`] of at least 32 bytes.
///
/// # Safety
/// The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_rows_of_vectors<'a, T: Copy + 'a>(n: usize, rows: impl Iterator<Item = (&'a [T], &'a mut [T])>) {
    for (from, to) in rows {
        assert!(from.len() == n && to.len() == n);
        // SAFETY: both rows have this many bytes. Copies of bytes may be of any type.
        unsafe { copy_vectors(from.as_ptr().cast(), to.as_mut_ptr().cast(), n * size_of::<T>()) };
    }
}

/// Copies `n` bytes, at least 32. The last vector may overlap the one before.
///
/// # Safety
/// `from` and `to` have `n` bytes and do not overlap. The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn copy_vectors(from: *const u8, to: *mut u8, n: usize) {
    use std::arch::x86_64::*;
    let copy = |i: usize| {
        // SAFETY: the callers' offsets leave room for a vector.
        unsafe { _mm256_storeu_si256(to.add(i).cast(), _mm256_loadu_si256(from.add(i).cast())) };
    };
    let last = n - size_of::<__m256i>();
    let mut i = 0;
    while i < last {
        copy(i);
        i += size_of::<__m256i>();
    }
    copy(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_lengths_are_copied_and_nothing_else() {
        let from: Vec<u16> = (0..2100).collect();
        for n in (0..300).chain(1000..1040).chain(2030..2060) {
            let mut to = vec![u16::MAX; n + 2];
            copy_row(&from[3..3 + n], &mut to[1..1 + n]);
            assert_eq!((to[0], to[n + 1]), (u16::MAX, u16::MAX));
            assert_eq!(to[1..1 + n], from[3..3 + n]);
            let mut rows = vec![u16::MAX; 2 * n + 2];
            let (first, second) = rows[..2 * n].split_at_mut(n);
            copy_rows(n, [(&from[..n], first), (&from[5..5 + n], second)].into_iter());
            assert_eq!([&from[..n], &from[5..5 + n], &[u16::MAX; 2]].concat(), rows);
        }
    }

    #[test]
    #[should_panic]
    fn rows_of_another_length_are_refused() {
        copy_rows(40, [(&[0u16; 40][..], &mut [0u16; 41][..])].into_iter());
    }

    #[test]
    #[should_panic]
    fn rows_of_different_lengths_are_refused() {
        copy_row(&[0u64; 40], &mut [0u64; 41]);
    }
}
