//! Powers of two by which matrices are divided, so that squares of their elements neither overflow nor underflow. The division is exact.

use super::real::Real;

/// The largest magnitude of an element, as a power of two; 1 for zeros.
pub(super) fn magnitude<T: Real>(v: &[T]) -> f64 {
    let most = v.iter().fold(T::ZERO, |m, x| if x.abs() > m { x.abs() } else { m });
    power_of_two(most.into())
}

/// The power of two at or below `x >= 0`, limited to powers whose reciprocals are normal numbers too; 1 for zero.
pub(super) fn power_of_two(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    // The largest and smallest results are 2^1000 and 2^-1000.
    let (most, least) = (f64::from_bits(2023 << 52), f64::from_bits(23 << 52));
    match x > 0.0 {
        true => f64::from_bits(x.clamp(least, most).to_bits() & EXPONENT),
        false => 1.0,
    }
}

/// Divides the elements by a power of two, in f64.
pub(super) fn divide_all<T: Real>(v: &mut [T], scale: f64) {
    v.iter_mut().for_each(|x| *x = T::nearest((*x).into() / scale));
}
