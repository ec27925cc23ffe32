//! Element types that routines do not compute with: their elements are widened, some at a time, so that they stay in the caches.

use crate::op::rows::dense::Number;
use crate::tensor::{Element, round_to_bf16s, round_to_f16s, widen_bf16s, widen_f16s, with_wide_vectors};
use half::{bf16, f16};

/// An element type that is not computed with.
pub(super) trait Narrow: Element {
    /// The type that is computed with.
    type Wide: Number;
    fn widen(x: &[Self], out: &mut [Self::Wide]);
    fn round(x: &[Self::Wide], out: &mut [Self]);
}

macro_rules! halves {
    ($($t:ident $widen:ident $round:ident),*) => { $(impl Narrow for $t {
        type Wide = f32;
        fn widen(x: &[$t], out: &mut [f32]) {
            $widen(x, out);
        }
        fn round(x: &[f32], out: &mut [$t]) {
            $round(x, out);
        }
    })* };
}
halves!(bf16 widen_bf16s round_to_bf16s, f16 widen_f16s round_to_f16s);

macro_rules! integers {
    ($($t:ident),*) => { $(impl Narrow for $t {
        type Wide = i32;
        fn widen(x: &[$t], out: &mut [i32]) {
            with_wide_vectors(|| out.iter_mut().zip(x).for_each(|(o, &x)| *o = x.into()));
        }
        fn round(x: &[i32], out: &mut [$t]) {
            with_wide_vectors(|| out.iter_mut().zip(x).for_each(|(o, &x)| *o = x as $t));
        }
    })* };
}
integers!(i32, i16, i8, u8);

impl Number for i32 {
    const LOWEST: i32 = i32::MIN;
    fn add(self, o: i32) -> i32 {
        self.wrapping_add(o)
    }
    fn mul(self, o: i32) -> i32 {
        self.wrapping_mul(o)
    }
    fn div(self, o: i32) -> i32 {
        self.wrapping_div(o)
    }
    fn from_f64(x: f64) -> i32 {
        x as i32
    }
    fn divide_all(values: &mut [i32], n: i64) {
        for v in values {
            *v = i64::from(*v).wrapping_div(n) as i32;
        }
    }
    fn is_nan(self) -> bool {
        false
    }
}
