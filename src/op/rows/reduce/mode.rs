//! The most frequent element along a dim.

use crate::op::pointwise::not_implemented;
use crate::op::rows::dense::sizes_around;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::order::{Placed, Ties, rank_of_f32, rank_of_f64, rank_of_i64};
use crate::op::{Call, Meaning, Op, OpError, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, cells_of_mut, widen_f16};
use crate::types::{DType, Dim, TensorType, Type, Val};
use half::{bf16, f16};

pub(super) fn row() -> Op {
    Op::new(
        "mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)",
        |c, _| mode_type(c),
        Meaning::Fill(mode),
    )
    .doc("the most frequent element along a dim (the smallest of several), and an index of it")
    .spelled("aten.@ torch.@ Tensor.@")
}

fn mode_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    let mut shape = x.to_vec();
    if shape.get(dim) == Some(&Dim::Const(0)) {
        return Err(OpError::shape(format!(
            "mode(): Expected reduction dim {dim} to have non-zero size."
        )));
    }
    if dim < shape.len() {
        match c.bool("keepdim")? {
            true => shape[dim] = Dim::Const(1),
            false => drop(shape.remove(dim)),
        }
    }
    if !d.is_computed() {
        return Err(not_implemented("mode", d));
    }
    let t = |d: DType| Val::Leaf(TensorType::new(d, shape.clone()));
    Ok(Val::Tuple(vec![t(d), t(DType::I64)]))
}

fn rank_of_i32(x: i32) -> u32 {
    x as u32 ^ 1 << 31
}

/// A tensor as `[outer, n, inner]`; the mode is along `n`.
#[derive(Clone, Copy)]
struct ModeLines {
    outer: usize,
    n: usize,
    inner: usize,
}

impl ModeLines {
    /// The position of element `k` of a line.
    fn position(&self, line: usize, k: usize) -> usize {
        (line / self.inner * self.n + k) * self.inner + line % self.inner
    }

    /// Writes the place of each line's mode. A line's elements fit a key's place.
    fn find<T: Element + PartialEq, P: Placed>(
        &self,
        x: &[T],
        rank: fn(T) -> P::Rank,
        places: &mut [i64],
        pool: &Pool,
    ) {
        let len = units_per_part(self.outer * self.inner, self.n * size_of::<T>(), pool);
        pool.run_parts(places, len, |part, places| {
            let mut placed = vec![P::new(P::Rank::default(), 0); self.n];
            for (i, place) in places.iter_mut().enumerate() {
                let line = part * len + i;
                for (k, p) in placed.iter_mut().enumerate() {
                    *p = P::new(rank(x[self.position(line, k)]), k);
                }
                // Which of the most frequent elements is last depends on the algorithm.
                Ties::Sort.arrange(&mut placed, &(0..self.n));
                let same = |a: P, b: P| x[self.position(line, a.place())] == x[self.position(line, b.place())];
                *place = longest_run(&placed, same) as i64;
            }
        });
    }
}

/// The place of the last element of the first longest run of equal elements.
fn longest_run<P: Placed>(placed: &[P], same: impl Fn(P, P) -> bool) -> usize {
    let (mut best, mut most, mut run) = (0, 0, 0);
    for (k, &p) in placed.iter().enumerate() {
        run = if k > 0 && same(placed[k - 1], p) { run + 1 } else { 1 };
        if run > most {
            (best, most) = (p.place(), run);
        }
    }
    best
}

fn mode(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let (outer, n, inner) = sizes_around(x.shape(), wrap_dim(c.int("dim")?, x.rank())?);
    let lines = ModeLines { outer, n, inner };
    let [values, places] = outs else { return Ok(()) };
    let places = cells_of_mut::<i64>(places.bytes_mut());
    if places.is_empty() {
        return Ok(());
    }
    if u32::try_from(n).is_err() {
        let wide = x.to(if x.dtype().is_float() { DType::F64 } else { DType::I64 });
        find_wide(lines, &wide, places, pool);
    } else {
        match x.dtype() {
            DType::F32 => lines.find::<f32, u64>(x.as_slice(), rank_of_f32, places, pool),
            DType::F16 => lines.find::<f16, u64>(x.as_slice(), |x| rank_of_f32(widen_f16(x)), places, pool),
            DType::BF16 => lines.find::<bf16, u64>(x.as_slice(), |x| rank_of_f32(x.to_f32()), places, pool),
            DType::I32 => lines.find::<i32, u64>(x.as_slice(), rank_of_i32, places, pool),
            DType::I16 => lines.find::<i16, u64>(x.as_slice(), |x| rank_of_i32(x as i32), places, pool),
            DType::I8 => lines.find::<i8, u64>(x.as_slice(), |x| rank_of_i32(x as i32), places, pool),
            DType::U8 => lines.find::<u8, u64>(x.as_slice(), |x| rank_of_i32(x as i32), places, pool),
            DType::F64 | DType::I64 => find_wide(lines, x, places, pool),
            d => {
                let wide = x.to(if d.is_float() { DType::F64 } else { DType::I64 });
                find_wide(lines, &wide, places, pool);
            }
        }
    }
    let size = x.dtype().size();
    let (src, dst) = (x.bytes(), values.bytes_mut());
    for (line, (to, &k)) in dst.chunks_exact_mut(size).zip(&*places).enumerate() {
        let start = lines.position(line, k as usize) * size;
        to.copy_from_slice(&src[start..start + size]);
    }
    Ok(())
}

/// The modes of an f64 or i64 tensor.
fn find_wide(lines: ModeLines, x: &Tensor, places: &mut [i64], pool: &Pool) {
    match x.dtype() {
        DType::F64 => lines.find::<f64, u128>(x.as_slice(), rank_of_f64, places, pool),
        _ => lines.find::<i64, u128>(x.as_slice(), rank_of_i64, places, pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of<T: Element>(data: &[T]) -> (Tensor, i64) {
        let call = Call {
            op: crate::op::by_name("mode").expect("a row"),
            args: vec![
                Val::Leaf(Tensor::from_slice(&[data.len()], data)),
                Val::int(0),
                Val::Bool(false),
            ],
        };
        let (mut value, mut place) = (Tensor::zeros(T::DTYPE, &[]), Tensor::zeros(DType::I64, &[]));
        let outs = &mut [ViewMut::from(&mut value), ViewMut::from(&mut place)];
        mode(&call, outs, &Pool::new(1)).expect("a mode");
        (value, place.as_slice::<i64>()[0])
    }

    /// The results are those of torch 2.15.
    #[test]
    fn the_least_of_the_most_frequent_elements_is_found() {
        for (data, want, place) in [
            (&[3.0, 1.0, 3.0, 1.0, 2.0][..], 1.0, 3),
            (&[5.0, -0.0, 0.0, 4.0], 0.0, 2),
            (&[f32::INFINITY, 2.0, f32::INFINITY], f32::INFINITY, 2),
            (&[-1.0, -2.0, -3.0], -3.0, 2),
        ] {
            let (value, at) = mode_of(data);
            assert_eq!((value.as_slice::<f32>()[0], at), (want, place), "{data:?}");
            let wide: Vec<f64> = data.iter().map(|&x| x as f64).collect();
            assert_eq!(mode_of(&wide).1, place, "{data:?}");
        }
        assert_eq!(mode_of(&[i64::MIN, i64::MAX, 0, i64::MAX]).1, 3);
        assert_eq!(mode_of(&[200u8, 3, 200, 3, 7]).1, 3);
        assert_eq!(mode_of(&[-5i8, 5, -5]).0.get(0).to_i64(), -5);
    }
}
