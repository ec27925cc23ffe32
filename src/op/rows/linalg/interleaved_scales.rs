//! Scales of matrices side by side.

use super::interleaved::{Interleaved, LANES, Lanes};
use super::lines::{end_of_element, power_of_two};
use crate::tensor::wide_function;

wide_function! {
    /// Divides matrices by powers of two that make their largest elements about one, and returns these. A matrix with elements that are
    /// not finite becomes zero, and its scale NaN.
    pub(super) fn scale = scale_body(a: &mut Interleaved) -> Lanes
}

#[inline(always)]
fn scale_body(a: &mut Interleaved) -> Lanes {
    let (mut most, mut nothing) = ([0.0; LANES], [0.0; LANES]);
    for x in a.v.iter() {
        for l in 0..LANES {
            let size = x[l].abs();
            most[l] = if size > most[l] { size } else { most[l] };
            // NaN for infinities too.
            nothing[l] += x[l] * 0.0;
        }
    }
    let scales = most.map(power_of_two);
    let inverses = scales.map(|s| 1.0 / s);
    for x in a.v.iter_mut() {
        for l in 0..LANES {
            x[l] = if nothing[l] == 0.0 { x[l] * inverses[l] } else { 0.0 };
        }
        end_of_element();
    }
    let mut out = scales;
    for l in 0..LANES {
        out[l] = if nothing[l] == 0.0 { scales[l] } else { f64::NAN };
    }
    out
}
