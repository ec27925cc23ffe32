//! Indices drawn from rows of weights.

use crate::op::random::{self, Generator};
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::ops::{Add, Div};

pub(super) fn multinomial_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (dtype, shape) = c.shaped("self")?;
    if !dtype.is_float() {
        return Err(OpError::dtype(format!(
            "multinomial only supports floating-point dtypes for input, got: {}",
            dtype.scalar_type_name()
        )));
    }
    let [lead @ .., categories] = shape else {
        return Err(OpError::shape("prob_dist must be 1 or 2 dim"));
    };
    if lead.len() > 1 {
        return Err(OpError::shape("prob_dist must be 1 or 2 dim"));
    }
    let n = c.int("num_samples")?;
    if n <= 0 {
        return Err(OpError::arg("num_samples", "cannot sample n_sample <= 0 samples"));
    }
    if !c.bool("replacement")? && categories.as_const().is_some_and(|k| n > k) {
        let title = "cannot sample n_sample > prob_dist.size(-1) samples without replacement";
        return Err(OpError::arg("num_samples", title));
    }
    let mut shape = lead.to_vec();
    shape.push(Dim::Const(n));
    Ok(Val::Leaf(TensorType::new(DType::I64, shape)))
}

pub(super) fn multinomial(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let n = outs[0].shape().last().copied().unwrap_or(0);
    let replaced = c.bool("replacement")? && n > 1;
    match t.dtype() {
        DType::F32 => draw_rows(t.dtype(), t.as_slice::<f32>(), t.shape(), replaced, &mut outs[0]),
        // torch adds weights of the half types in f32, but divides them by times in their own arithmetic.
        DType::F16 | DType::BF16 if replaced => {
            let wide = t.to(DType::F32);
            draw_rows(DType::F32, wide.as_slice::<f32>(), t.shape(), replaced, &mut outs[0])
        }
        dtype => draw_rows(
            dtype,
            t.to(DType::F64).as_slice::<f64>(),
            t.shape(),
            replaced,
            &mut outs[0],
        ),
    }
}

/// The types that weights are computed in.
trait Weight: Element + PartialOrd + Add<Output = Self> + Div<Output = Self> + Into<f64> + Default {
    const ONE: Self;
    fn is_weight(self) -> bool;
}

impl Weight for f32 {
    const ONE: f32 = 1.0;
    #[inline(always)]
    fn is_weight(self) -> bool {
        (0.0..f32::INFINITY).contains(&self)
    }
}

impl Weight for f64 {
    const ONE: f64 = 1.0;
    #[inline(always)]
    fn is_weight(self) -> bool {
        (0.0..f64::INFINITY).contains(&self)
    }
}

fn draw_rows<T: Weight>(
    dtype: DType,
    weights: &[T],
    shape: &[usize],
    replaced: bool,
    out: &mut ViewMut<'_>,
) -> OpResult<()> {
    let categories = shape.last().copied().unwrap_or(0).max(1);
    let n = out.shape().last().copied().unwrap_or(0).max(1);
    if !with_wide_vectors(|| weights.iter().fold(true, |all, w| all & w.is_weight())) {
        let title = "probability tensor contains either `inf`, `nan` or element < 0";
        return Err(OpError::value(title));
    }
    let rows = weights.chunks_exact(categories);
    if rows.clone().any(|r| r.iter().all(|w| *w == T::default())) {
        return Err(OpError::value(
            "invalid multinomial distribution (sum of probabilities <= 0)",
        ));
    }
    let picked = out.as_mut_slice::<i64>().chunks_exact_mut(n);
    random::with_stream(|g| match replaced {
        true => with_replacement(g, rows, picked),
        false => {
            let mut race = Race::new(dtype, categories, n);
            rows.zip(picked).for_each(|(r, p)| race.run(g, r, p));
        }
    });
    Ok(())
}

/// Samples by the cumulative sum of the weights, in the tensor's own arithmetic.
fn with_replacement<'a, T: Weight>(
    g: &mut Generator,
    rows: impl Iterator<Item = &'a [T]>,
    picked: impl Iterator<Item = &'a mut [i64]>,
) {
    let mut shares = vec![];
    for (weights, picked) in rows.zip(picked) {
        shares.resize(weights.len(), T::default());
        // A sum of the loop's own: a closure would keep it in memory.
        let mut sum = T::default();
        for (share, &w) in shares.iter_mut().zip(weights) {
            sum = sum + w;
            *share = sum;
        }
        with_wide_vectors(|| shares.iter_mut().for_each(|s| *s = *s / sum));
        if let Some(last) = shares.last_mut() {
            *last = T::ONE;
        }
        for place in picked {
            let u = g.unit_interval(DType::F64);
            *place = shares.partition_point(|&s| s.into() < u) as i64;
        }
    }
}

/// Samples without replacement: the indices of the `n` largest quotients of weight and exponential number, which are the first arrivals
/// of a race.
struct Race {
    dtype: DType,
    n: usize,
    /// The random numbers in [0, 1) of a row.
    units: Vec<f64>,
    /// What the quotients of a row do not exceed by more than rounding.
    bounds: Vec<f64>,
    /// The largest quotients so far, the largest first, with their indices.
    best: Vec<(f64, i64)>,
}

/// Quotients of 16-bit floats are at most this much larger than they would be without rounding.
const SLACK: f64 = 0.97;

/// Smaller quotients may be rounded by more than [`SLACK`].
const SMALL: f64 = 1e-30;

impl Race {
    fn new(dtype: DType, categories: usize, n: usize) -> Race {
        Race {
            dtype,
            n,
            units: vec![0.0; categories],
            bounds: vec![0.0; categories],
            best: Vec::with_capacity(n.min(categories)),
        }
    }

    /// Draws a number for each weight, and the winners.
    fn run<T: Weight>(&mut self, g: &mut Generator, weights: &[T], picked: &mut [i64]) {
        g.fill_unit_f64(&mut self.units);
        // Insertion among many would cost more than sorting. The numbers of f16 may round to 0, so that the quotient has no bound.
        if self.dtype == DType::F16 || self.n > (weights.len() / 8).max(1) {
            self.sort_all(weights);
        } else {
            self.insert_best(weights);
        }
        picked.iter_mut().zip(&self.best).for_each(|(p, b)| *p = b.1);
    }

    /// The quotient of a weight and the exponential number of `unit`.
    fn quotient(&self, weight: f64, unit: f64) -> f64 {
        let time = -(-unit).ln_1p();
        match self.dtype {
            DType::F32 => ((weight as f32) / (time as f32)) as f64,
            DType::F64 => weight / time,
            dtype => random::round_to_dtype(dtype, weight / random::round_to_dtype(dtype, time)),
        }
    }

    /// Finds the largest quotients among all.
    fn sort_all<T: Weight>(&mut self, weights: &[T]) {
        self.best.clear();
        for (k, &w) in weights.iter().enumerate() {
            let quotient = self.quotient(w.into(), self.units[k]);
            self.best.push((quotient, k as i64));
        }
        // Equal quotients stay in order.
        let order = |a: &(f64, i64), b: &(f64, i64)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if self.n < self.best.len() {
            self.best.select_nth_unstable_by(self.n, order);
            self.best.truncate(self.n);
        }
        self.best.sort_unstable_by(order);
    }

    /// Finds the largest quotients one after the other. Few are above those before them, and only these need a logarithm: an exponential
    /// number is at least the uniform one that it is made of.
    fn insert_best<T: Weight>(&mut self, weights: &[T]) {
        let (units, bounds) = (&self.units[..weights.len()], &mut self.bounds[..weights.len()]);
        with_wide_vectors(|| (0..weights.len()).for_each(|k| bounds[k] = weights[k].into() / units[k]));
        self.best.clear();
        let mut limit = f64::NEG_INFINITY;
        for (k, &w) in weights.iter().enumerate() {
            // Not below, because the bound of the weight 0 may be NaN.
            if self.bounds[k] < limit {
                continue;
            }
            let quotient = self.quotient(w.into(), self.units[k]);
            let at = self.best.partition_point(|b| b.0.total_cmp(&quotient).is_ge());
            if at == self.n {
                continue;
            }
            self.best.truncate(self.n - 1);
            self.best.insert(at, (quotient, k as i64));
            let last = self.best[self.best.len() - 1].0;
            if self.best.len() == self.n && last > SMALL {
                limit = last * SLACK;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    #[test]
    fn the_winners_of_a_race_are_those_of_sorting() {
        let mut random = SplitMix::new(17);
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            for (categories, n) in [(1, 1), (2, 1), (100, 1), (100, 5), (1000, 20), (100, 100), (3000, 2)] {
                for kind in 0..4 {
                    let weight = |random: &mut SplitMix| match kind {
                        0 => random.next_unit(),
                        1 => random.pick(&[0.0, 0.0, 1.0]),
                        2 => random.next_unit() * 1e-37,
                        _ => random.pick(&[1e38, 1.0, 1e-20]),
                    };
                    let weights: Vec<f64> = (0..categories).map(|_| weight(&mut random)).collect();
                    let weights: Vec<f64> = weights.iter().map(|&w| random::round_to_dtype(dtype, w)).collect();
                    let (mut g, mut h) = (Generator::new(5), Generator::new(5));
                    let cast = |x: f64| random::round_to_dtype(dtype, x);
                    let scores: Vec<f64> = weights.iter().map(|w| cast(w / cast(h.exponential(1.0)))).collect();
                    let mut order: Vec<i64> = (0..categories as i64).collect();
                    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
                    let mut picked = vec![0; n];
                    match dtype {
                        DType::F32 => {
                            let narrow: Vec<f32> = weights.iter().map(|&w| w as f32).collect();
                            Race::new(dtype, categories, n).run(&mut g, &narrow, &mut picked);
                        }
                        _ => Race::new(dtype, categories, n).run(&mut g, &weights, &mut picked),
                    }
                    assert_eq!(picked, order[..n], "{dtype} {categories} {n} {kind}");
                    assert_eq!(
                        g.unit_interval(DType::F64),
                        h.unit_interval(DType::F64),
                        "numbers drawn"
                    );
                }
            }
        }
    }
}
