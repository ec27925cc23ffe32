//! Elements of images and grids, and the numbers that they are computed with.

use super::grid_axis::GridReal;
use crate::tensor::{Element, Neighbours, RealBf16, RealF16, round_to_bf16s, round_to_f16s, widen_bf16s, widen_f16s};
use half::{bf16, f16};

/// An element of an image or a grid, which is computed with as a [`GridReal`].
pub(super) trait GridElement: Element + Default {
    type Real: GridReal;
    /// Fills the buffer with the elements as numbers, unless they are numbers.
    fn widen(x: &[Self], buffer: &mut Vec<Self::Real>);
    /// The elements as numbers, after [`GridElement::widen`].
    fn widened<'a>(x: &'a [Self], buffer: &'a [Self::Real]) -> &'a [Self::Real];
    /// Fills `out` with the numbers that `f` writes, by way of `buffer` unless they are elements.
    fn write(out: &mut [Self], buffer: &mut [Self::Real], f: impl FnOnce(&mut [Self::Real]));
    /// [`Neighbours::sum`] of elements.
    fn sum_pairs<const R: usize>(
        pairs: &Neighbours<2, R>,
        x: &[Self],
        weights: [[&[Self::Real]; 2]; R],
        out: &mut [Self],
    );
}

/// Elements, and the numbers that they are once these are needed.
pub(super) struct Numbers<'a, E: GridElement> {
    pub elements: &'a [E],
    buffer: &'a mut Vec<E::Real>,
    is_widened: bool,
}

impl<E: GridElement> Numbers<'_, E> {
    pub(super) fn new<'a>(elements: &'a [E], buffer: &'a mut Vec<E::Real>) -> Numbers<'a, E> {
        Numbers {
            elements,
            buffer,
            is_widened: false,
        }
    }

    pub(super) fn numbers(&mut self) -> &[E::Real] {
        if !self.is_widened {
            E::widen(self.elements, self.buffer);
            self.is_widened = true;
        }
        E::widened(self.elements, self.buffer)
    }
}

macro_rules! wide_elements {
    ($($t:ty),*) => { $(impl GridElement for $t {
        type Real = $t;
        fn widen(_: &[$t], _: &mut Vec<$t>) {}
        fn widened<'a>(x: &'a [$t], _: &'a [$t]) -> &'a [$t] { x }
        fn write(out: &mut [$t], _: &mut [$t], f: impl FnOnce(&mut [$t])) { f(out) }
        fn sum_pairs<const R: usize>(pairs: &Neighbours<2, R>, x: &[$t], weights: [[&[$t]; 2]; R], out: &mut [$t]) {
            pairs.sum(x, weights, out);
        }
    })* };
}
wide_elements!(f32, f64);

macro_rules! half_elements {
    ($($t:ident $real:ident $widen:path, $round:path);*) => { $(impl GridElement for $t {
        type Real = $real;
        fn widen(x: &[$t], buffer: &mut Vec<$real>) {
            buffer.resize(x.len(), $real(0.0));
            $widen(x, $real::floats_mut(buffer));
        }
        fn widened<'a>(_: &'a [$t], buffer: &'a [$real]) -> &'a [$real] { buffer }
        fn write(out: &mut [$t], buffer: &mut [$real], f: impl FnOnce(&mut [$real])) {
            let buffer = &mut buffer[..out.len()];
            f(buffer);
            $round($real::floats_mut(buffer), out);
        }
        fn sum_pairs<const R: usize>(pairs: &Neighbours<2, R>, x: &[$t], weights: [[&[$real]; 2]; R], out: &mut [$t]) {
            pairs.sum_halves(x, weights, out);
        }
    })* };
}
half_elements!(bf16 RealBf16 widen_bf16s, round_to_bf16s; f16 RealF16 widen_f16s, round_to_f16s);
