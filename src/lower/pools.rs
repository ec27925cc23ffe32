//! Means over windows of channels-last values, as depthwise convolutions.
//!
//! The convolution's kernel keeps sums of several pixels in registers and has separate code for the border; a generated
//! loop nest would test the border at every element. The division by the number of elements follows as a pointwise value,
//! which fuses with what reads it.

use super::ir::{Def, SpatialWindow, Special, Tir, ValueId};
use crate::op::{Contraction, Convolution, OpResult};
use crate::scalar::{Binary, ScalarExpr};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType};

/// The most elements of a window. Depthwise kernels are made for small ones.
const LARGEST: usize = 64;
/// The fewest channels: half of a vector.
const CHANNELS: usize = 8;

/// Redefines means over windows as quotients of convolutions.
pub(super) fn convolve_means(tir: &mut Tir) -> OpResult<()> {
    tir.redefine_values(|tir, v| match WindowMean::find(tir, v) {
        Some(mean) => mean.replace(tir, v),
        None => Ok(()),
    })
}

/// A mean over windows of a value `[N, …, C]`.
struct WindowMean {
    input: ValueId,
    window: SpatialWindow,
    /// The divisor of each position along each spatial dim, or one for all.
    divisors: Divisors,
}

enum Divisors {
    One(usize),
    Each(Vec<Vec<usize>>),
}

impl WindowMean {
    fn find(tir: &Tir, v: ValueId) -> Option<WindowMean> {
        let Def::Special {
            args,
            special:
                Special::AvgPool {
                    window,
                    count_include_pad,
                    divisor,
                },
        } = &tir.value(v).def
        else {
            return None;
        };
        let (d, input) = (tir.value(v), tir.value(args[0]));
        let (spatial, size) = (window.kernel.len(), window.kernel.iter().product());
        let is_last = window.first == 1 && d.shape.len() == spatial + 2 && *d.shape.last()? >= CHANNELS;
        if !is_last || d.dtype != DType::F32 || input.dtype != DType::F32 || size > LARGEST {
            return None;
        }
        let is_padded = window.padding.iter().any(|&p| p > 0) && !count_include_pad;
        let divisors = match divisor {
            Some(n) => Divisors::One(usize::try_from(*n).ok()?),
            None if is_padded => Divisors::Each(
                (0..spatial)
                    .map(|s| counts(window, &input.shape, &d.shape, s))
                    .collect(),
            ),
            None => Divisors::One(size),
        };
        Some(WindowMean {
            input: args[0],
            window: window.clone(),
            divisors,
        })
    }

    /// Redefines `v`.
    fn replace(self, tir: &mut Tir, v: ValueId) -> OpResult<()> {
        let shape = tir.value(v).shape.clone();
        tir.name = tir.value(v).name.clone();
        let sums = self.push_sums(tir, &shape)?;
        let mut expr = ScalarExpr::new();
        let sum = expr.arg(0, DType::F32);
        let mut args = vec![sums];
        let divisor = match self.divisors {
            Divisors::One(n) => expr.constant(Scalar::F32(n as f32)),
            Divisors::Each(counts) => {
                let table = count_table(&counts);
                args.push(tir.push(DType::F32, table.shape(), Def::Constant(table.clone()))?);
                expr.arg(1, DType::F32)
            }
        };
        let mean = expr.binary(Binary::Div, sum, divisor);
        expr.roots.push(mean);
        tir.values[v.0 as usize].def = Def::Pointwise {
            expr: expr.into(),
            args,
        };
        Ok(())
    }

    /// The sums over the windows: a convolution with ones.
    fn push_sums(&self, tir: &mut Tir, shape: &[usize]) -> OpResult<ValueId> {
        let (spatial, channels) = (self.window.kernel.len(), shape[shape.len() - 1]);
        let weight_shape = [vec![channels, 1], self.window.kernel.clone()].concat();
        let ones = Tensor::from_fn(DType::F32, &weight_shape, |_| Scalar::F32(1.0));
        let weight = tir.push(DType::F32, &weight_shape, Def::Constant(ones))?;
        let out = [&[shape[0], channels], &shape[1..=spatial]].concat();
        let sums = Convolution {
            input: 0,
            weight: 1,
            bias: None,
            stride: self.window.stride.clone(),
            padding: self.window.padding.clone(),
            dilation: self.window.dilation.clone(),
            transposed: false,
            output_padding: vec![0; spatial],
            groups: channels,
            out: TensorType::with_fixed_shape(DType::F32, &out),
        };
        let def = Def::Contract {
            args: vec![self.input, weight],
            contraction: Contraction::Conv(sums),
        };
        let sums = tir.push(DType::F32, shape, def)?;
        tir.channels_last.insert(sums, [true, true]);
        Ok(sums)
    }
}

/// The number of elements of the input in each window along spatial dim `s`.
fn counts(w: &SpatialWindow, input: &[usize], out: &[usize], s: usize) -> Vec<usize> {
    let size = input[w.first + s];
    let count = |i: usize| {
        let (start, end) = (i * w.stride[s], i * w.stride[s] + w.kernel[s]);
        let inside = |at: usize| at.saturating_sub(w.padding[s]).min(size);
        inside(end) - inside(start)
    };
    (0..out[w.first + s]).map(count).collect()
}

/// The products of the counts of all spatial dims: `[1, …, 1]`, with the spatial sizes in the middle.
fn count_table(counts: &[Vec<usize>]) -> Tensor {
    let shape: Vec<usize> = counts.iter().map(Vec::len).collect();
    let shape = [&[1], &shape[..], &[1]].concat();
    let at = |mut i: usize| {
        let mut n = 1;
        for c in counts.iter().rev() {
            n *= c[i % c.len()];
            i /= c.len();
        }
        Scalar::F32(n as f32)
    };
    Tensor::from_fn(DType::F32, &shape, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_channels_last_values_are_convolutions() {
        let text = "\
%x: f32[2, 5, 4, 16] = input 0
%a: f32[2, 5, 4, 16] = avg_pool(%x) first=1 kernel=[3, 3] stride=[1, 1] padding=[1, 1] dilation=[1, 1]
%b: f32[2, 2, 2, 16] = avg_pool(%x) first=1 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
%c: f32[2, 5, 4, 16] = avg_pool(%x) first=2 kernel=[3, 3] stride=[1, 1] padding=[1, 1] dilation=[1, 1]
return (%a, %b, %c)
";
        let mut tir = Tir::parse(text).unwrap();
        convolve_means(&mut tir).unwrap();
        assert_eq!(
            tir.to_string()
                .lines()
                .filter(|l| !l.contains("constant"))
                .collect::<Vec<_>>(),
            [
                "%x: f32[2, 5, 4, 16] = input 0",
                "%a#2: f32[2, 5, 4, 16] = conv(%x, %a#1) stride=[1, 1] padding=[1, 1] dilation=[1, 1] groups=16 channels_last=[1, 1]",
                "%a#3: f32[2, 5, 4, 16] = map(%a#2, %a) { div(a0, a1) }",
                "%b#1: f32[2, 2, 2, 16] = conv(%x, %b) stride=[2, 2] padding=[0, 0] dilation=[1, 1] groups=16 channels_last=[1, 1]",
                "%b#2: f32[2, 2, 2, 16] = map(%b#1) { div(a0, f32(4.0)) }",
                "%c: f32[2, 5, 4, 16] = avg_pool(%x) first=2 kernel=[3, 3] stride=[1, 1] padding=[1, 1] dilation=[1, 1]",
                "return (%a#3, %b#2, %c)",
            ]
        );
    }

    #[test]
    fn elements_of_the_border_do_not_count() {
        let w = SpatialWindow {
            first: 1,
            kernel: vec![3, 2],
            stride: vec![2, 1],
            padding: vec![1, 1],
            dilation: vec![1, 1],
        };
        let (input, out) = ([1, 5, 3, 8], [1, 3, 4, 8]);
        let counts: Vec<Vec<usize>> = (0..2).map(|s| counts(&w, &input, &out, s)).collect();
        assert_eq!(counts, [vec![2, 3, 2], vec![1, 2, 2, 1]]);
        let table = count_table(&counts);
        assert_eq!(table.shape(), [1, 3, 4, 1]);
        assert_eq!(table.as_slice::<f32>()[..5], [2.0, 4.0, 4.0, 2.0, 3.0]);
    }
}
