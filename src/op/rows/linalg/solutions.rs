//! The values of inverses, determinants and solutions of equations.

use super::blocks::{FEW, lu, solve_triangle};
use super::errors::{check_codes, check_info};
use super::factorize::{inverse_of, pivot_sign, solve_in_place};
use super::interleaved::{self, Interleaved, LANES, Pivots};
use super::interleaved_triangles;
use super::is_vectors;
use super::matrix::{Matrix, tensor_from_numbers};
use super::real::{Real, in_dtype};
use super::transfer::{Matrices, Results, tensor_from_results};
use super::triangles::{Triangle, solve_lines};
use crate::op::rows::dense::broadcast_position;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Val};

/// LU factors.
pub(super) enum Factors<'a, T> {
    /// Of a matrix: with the pivots and the 1-based position of the first zero pivot (0 if there is none).
    One(&'a Matrix<T>, &'a [usize], usize),
    /// Of matrices side by side: with the number of matrices.
    Many(&'a Interleaved, &'a Pivots, usize),
}

/// Calls `f` with the LU factors of all matrices in their order.
pub(super) fn each_lu<T: Real>(a: &Matrices, mut f: impl FnMut(Factors<T>)) {
    if interleaved::suits(a.count, a.rows, a.columns) {
        let (mut m, mut pivots) = (Interleaved::zeros(a.rows, a.columns), Pivots::default());
        for first in interleaved::groups(a.count) {
            a.interleave(interleaved::places(first, a.count), false, &mut m);
            interleaved::lu(&mut m, &mut pivots);
            f(Factors::Many(&m, &pivots, (a.count - first).min(LANES)));
        }
        return;
    }
    let mut m = Matrix::zeros(0, 0);
    for i in 0..a.count {
        a.read(i, &mut m);
        let (pivots, singular) = lu(&mut m);
        f(Factors::One(&m, &pivots, singular));
    }
}

pub(super) fn inverse(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let matrices = Matrices::of(c.leaf("A")?);
    in_dtype!(matrices, inverse_in(c, &matrices))
}

fn inverse_in<T: Real>(c: &Call<Tensor>, matrices: &Matrices) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let n = matrices.rows;
    let (mut all, mut info) = (Vec::with_capacity(a.numel()), vec![]);
    let mut side_by_side = Interleaved::zeros(0, 0);
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, singular) => {
            info.push(singular as f64);
            all.append(&mut inverse_of(m, pivots).v);
        }
        Factors::Many(m, pivots, count) => {
            side_by_side.set_eye(n);
            interleaved::solve_factored(m, pivots, &mut side_by_side);
            info.extend(pivots.singular[..count].iter().map(|s| *s as f64));
            side_by_side.append(count, false, &mut all);
        }
    });
    if c.bool("check_errors")? {
        check_info("linalg.inv_ex", &info, a)?;
    }
    let out = tensor_from_numbers(a.dtype(), a.shape(), all)?;
    let info = tensor_from_numbers(DType::I32, &a.shape()[..a.rank() - 2], info)?;
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(info)]))
}

pub(super) fn determinant(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let matrices = Matrices::of(a);
    let all = in_dtype!(matrices, determinants_in(&matrices));
    tensor_from_numbers(a.dtype(), &a.shape()[..a.rank() - 2], all).map(Val::Leaf)
}

fn determinants_in<T: Real>(matrices: &Matrices) -> Vec<f64> {
    let mut all = vec![];
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, _) => all.push((0..m.rows).fold(pivot_sign(pivots), |d, i| d * m.at(i, i).into())),
        Factors::Many(m, pivots, count) => {
            all.extend((0..count).map(|l| (0..m.rows).fold(pivots.sign(l), |d, i| d * m.at(i, i)[l])))
        }
    });
    all
}

pub(super) fn slogdet(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let matrices = Matrices::of(a);
    let (signs, logs) = in_dtype!(matrices, signs_and_logarithms_in(&matrices));
    let shape = &a.shape()[..a.rank() - 2];
    let (signs, logs) = (
        tensor_from_numbers(a.dtype(), shape, signs)?,
        tensor_from_numbers(a.dtype(), shape, logs)?,
    );
    Ok(Val::Tuple(vec![Val::Leaf(signs), Val::Leaf(logs)]))
}

fn signs_and_logarithms_in<T: Real>(matrices: &Matrices) -> (Vec<f64>, Vec<f64>) {
    let (mut signs, mut logs) = (vec![], vec![]);
    let mut push = |sign: f64, diagonal: &mut dyn Iterator<Item = f64>| {
        let (mut s, mut log) = (sign, 0.0);
        for p in diagonal {
            // As in torch, 0 and NaN have the sign 0.
            s *= if p == 0.0 || p.is_nan() { 0.0 } else { p.signum() };
            log += p.abs().ln();
        }
        signs.push(s);
        logs.push(log);
    };
    each_lu::<T>(matrices, |factors| match factors {
        Factors::One(m, pivots, _) => push(pivot_sign(pivots), &mut (0..m.rows).map(|i| m.at(i, i).into())),
        Factors::Many(m, pivots, count) => {
            (0..count).for_each(|l| push(pivots.sign(l), &mut (0..m.rows).map(|i| m.at(i, i)[l])))
        }
    });
    (signs, logs)
}

/// The matrices of an equation, with batch dims broadcast to those of the result.
struct Equations {
    a: Matrices,
    b: Matrices,
    own_a: Vec<usize>,
    own_b: Vec<usize>,
    lead: Vec<usize>,
}

impl Equations {
    fn new(a: &Tensor, b: &Tensor) -> OpResult<Equations> {
        let (own_a, own_b) = (&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]);
        let lead = Sizes::default().broadcast(&const_dims(own_a), &const_dims(own_b))?;
        Ok(Equations {
            a: Matrices::of(a),
            b: Matrices::of(b),
            own_a: own_a.to_vec(),
            own_b: own_b.to_vec(),
            lead: lead.iter().filter_map(|d| d.as_const()).map(|d| d as usize).collect(),
        })
    }

    fn count(&self) -> usize {
        self.lead.iter().product()
    }

    /// Whether they should be solved side by side.
    fn are_small(&self) -> bool {
        let largest = self.a.rows.max(self.b.rows).max(self.b.columns);
        interleaved::suits(self.count(), largest, largest)
    }

    /// The indices of equation `i`'s matrices.
    fn places(&self, i: usize) -> (usize, usize) {
        let place = |own: &[usize]| match own == self.lead {
            true => i,
            false => broadcast_position(own, &self.lead, i),
        };
        (place(&self.own_a), place(&self.own_b))
    }
}

/// The shape of the result.
fn result_shape(c: &Call<Tensor>) -> OpResult<Vec<usize>> {
    let ty = c.op.result_type(&c.map(Tensor::ty), &mut Sizes::default())?;
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape);
    shape.ok_or_else(|| OpError::shape("the sizes of the result are unknown"))
}

/// Replaces the right-hand sides by the solution. May change the matrix, which has this index in its batch.
pub(in crate::op::rows) type SolvePair<'a, T> = dyn Fn(usize, &mut Matrix<T>, &mut Matrix<T>) -> OpResult<()> + 'a;

/// Calls `solve(index in a's batch, a, b)` for each pair of matrices, with batch dims broadcast to those of the result. `solve` replaces
/// `b` by the solution, and may change `a`. For equations from the right, both matrices are transposed.
pub(in crate::op::rows) fn solve_batch<T: Real>(
    c: &Call<Tensor>,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    solve: &SolvePair<'_, T>,
) -> OpResult<Tensor> {
    let shape = result_shape(c)?;
    let all = Equations::new(a, b)?;
    let (mut m, mut r, mut out) = (Matrix::zeros(0, 0), Matrix::zeros(0, 0), Vec::<T>::new());
    for i in 0..all.count() {
        let (place_a, place_b) = all.places(i);
        if left {
            all.a.read(place_a, &mut m);
            all.b.read(place_b, &mut r);
            solve(place_a, &mut m, &mut r)?;
            out.extend_from_slice(&r.v);
        } else {
            all.a.read_transposed(place_a, &mut m);
            all.b.read_transposed(place_b, &mut r);
            solve(place_a, &mut m, &mut r)?;
            out.append(&mut r.transposed().v);
        }
    }
    tensor_from_numbers(a.dtype(), &shape, out)
}

fn const_dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&n| Dim::Const(n as i64)).collect()
}

pub(super) fn solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, b, left) = (c.leaf("A")?, c.leaf("B")?, c.bool("left")?);
    let vectors = is_vectors(&const_dims(a.shape()), &const_dims(b.shape()), left)?;
    let b = match vectors {
        true => b.reshape(&[b.shape(), &[1]].concat()),
        false => b.clone(),
    };
    let check = |place: usize, singular: usize| {
        let codes = std::iter::repeat_n(0, place).chain([singular as i64]);
        check_codes("torch.linalg.solve", codes, a.rank() == 2)
    };
    let all = Equations::new(a, &b)?;
    if all.are_small() {
        let out = solve_side_by_side(&all, left, &check)?;
        return tensor_from_numbers(a.dtype(), &result_shape(c)?, out).map(Val::Leaf);
    }
    in_dtype!(all.a, solve_each(c, a, &b, left, &check)).map(Val::Leaf)
}

fn solve_each<T: Real>(
    c: &Call<Tensor>,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    check: &dyn Fn(usize, usize) -> OpResult<()>,
) -> OpResult<Tensor> {
    let solve_one = |place: usize, m: &mut Matrix<T>, r: &mut Matrix<T>| check(place, solve_in_place(m, r));
    solve_batch(c, a, b, left, &solve_one)
}

/// The solutions of small equations. Calls `check` with the index in a's batch and the position of the first zero pivot of each.
fn solve_side_by_side(all: &Equations, left: bool, check: &dyn Fn(usize, usize) -> OpResult<()>) -> OpResult<Vec<f64>> {
    let (mut m, mut r) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0));
    let (mut pivots, mut out) = (Pivots::default(), vec![]);
    for first in interleaved::groups(all.count()) {
        let places = interleaved::places(first, all.count()).map(|i| all.places(i));
        all.a.interleave(places.map(|p| p.0), !left, &mut m);
        all.b.interleave(places.map(|p| p.1), !left, &mut r);
        interleaved::lu(&mut m, &mut pivots);
        for (place, singular) in places.iter().zip(pivots.singular) {
            check(place.0, singular)?;
        }
        interleaved::solve_factored(&m, &pivots, &mut r);
        r.append((all.count() - first).min(LANES), !left, &mut out);
    }
    Ok(out)
}

pub(super) fn solve_triangular(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (a, b) = (c.leaf("self")?, c.leaf("B")?);
    let (upper, unit, left) = (c.bool("upper")?, c.bool("unitriangular")?, c.bool("left")?);
    let all = Equations::new(a, b)?;
    if all.are_small() {
        let solved = triangles_side_by_side(&all, left, upper, unit);
        return tensor_from_numbers(a.dtype(), &result_shape(c)?, solved).map(Val::Leaf);
    }
    let few = b.shape()[b.rank() - if left { 1 } else { 2 }] <= FEW;
    if few {
        // The equation from the right is solved transposed.
        let t = Triangle {
            upper,
            transposed: !left,
            unit,
        };
        return solve_few(c, a, b, left, &[t]).map(Val::Leaf);
    }
    // Transposing the equation swaps the triangles.
    in_dtype!(Matrices::of(a), solve_triangles(c, a, b, left, (upper == left, unit))).map(Val::Leaf)
}

/// The solutions of small triangular equations.
fn triangles_side_by_side(all: &Equations, left: bool, upper: bool, unit: bool) -> Vec<f64> {
    let (mut m, mut r, mut out) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0), vec![]);
    for first in interleaved::groups(all.count()) {
        let places = interleaved::places(first, all.count()).map(|i| all.places(i));
        all.a.interleave(places.map(|p| p.0), !left, &mut m);
        all.b.interleave(places.map(|p| p.1), !left, &mut r);
        // Transposing the equation swaps the triangles.
        interleaved_triangles::solve_triangle(&m, &mut r, upper == left, unit);
        r.append((all.count() - first).min(LANES), !left, &mut out);
    }
    out
}

fn solve_triangles<T: Real>(
    c: &Call<Tensor>,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    (upper, unit): (bool, bool),
) -> OpResult<Tensor> {
    let solve_one = |_: usize, m: &mut Matrix<T>, r: &mut Matrix<T>| {
        solve_triangle(m, r, upper, unit);
        Ok(())
    };
    solve_batch(c, a, b, left, &solve_one)
}

/// Solves by one triangle after the other, for few right-hand sides: the columns of `b`, or its rows for equations from the right.
fn solve_few(c: &Call<Tensor>, a: &Tensor, b: &Tensor, left: bool, triangles: &[Triangle]) -> OpResult<Tensor> {
    let shape = result_shape(c)?;
    let all = Equations::new(a, b)?;
    let out = match a.dtype() {
        DType::F32 => solve_lines_of_all::<f32>(&all, left, triangles),
        _ => solve_lines_of_all::<f64>(&all, left, triangles),
    };
    tensor_from_results(a.dtype(), &shape, out)
}

fn solve_lines_of_all<T: Real>(all: &Equations, left: bool, triangles: &[Triangle]) -> Results {
    let (mut lines, mut out) = (Matrix::<T>::zeros(0, 0), vec![]);
    for i in 0..all.count() {
        let (place_a, place_b) = all.places(i);
        all.b.read(place_b, &mut lines);
        let one_line = lines.rows == 1 || lines.columns == 1;
        if left && !one_line {
            lines = lines.transposed();
        }
        for t in triangles {
            solve_lines(all.a.stored(place_a), &mut lines.v, all.a.rows, *t);
        }
        match left && !one_line {
            true => out.append(&mut lines.transposed().v),
            false => out.extend_from_slice(&lines.v),
        }
    }
    T::results(out)
}

/// The solutions of `A X = B` for the product A of a triangular factor and its transpose.
pub(super) fn cholesky_solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (b, l, upper) = (c.leaf("self")?, c.leaf("input2")?, c.bool("upper")?);
    if b.shape()[b.rank() - 1] <= FEW {
        let triangle = |transposed: bool| Triangle {
            upper,
            transposed,
            unit: false,
        };
        return solve_few(c, l, b, true, &[triangle(upper), triangle(!upper)]).map(Val::Leaf);
    }
    in_dtype!(Matrices::of(l), solve_by_cholesky(c, l, b, upper)).map(Val::Leaf)
}

fn solve_by_cholesky<T: Real>(c: &Call<Tensor>, l: &Tensor, b: &Tensor, upper: bool) -> OpResult<Tensor> {
    let solve_one = |_: usize, m: &mut Matrix<T>, r: &mut Matrix<T>| {
        let turned = m.transposed();
        let (lower, upper) = if upper { (&turned, &*m) } else { (&*m, &turned) };
        solve_triangle(lower, r, false, false);
        solve_triangle(upper, r, true, false);
        Ok(())
    };
    solve_batch(c, l, b, true, &solve_one)
}
