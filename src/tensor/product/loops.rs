//! Products in plain loops, for builds without the crate `gemm`.

#[cfg(not(feature = "compiler"))]
use super::Product;

#[cfg(not(feature = "compiler"))]
macro_rules! product {
    ($($t:ty)*) => {
        $(impl Product for $t {
            unsafe fn product(
                sizes: [usize; 3],
                a: (*const $t, [usize; 2]),
                b: (*const $t, [usize; 2]),
                out: (*mut $t, usize),
                add: Option<$t>,
            ) {
                // SAFETY: the caller's contract.
                unsafe { product(sizes, a, b, out, add) }
            }
        })*
    };
}

#[cfg(not(feature = "compiler"))]
product! { f32 f64 }

/// [`Product::product`](super::Product::product).
///
/// # Safety
/// As there.
pub(super) unsafe fn product<T: Number>(
    [m, n, k]: [usize; 3],
    a: (*const T, [usize; 2]),
    b: (*const T, [usize; 2]),
    out: (*mut T, usize),
    add: Option<T>,
) {
    for i in 0..m {
        // SAFETY: the caller's contract; rows of `out` do not overlap.
        unsafe {
            let row = std::slice::from_raw_parts_mut(out.0.add(i * out.1), n);
            if add.is_none() {
                row.fill(T::default());
            }
            let left = |p: usize| {
                let x = *a.0.add(i * a.1[0] + p * a.1[1]);
                add.map_or(x, |factor| factor * x)
            };
            match b.1[1] {
                1 => add_rows(row, k, left, b.0, b.1[0]),
                _ => add_columns(row, k, left, b),
            }
        }
    }
}

/// What the loops compute with.
pub(super) trait Number: Copy + Default + std::ops::Mul<Output = Self> + std::ops::AddAssign {}

impl<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign> Number for T {}

/// Adds `left(p) * b[p, ..]` for all `p`, where rows of `b` have no gaps: the loop over a row is vectorised.
///
/// # Safety
/// `b` has `k` rows as long as `row`.
unsafe fn add_rows<T: Number>(row: &mut [T], k: usize, left: impl Fn(usize) -> T, b: *const T, b_row: usize) {
    for p in 0..k {
        // SAFETY: the caller's contract.
        let terms = unsafe { std::slice::from_raw_parts(b.add(p * b_row), row.len()) };
        let x = left(p);
        row.iter_mut().zip(terms).for_each(|(y, t)| *y += x * *t);
    }
}

/// Adds `left(p) * b[p, j]` for all `p`, element by element.
///
/// # Safety
/// As for [`add_rows`], with elements of a row of `b` as far apart as its second stride says.
unsafe fn add_columns<T: Number>(row: &mut [T], k: usize, left: impl Fn(usize) -> T, b: (*const T, [usize; 2])) {
    for (j, y) in row.iter_mut().enumerate() {
        for p in 0..k {
            // SAFETY: the caller's contract.
            *y += unsafe { left(p) * *b.0.add(p * b.1[0] + j * b.1[1]) };
        }
    }
}
