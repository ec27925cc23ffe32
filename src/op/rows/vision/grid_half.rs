//! Elements of images and grids, and the numbers that they are computed with.

use super::grid_axis::GridReal;
use crate::tensor::{Element, RealBf16, RealF16, round_to_bf16s, round_to_f16s, widen_bf16s, widen_f16s};
use half::{bf16, f16};

/// An element of an image or a grid, which is computed with as a [`GridReal`].
pub(super) trait GridElement: Element + Default {
    type Real: GridReal;
    /// Elements as numbers, in `buffer` unless they are.
    fn numbers<'a>(x: &'a [Self], buffer: &'a mut Vec<Self::Real>) -> &'a [Self::Real];
    /// Fills `out` with the numbers that `f` writes, by way of `buffer` unless they are elements.
    fn write(out: &mut [Self], buffer: &mut [Self::Real], f: impl FnOnce(&mut [Self::Real]));
}

macro_rules! wide_elements {
    ($($t:ty),*) => { $(impl GridElement for $t {
        type Real = $t;
        fn numbers<'a>(x: &'a [$t], _: &'a mut Vec<$t>) -> &'a [$t] { x }
        fn write(out: &mut [$t], _: &mut [$t], f: impl FnOnce(&mut [$t])) { f(out) }
    })* };
}
wide_elements!(f32, f64);

macro_rules! half_elements {
    ($($t:ident $real:ident $widen:path, $round:path);*) => { $(impl GridElement for $t {
        type Real = $real;
        fn numbers<'a>(x: &'a [$t], buffer: &'a mut Vec<$real>) -> &'a [$real] {
            buffer.resize(x.len(), $real(0.0));
            $widen(x, $real::floats_mut(buffer));
            buffer
        }
        fn write(out: &mut [$t], buffer: &mut [$real], f: impl FnOnce(&mut [$real])) {
            let buffer = &mut buffer[..out.len()];
            f(buffer);
            $round($real::floats_mut(buffer), out);
        }
    })* };
}
half_elements!(bf16 RealBf16 widen_bf16s, round_to_bf16s; f16 RealF16 widen_f16s, round_to_f16s);
