//! Counts of values: one-hot vectors and histograms.

use crate::op::IndexLimit;
use crate::op::rows::dense::{to_i64_indices, zeros};
use crate::op::rows::fill::units_per_part;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Val};
use std::ops::{Div, Mul, Sub};

/// `one_hot` and `histc`.
pub(super) fn histogram_rows() -> Vec<Op> {
    vec![
        Op::composite("one_hot(Tensor self, int num_classes=-1) -> Tensor", one_hot)
            .doc("a one-hot vector for every class index")
            .index_limits(&[("self", IndexLimit::Below("num_classes"))])
            .spelled("aten.@ torch.nn.functional.@ torch._C._nn.@"),
        Op::new(
            "histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor",
            |c, _| {
                let x = c.leaf("self")?;
                let bins = c.int("bins")?;
                if bins <= 0 {
                    return Err(OpError::arg(
                        "bins",
                        format!("torch.histc(): bins must be > 0, but got {bins}"),
                    ));
                }
                if !x.dtype.is_float() {
                    return Err(crate::op::pointwise::not_implemented("histogram_cpu", x.dtype));
                }
                Ok(Val::Leaf(TensorType::new(x.dtype, vec![Dim::Const(bins)])))
            },
            Meaning::Fill(histc),
        )
        .doc("the number of elements in each of `bins` equal intervals")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn one_hot(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    if x.dtype() != DType::I64 {
        return Err(OpError::dtype(
            "one_hot is only applicable to index tensor of type LongTensor.",
        ));
    }
    let n = c.int("num_classes")?;
    if n == -1 {
        return b.call(OpId::OneHotByMax, vec![x.into()]);
    }
    if n <= 0 {
        return Err(OpError::arg("num_classes", "num_classes should be positive"));
    }
    let classes = b.arange(Val::int(0), Val::int(n))?;
    let rank = x.rank()?;
    let wide = b.unsqueeze(x, rank)?;
    let hot = b.eq(&wide, &classes)?;
    b.to_dtype(&hot, DType::I64).map(Val::Leaf)
}

/// `one_hot` with the largest index plus one as the number of classes.
pub(super) fn by_max() -> Op {
    Op::new(
        "one_hot_by_max(Tensor self) -> Tensor",
        |c, _| {
            let mut shape = c.shaped("self")?.1.to_vec();
            shape.push(Dim::Unknown);
            Ok(Val::Leaf(TensorType::new(DType::I64, shape)))
        },
        Meaning::Routine(|c| {
            let x = to_i64_indices(
                c.leaf("self")?,
                "one_hot is only applicable to index tensor of type LongTensor",
            )?;
            let v = x.as_slice::<i64>();
            if v.is_empty() {
                return Err(OpError::value(
                    "Can not infer total number of classes from empty tensor.",
                ));
            }
            if v.iter().any(|&i| i < 0) {
                return Err(OpError::value("Class values must be non-negative."));
            }
            let n = v.iter().max().map_or(0, |&m| m as usize + 1);
            let mut shape = x.shape().to_vec();
            shape.push(n);
            let mut out = zeros(DType::I64, &shape)?;
            let dst = out.as_mut_slice::<i64>();
            v.iter().enumerate().for_each(|(i, &k)| dst[i * n + k as usize] = 1);
            Ok(Val::Leaf(out))
        }),
    )
    .doc("one_hot with the number of classes inferred from the largest index")
}

fn histc(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let bins = c.int("bins")?.max(1) as usize;
    let bounds = (c.f64("min")?, c.f64("max")?);
    // Computed in the tensor's own dtype and in torch's order of operations, because values at bin edges depend on
    // both.
    let counts = match x.dtype() {
        DType::F32 => count_bins(x.as_slice::<f32>(), bounds, bins, |x| x as f64, |x| x as f32, pool),
        _ => count_bins(x.to(DType::F64).as_slice::<f64>(), bounds, bins, |x| x, |x| x, pool),
    }?;
    outs[0].fill_from(&counts.to(x.dtype()));
    Ok(())
}

/// The bounds of the bins: those of the elements if the call's are equal.
fn histogram_range<T: Copy + PartialOrd>(
    v: &[T],
    (mut low, mut high): (f64, f64),
    wide: impl Fn(T) -> f64 + Copy,
) -> OpResult<(f64, f64)> {
    if low == high
        && let Some(&first) = v.first()
    {
        let mut range = Extremes {
            least: [first; LANES],
            most: [first; LANES],
            is_nan: [false; LANES],
        };
        with_wide_vectors(|| range.add_all(v));
        low = range.least.iter().map(|&x| wide(x)).fold(f64::INFINITY, f64::min);
        high = range.most.iter().map(|&x| wide(x)).fold(f64::NEG_INFINITY, f64::max);
        if range.is_nan.contains(&true) {
            (low, high) = (f64::NAN, f64::NAN);
        }
    }
    if low == high {
        (low, high) = (low - 1.0, high + 1.0);
    }
    if !(low.is_finite() && high.is_finite()) {
        return Err(OpError::value(format!(
            "torch.histc: range of [{low}, {high}] is not finite"
        )));
    }
    if low > high {
        return Err(OpError::value("torch.histc: max must be larger than min"));
    }
    Ok((low, high))
}

/// Each comparison waits for the one before it in its lane.
const LANES: usize = 32;

/// The extremes of elements, lane by lane, and whether one is NaN.
struct Extremes<T> {
    least: [T; LANES],
    most: [T; LANES],
    is_nan: [bool; LANES],
}

impl<T: Copy + PartialOrd> Extremes<T> {
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn add_all(&mut self, v: &[T]) {
        let (chunks, rest) = v.as_chunks::<LANES>();
        for x in chunks {
            for k in 0..LANES {
                self.add(k, x[k]);
            }
        }
        rest.iter().enumerate().for_each(|(k, &x)| self.add(k, x));
    }

    #[inline(always)]
    fn add(&mut self, k: usize, x: T) {
        self.least[k] = if x < self.least[k] { x } else { self.least[k] };
        self.most[k] = if x > self.most[k] { x } else { self.most[k] };
        self.is_nan[k] |= x.partial_cmp(&x).is_none();
    }
}

/// The number of elements in each bin, as f64.
fn count_bins<T>(
    v: &[T],
    bounds: (f64, f64),
    bins: usize,
    wide: impl Fn(T) -> f64 + Copy + Sync,
    narrow: impl Fn(f64) -> T,
    pool: &Pool,
) -> OpResult<Tensor>
where
    T: Copy + PartialOrd + Sub<Output = T> + Mul<Output = T> + Div<Output = T> + Sync,
{
    let (low, high) = histogram_range(v, bounds, wide)?;
    let (low, high, number) = (narrow(low), narrow(high), narrow(bins as f64));
    let width = high - low;
    // torch compares with bounds that it makes from the width, and these are NaN.
    if wide(width).is_infinite() {
        return zeros(DType::F64, &[bins]);
    }
    let bin_of = |x: T| {
        let nearest = wide((x - low) * number / width);
        // The first bin is where torch counts an element whose product overflows.
        let nearest = if nearest.is_finite() { nearest as usize } else { 0 };
        let inside = (x >= low) & (x <= high);
        if inside { nearest.min(bins - 1) } else { bins }
    };
    // Counts of a part cost about as much as its elements at most.
    let part = units_per_part(v.len(), size_of::<T>(), pool).max(bins);
    let parts = v.len().div_ceil(part).max(1);
    let mut counts = zeros(DType::I64, &[parts, bins + 1, COPIES])?;
    let n = (bins + 1) * COPIES;
    pool.run_parts(counts.as_mut_slice::<i64>(), n, |i, counts| {
        let end = v.len().min((i + 1) * part);
        count_part(&v[i * part..end], bin_of, counts.as_chunks_mut::<COPIES>().0);
    });
    sum_counts(counts.as_slice::<i64>().chunks_exact(n), bins)
}

/// The counts of all parts together, as f64.
fn sum_counts<'a>(parts: impl Iterator<Item = &'a [i64]>, bins: usize) -> OpResult<Tensor> {
    let mut sums = zeros(DType::F64, &[bins])?;
    let totals = sums.as_mut_slice::<f64>();
    for counts in parts {
        let bins = totals.iter_mut().zip(counts.as_chunks::<COPIES>().0);
        bins.for_each(|(total, c)| *total += c.iter().sum::<i64>() as f64);
    }
    Ok(sums)
}

/// The counts of a bin that take turns, because additions to one count would wait for each other.
pub(super) const COPIES: usize = 4;

/// Counts elements by bin.
fn count_part<T: Copy>(v: &[T], bin_of: impl Fn(T) -> usize, counts: &mut [[i64; COPIES]]) {
    let mut places = [0; 256];
    for v in v.chunks(places.len()) {
        with_wide_vectors(|| places.iter_mut().zip(v).for_each(|(p, &x)| *p = bin_of(x)));
        for (k, &p) in places[..v.len()].iter().enumerate() {
            counts[p][k % COPIES] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_histogram_is_that_of_the_elements() {
        let v: Vec<f32> = (0..100).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
        let range = |v: &[f32]| histogram_range(v, (0.0, 0.0), |x| x as f64);
        assert_eq!(range(&v).ok(), Some((-50.0, 50.0)));
        assert_eq!(range(&v[..1]).ok(), Some((-51.0, -49.0)));
        for place in [0, 40, 99] {
            let mut v = v.clone();
            v[place] = f32::NAN;
            assert!(range(&v).is_err());
        }
    }
}
