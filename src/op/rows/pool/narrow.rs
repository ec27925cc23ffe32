//! Pools of narrow types: some planes at once are widened to the type that is computed with, so that they stay in the caches, and the
//! results are rounded.

use super::lanes::LANES;
use super::planes::{Divisor, max_of, mean_of};
use super::window::Planes;
use crate::op::rows::fill::run_pairs;
use crate::op::rows::narrow::Narrow;
use crate::parallel::Pool;
use crate::tensor::ViewMut;
use crate::types::DType;
use half::{bf16, f16};

/// The number of elements that are widened at once, if planes are small.
const AT_ONCE: usize = 16 << 10;

impl Planes {
    /// Whether the operand is of a narrow type, so that it was not converted.
    pub(super) fn is_narrow(&self) -> bool {
        is_narrow(self.pool.dtype)
    }

    /// The number of planes that are widened at once.
    fn planes_at_once(&self) -> usize {
        match self.is_small() {
            true => (AT_ONCE / self.plane() / LANES).max(1) * LANES,
            false => (AT_ONCE / self.plane()).max(1),
        }
    }
}

/// Whether planes of the dtype are widened some at a time.
pub(super) fn is_narrow(dtype: DType) -> bool {
    dtype.is_half() || matches!(dtype, DType::I32 | DType::I16 | DType::I8 | DType::U8)
}

/// Some planes, and their results, widened.
struct Widened<T: Narrow> {
    x: Vec<T::Wide>,
    out: Vec<T::Wide>,
}

impl<T: Narrow> Widened<T> {
    /// Memory for as many planes as `count`, or as are widened at once.
    fn new(p: &Planes, count: usize) -> Widened<T> {
        let planes = p.planes_at_once().min(count);
        Widened {
            x: vec![T::Wide::default(); planes * p.plane()],
            out: vec![T::Wide::default(); planes * p.out_plane()],
        }
    }

    /// Widens the planes whose results `out` has, computes these by `f`, and rounds them.
    fn compute(&mut self, p: &Planes, x: &[T], out: &mut [T], f: impl FnOnce(&[T::Wide], &mut [T::Wide])) {
        let wide = &mut self.x[..out.len() / p.out_plane() * p.plane()];
        let results = &mut self.out[..out.len()];
        T::widen(&x[..wide.len()], wide);
        f(wide, results);
        T::round(results, out);
    }
}

fn mean<T: Narrow>(p: &Planes, divisor: Divisor, out: &mut [T], pool: &Pool) {
    let x = p.x.as_slice::<T>();
    let planes = p.planes_per_part(size_of::<T>(), pool);
    pool.run_parts(out, planes * p.out_plane(), |i, out| {
        let mut wide = Widened::<T>::new(p, planes);
        let at_once = p.planes_at_once();
        for (k, out) in out.chunks_mut(at_once * p.out_plane()).enumerate() {
            let x = &x[(i * planes + k * at_once) * p.plane()..];
            wide.compute(p, x, out, |x, out| mean_of(p, divisor, x, out));
        }
    });
}

fn max<T: Narrow>(p: &Planes, out: &mut [T], places: &mut [i64], pool: &Pool) {
    let x = p.x.as_slice::<T>();
    let planes = p.planes_per_part(size_of::<T>(), pool);
    let len = planes * p.out_plane();
    run_pairs(pool, (out, len), (places, len), |i, out, places| {
        let mut wide = Widened::<T>::new(p, planes);
        let at_once = p.planes_at_once();
        let some = at_once * p.out_plane();
        for (k, (out, places)) in out.chunks_mut(some).zip(places.chunks_mut(some)).enumerate() {
            let x = &x[(i * planes + k * at_once) * p.plane()..];
            wide.compute(p, x, out, |x, out| max_of(p, x, out, places));
        }
    });
}

/// The means of all planes, which are halves.
pub(super) fn mean_narrow(p: &Planes, divisor: Divisor, out: &mut ViewMut<'_>, pool: &Pool) {
    match p.pool.dtype {
        DType::F16 => mean(p, divisor, out.as_mut_slice::<f16>(), pool),
        _ => mean(p, divisor, out.as_mut_slice::<bf16>(), pool),
    }
}

/// The maxima of all planes, and their places.
pub(super) fn max_narrow(p: &Planes, out: &mut ViewMut<'_>, places: &mut [i64], pool: &Pool) {
    match p.pool.dtype {
        DType::F16 => max(p, out.as_mut_slice::<f16>(), places, pool),
        DType::BF16 => max(p, out.as_mut_slice::<bf16>(), places, pool),
        DType::I32 => max(p, out.as_mut_slice::<i32>(), places, pool),
        DType::I16 => max(p, out.as_mut_slice::<i16>(), places, pool),
        DType::I8 => max(p, out.as_mut_slice::<i8>(), places, pool),
        _ => max(p, out.as_mut_slice::<u8>(), places, pool),
    }
}

#[cfg(test)]
mod tests {
    use crate::op::rows::fill::fill_new;
    use crate::op::{Call, Meaning, by_name};
    use crate::tensor::{SplitMix, Tensor};
    use crate::types::{DType, Val};

    fn pool(name: &str, x: Tensor, out: [usize; 2]) -> Vec<Tensor> {
        let sizes = Val::List(out.map(|n| Val::int(n as i64)).to_vec());
        let call = Call {
            op: by_name(name).expect("a row"),
            args: vec![Val::Leaf(x), sizes],
        };
        let Meaning::Fill(fill) = call.op.meaning else {
            panic!("not a fill")
        };
        let results = fill_new(&call, fill).expect("a result");
        results.leaves().into_iter().cloned().collect()
    }

    #[test]
    fn pools_of_halves_are_those_of_f32_rounded() {
        let mut random = SplitMix::new(3);
        for (planes, h, w, out) in [(70, 7, 9, [3, 2]), (3, 50, 61, [7, 3]), (5, 3, 700, [2, 1])] {
            for dtype in [DType::BF16, DType::F16] {
                let x: Vec<f32> = (0..planes * h * w)
                    .map(|_| random.next_below(2000) as f32 / 64.0 - 9.0)
                    .collect();
                let x = Tensor::from_slice(&[planes, h, w], &x).to(dtype);
                for name in ["adaptive_avg_pool2d", "adaptive_max_pool2d_with_indices"] {
                    let (got, wide) = (pool(name, x.clone(), out), pool(name, x.to(DType::F32), out));
                    for (got, want) in got.iter().zip(&wide) {
                        assert!(
                            got.bytes() == want.to(got.dtype()).bytes(),
                            "{name} {dtype} {planes} {h} {w}"
                        );
                    }
                }
            }
        }
    }
}
