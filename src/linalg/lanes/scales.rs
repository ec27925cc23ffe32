//! Scales of matrices side by side.

use super::{Interleaved, Lanes};
use crate::linalg::LANES;
use crate::linalg::scale::power_of_two;
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

wide_function! {
    /// Divides matrices by powers of two, so that their largest elements are about one, and returns these powers. A matrix with elements
    /// that are not finite becomes zero, and its scale NaN.
    pub(super) fn scale = scale_body(a: &mut Interleaved) -> Lanes
}

#[inline(always)]
fn scale_body(a: &mut Interleaved) -> Lanes {
    let (mut most, mut nothing) = ([0.0; LANES], [0.0; LANES]);
    for x in a.v.iter() {
        for l in 0..LANES {
            let size = x[l].abs();
            most[l] = if size > most[l] { size } else { most[l] };
            // This is NaN for infinities as well.
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
