//! Fills of whole tensors: numbers are drawn in blocks and converted by vector code. They are those of the element functions of
//! [`Generator`], drawn in the same order.

use super::{Generator, round_to_dtype};
use crate::tensor::{Scalar, Tensor, ViewMut, round_to_bf16, round_to_f16, widen_f16, with_wide_vectors};
use crate::types::DType;
use half::{bf16, f16};

/// The number of words that are drawn at once.
const WORDS: usize = 1024;

/// The 53 random bits of an f64 in [0, 1).
#[inline(always)]
fn bits_53(w: &[u32; 2]) -> u64 {
    ((w[0] as u64) << 32 | w[1] as u64) & ((1 << 53) - 1)
}

#[inline(always)]
fn unit_f32(w: u32) -> f32 {
    (w & 0xff_ffff) as i32 as f32 / 16_777_216.0
}

#[inline(always)]
fn unit_f64(w: &[u32; 2]) -> f64 {
    bits_53(w) as i64 as f64 / 9_007_199_254_740_992.0
}

#[inline(always)]
fn convert<A, T>(words: &[A], out: &mut [T], f: impl Fn(&A) -> T) {
    out.iter_mut().zip(words).for_each(|(o, w)| *o = f(w));
}

/// Whether the event of probability `p` occurs: `k * 2^-53 < p` in integers.
fn limit_of(p: f64) -> u64 {
    (p * 9_007_199_254_740_992.0).ceil() as u64
}

/// `low` plus the remainder of a word by `span`, which is below 2^28.
///
/// The quotient by the rounded-down inverse is the true one or one less.
#[inline(always)]
fn integer_of(w: u32, low: i64, span: u32, inverse: u32) -> i64 {
    let quotient = ((w as u64 * inverse as u64) >> 32) as u32;
    let rest = w.wrapping_sub(quotient.wrapping_mul(span));
    low.wrapping_add(if rest >= span { rest - span } else { rest } as i64)
}

impl Generator {
    /// Calls `f` for parts of `out` with a word for each element.
    fn with_words<T>(&mut self, out: &mut [T], f: impl Fn(&[u32], &mut [T])) {
        let mut words = [0; WORDS];
        for part in out.chunks_mut(WORDS) {
            let words = &mut words[..part.len()];
            self.twister.fill(words);
            f(words, part);
        }
    }

    /// [`Generator::with_words`] with two words for each element.
    fn with_pairs<T>(&mut self, out: &mut [T], f: impl Fn(&[[u32; 2]], &mut [T])) {
        let mut words = [0; WORDS];
        for part in out.chunks_mut(WORDS / 2) {
            let words = &mut words[..2 * part.len()];
            self.twister.fill(words);
            f(words.as_chunks::<2>().0, part);
        }
    }

    /// Fills with numbers in [0, 1) of 24 random bits.
    pub(super) fn fill_unit_f32(&mut self, out: &mut [f32]) {
        self.with_words(out, |words, out| {
            with_wide_vectors(|| convert(words, out, |w| unit_f32(*w)));
        });
    }

    /// Fills with numbers in [0, 1) of 53 random bits.
    pub(in crate::op) fn fill_unit_f64(&mut self, out: &mut [f64]) {
        self.with_pairs(out, |words, out| with_wide_vectors(|| convert(words, out, unit_f64)));
    }

    fn fill_uniform_f32(&mut self, out: &mut [f32], from: f32, to: f32) {
        let span = to - from;
        self.with_words(out, |words, out| {
            with_wide_vectors(|| convert(words, out, |w| unit_f32(*w).mul_add(span, from)));
        });
    }

    fn fill_uniform_f64(&mut self, out: &mut [f64], from: f64, to: f64) {
        let span = to - from;
        self.with_pairs(out, |words, out| {
            with_wide_vectors(|| convert(words, out, |w| unit_f64(w).mul_add(span, from)));
        });
    }

    /// Half types compute in f32. Rounding may reach the excluded upper bound.
    fn fill_uniform_half<T: PartialOrd + Copy>(&mut self, out: &mut [T], from: f64, to: f64, round: fn(f32) -> T) {
        let (first, last) = (round(from as f32), round(to as f32));
        let mut wide = [0f32; WORDS];
        let [from, to] = [from, to].map(|x| x as f32);
        for part in out.chunks_mut(WORDS) {
            let wide = &mut wide[..part.len()];
            self.fill_uniform_f32(wide, from, to);
            convert(wide, part, |&x| match round(x) {
                y if y >= last => first,
                y => y,
            });
        }
    }

    /// Fills a float tensor with values of [`Generator::uniform`].
    pub fn fill_uniform(&mut self, out: &mut ViewMut<'_>, from: f64, to: f64) {
        let dtype = out.dtype();
        let [low, high] = [from, to].map(|x| round_to_dtype(dtype, x));
        match dtype {
            DType::F32 => self.fill_uniform_f32(out.as_mut_slice(), low as f32, high as f32),
            DType::F64 => self.fill_uniform_f64(out.as_mut_slice(), from, to),
            DType::F16 => self.fill_uniform_half(out.as_mut_slice(), low, high, round_to_f16),
            DType::BF16 => self.fill_uniform_half(out.as_mut_slice(), low, high, round_to_bf16),
            _ => self.fill_each(out, |g| Scalar::F64(g.uniform(dtype, from, to))),
        }
    }

    /// Fills a tensor of any dtype element by element.
    pub fn fill_each(&mut self, out: &mut ViewMut<'_>, mut draw: impl FnMut(&mut Generator) -> Scalar) {
        let dtype = out.dtype();
        let bytes = out.bytes_mut();
        for i in 0..bytes.len() / dtype.size() {
            draw(self).cast(dtype).write(bytes, i);
        }
    }

    /// Fills with values of [`Generator::integer_in_span`].
    pub fn fill_integers(&mut self, out: &mut ViewMut<'_>, low: i64, span: u64) {
        if out.dtype() != DType::I64 || span == 0 || span >= 1 << 28 {
            return self.fill_each(out, |g| Scalar::Int(DType::I64, g.integer_in_span(low, span)));
        }
        let inverse = u32::try_from((1u64 << 32) / span).unwrap_or(u32::MAX);
        self.with_words(out.as_mut_slice::<i64>(), |words, out| {
            with_wide_vectors(|| convert(words, out, |w| integer_of(*w, low, span as u32, inverse)));
        });
    }

    /// Fills with values of [`Generator::exponential`].
    pub fn fill_exponential(&mut self, out: &mut ViewMut<'_>, lambda: f64) {
        let scale = -1.0 / lambda;
        let mut units = [0f64; WORDS / 2];
        macro_rules! fill {
            ($t:ty) => {
                for out in out.as_mut_slice::<$t>().chunks_mut(units.len()) {
                    let units = &mut units[..out.len()];
                    self.fill_unit_f64(units);
                    convert(units, out, |u| (scale * (-u).ln_1p()) as $t);
                }
            };
        }
        match out.dtype() {
            DType::F32 => fill!(f32),
            DType::F64 => fill!(f64),
            _ => self.fill_each(out, |g| Scalar::F64(g.exponential(lambda))),
        }
    }

    /// Fills with values of [`Generator::poisson`] for means of the same number and dtype.
    pub fn fill_poisson(&mut self, out: &mut ViewMut<'_>, means: &Tensor) {
        macro_rules! fill {
            ($t:ty) => {{
                let pairs = out.as_mut_slice::<$t>().iter_mut().zip(means.as_slice::<$t>());
                pairs.for_each(|(o, &mean)| *o = self.poisson(mean as f64) as f64 as $t);
            }};
        }
        match out.dtype() {
            DType::F32 => fill!(f32),
            DType::F64 => fill!(f64),
            _ => {
                let mut i = 0;
                self.fill_each(out, |g| {
                    i += 1;
                    Scalar::F64(g.poisson(means.get(i - 1).to_f64()) as f64)
                });
            }
        }
    }

    /// Fills with 1 where an event of probability `p` occurs, else 0.
    pub fn fill_bernoulli(&mut self, out: &mut ViewMut<'_>, p: f64) {
        let limit = limit_of(p);
        macro_rules! fill {
            ($t:ty, $one:expr, $zero:expr) => {
                self.with_pairs(out.as_mut_slice::<$t>(), |words, out| {
                    with_wide_vectors(|| convert(words, out, |w| if bits_53(w) < limit { $one } else { $zero }));
                })
            };
        }
        match out.dtype() {
            DType::F32 => fill!(f32, 1.0, 0.0),
            DType::F64 => fill!(f64, 1.0, 0.0),
            DType::F16 => fill!(f16, f16::ONE, f16::ZERO),
            DType::BF16 => fill!(bf16, bf16::ONE, bf16::ZERO),
            DType::I64 => fill!(i64, 1, 0),
            _ => self.fill_each(out, |g| Scalar::Bool(g.bernoulli(p))),
        }
    }

    /// Fills with 1 where an event with the probability in `p`, of the same dtype and size, occurs, else 0. Probabilities are compared in
    /// the arithmetic of their dtype.
    pub fn fill_bernoulli_each(&mut self, out: &mut ViewMut<'_>, p: &Tensor) {
        let dtype = p.dtype();
        match dtype {
            _ if out.dtype() != dtype => self.fill_bernoulli_one_by_one(out, p),
            DType::F32 => self.fill_below(out.as_mut_slice(), p.as_slice::<f32>(), |p| p, [0.0, 1.0]),
            // Half types are compared in f32, which holds them exactly.
            DType::F16 => self.fill_below(out.as_mut_slice(), p.as_slice(), widen_f16, [f16::ZERO, f16::ONE]),
            DType::BF16 => self.fill_below(out.as_mut_slice(), p.as_slice(), bf16::to_f32, [bf16::ZERO, bf16::ONE]),
            DType::F64 => self.fill_below_f64(out.as_mut_slice(), p.as_slice()),
            _ => self.fill_bernoulli_one_by_one(out, p),
        }
    }

    fn fill_bernoulli_one_by_one(&mut self, out: &mut ViewMut<'_>, p: &Tensor) {
        let mut i = 0;
        self.fill_each(out, |g| {
            i += 1;
            Scalar::Bool(g.unit_interval(p.dtype()) < p.get(i - 1).to_f64())
        });
    }

    /// Fills with the second of `results` where a random f32 is below that of `p`, else with the first.
    fn fill_below<T: Copy>(&mut self, out: &mut [T], p: &[T], widen: impl Fn(T) -> f32, results: [T; 2]) {
        let mut words = [0; WORDS];
        for (out, p) in out.chunks_mut(WORDS).zip(p.chunks(WORDS)) {
            let words = &mut words[..p.len()];
            self.twister.fill(words);
            let pick = |w: u32, p: T| if unit_f32(w) < widen(p) { results[1] } else { results[0] };
            let each = || {
                out.iter_mut()
                    .zip(words.iter().zip(p))
                    .for_each(|(o, (w, p))| *o = pick(*w, *p))
            };
            with_wide_vectors(each);
        }
    }

    fn fill_below_f64(&mut self, out: &mut [f64], p: &[f64]) {
        for (out, p) in out.chunks_mut(WORDS).zip(p.chunks(WORDS)) {
            self.fill_unit_f64(out);
            let below = |o: &mut f64, p: &f64| *o = if *o < *p { 1.0 } else { 0.0 };
            with_wide_vectors(|| out.iter_mut().zip(p).for_each(|(o, p)| below(o, p)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws 2500 elements, of which a part came before, by a fill and one by one.
    fn compare(dtype: DType, fill: impl Fn(&mut Generator, &mut ViewMut<'_>), draw: impl Fn(&mut Generator) -> Scalar) {
        for before in [0, 5, 624] {
            let (mut g, mut h) = (Generator::new(9), Generator::new(9));
            (0..before).for_each(|_| assert_eq!(g.twister.next_u32(), h.twister.next_u32()));
            let mut out = Tensor::zeros(dtype, &[2500]);
            fill(&mut g, &mut ViewMut::from(&mut out));
            let want = Tensor::from_fn(dtype, &[2500], |_| draw(&mut h).cast(dtype));
            assert!(out.bit_eq(&want), "{dtype}");
            assert_eq!(g.twister.next_u32(), h.twister.next_u32(), "{dtype}: numbers drawn");
        }
    }

    #[test]
    fn fills_draw_the_numbers_of_single_elements() {
        for d in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (a, b) in [(0.0, 1.0), (-3.5, 0.1), (1e-3, 7e4)] {
                compare(d, |g, o| g.fill_uniform(o, a, b), |g| Scalar::F64(g.uniform(d, a, b)));
            }
        }
        for d in [
            DType::F32,
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::I64,
            DType::U8,
            DType::B8,
        ] {
            for p in [0.0, 0.3, 0.5, 1.0] {
                compare(d, |g, o| g.fill_bernoulli(o, p), |g| Scalar::Bool(g.bernoulli(p)));
            }
        }
        for span in [1, 2, 3, 7, 100, 624_001, (1 << 28) - 1, 1 << 28, 1 << 40, 0] {
            let draw = |g: &mut Generator| Scalar::Int(DType::I64, g.integer_in_span(-5, span));
            compare(DType::I64, |g, o| g.fill_integers(o, -5, span), draw);
            compare(DType::F32, |g, o| g.fill_integers(o, -5, span), draw);
        }
    }

    #[test]
    fn exponential_and_poisson_numbers_are_those_of_single_elements() {
        for d in [DType::F32, DType::F64, DType::BF16] {
            for lambda in [1.0, 0.3] {
                compare(
                    d,
                    |g, o| g.fill_exponential(o, lambda),
                    |g| Scalar::F64(g.exponential(lambda)),
                );
            }
            let means = Tensor::from_fn(d, &[2500], |i| Scalar::F64((i % 30) as f64).cast(d));
            let mut next = 0;
            let draw = |g: &mut Generator| {
                next += 1;
                Scalar::F64(g.poisson(means.get((next - 1) % 2500).to_f64()) as f64)
            };
            let draw = std::cell::RefCell::new(draw);
            compare(d, |g, o| g.fill_poisson(o, &means), |g| (*draw.borrow_mut())(g));
        }
    }

    #[test]
    fn remainders_of_all_kinds_of_words_are_exact() {
        for span in [1u32, 2, 3, 10, 97, 65_536, 65_537, (1 << 28) - 1] {
            let inverse = u32::try_from((1u64 << 32) / span as u64).unwrap_or(u32::MAX);
            let ends = [0, 1, span - 1, span, u32::MAX, u32::MAX - 1, u32::MAX / span * span];
            let near = ends.iter().flat_map(|&w| [w.wrapping_sub(1), w, w.wrapping_add(1)]);
            near.for_each(|w| assert_eq!(integer_of(w, 0, span, inverse), (w % span) as i64, "{w} by {span}"));
        }
    }

    #[test]
    fn probabilities_of_a_tensor_are_compared_in_its_dtype() {
        for d in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let p = Tensor::from_fn(d, &[2500], |i| Scalar::from_f64(d, i as f64 / 2500.0));
            let mut h = Generator::new(9);
            let want: Vec<bool> = (0..2500).map(|i| h.unit_interval(d) < p.get(i).to_f64()).collect();
            let mut out = Tensor::zeros(d, &[2500]);
            Generator::new(9).fill_bernoulli_each(&mut ViewMut::from(&mut out), &p);
            assert!((0..2500).all(|i| out.get(i).to_bool() == want[i]), "{d}");
        }
    }
}
