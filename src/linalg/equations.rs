//! Equations with the matrices of batches.

use super::LANES;
use super::batch::{Matrices, Results};
use super::lanes::lu::Pivots;
use super::lanes::{self, Interleaved};
use super::ldl::ldl_solve;
use super::lu::{solve_factored, solve_in_place, solve_transposed};
use super::matrix::Matrix;
use super::real::{Real, in_dtype};
use super::threads::{MOVED, in_parts, work_of};
use super::triangles::lines::{Triangle, solve_lines};
use super::triangles::{FEW, solve_triangle};
use crate::types::DType;

/// Equations `A X = B` or `X A = B` for pairs of matrices of two batches.
pub(crate) struct Equations<'a> {
    /// The matrices.
    pub(crate) a: Matrices,
    /// The right-hand sides.
    pub(crate) b: Matrices,
    /// The number of equations.
    pub(crate) count: usize,
    /// The indices of an equation's matrices in their batches. Both batches may be broadcast.
    pub(crate) places: Box<dyn Fn(usize) -> (usize, usize) + Sync + 'a>,
}

impl Equations<'_> {
    /// Whether they should be solved side by side.
    fn are_small(&self) -> bool {
        let largest = self.a.rows.max(self.b.rows).max(self.b.columns);
        lanes::suits(self.count, largest, largest)
    }

    /// The work for an equation, without factorising its matrix.
    fn work(&self) -> usize {
        let (n, lines) = (self.a.rows, self.b.rows.max(self.b.columns));
        (n + MOVED).saturating_mul(n + lines)
    }

    /// Solves one equation after the other. Those from the right (`left` is false) are solved transposed: both matrices are. `solve` is
    /// given the index of a matrix in its batch, and replaces the right-hand sides by the solution; it may change the matrix. Returns the
    /// solutions and what `solve` returned.
    fn solve_each<T: Real, R: Send>(
        &self,
        left: bool,
        work: usize,
        solve: impl Fn(usize, &mut Matrix<T>, &mut Matrix<T>) -> R + Sync,
    ) -> (Results, Vec<R>) {
        let (out, found) = in_parts(self.count, 1, work, |range| {
            let (mut m, mut r) = (Matrix::zeros(0, 0), Matrix::zeros(0, 0));
            let (mut out, mut found) = (Vec::<T>::new(), vec![]);
            for i in range {
                let (place_a, place_b) = (self.places)(i);
                if left {
                    self.a.read(place_a, &mut m);
                    self.b.read(place_b, &mut r);
                    found.push(solve(place_a, &mut m, &mut r));
                    out.extend_from_slice(&r.v);
                } else {
                    self.a.read_transposed(place_a, &mut m);
                    self.b.read_transposed(place_b, &mut r);
                    found.push(solve(place_a, &mut m, &mut r));
                    out.append(&mut r.transposed().v);
                }
            }
            (out, found)
        });
        (T::results(out), found)
    }

    /// [`solve_each`](Self::solve_each) with nothing but the solutions.
    fn solve_all<T: Real>(&self, left: bool, solve: impl Fn(usize, &mut Matrix<T>, &mut Matrix<T>) + Sync) -> Results {
        self.solve_each::<T, ()>(left, self.work(), solve).0
    }

    /// Solves by LU factors. `check` is called with the index of a matrix in its batch, and the 1-based position of its first zero pivot (0
    /// if there is none).
    pub(crate) fn solve<E>(&self, left: bool, check: &dyn Fn(usize, usize) -> Result<(), E>) -> Result<Results, E> {
        let work = self.work().saturating_add(work_of(self.a.rows, self.a.columns));
        let (out, singular) = match self.are_small() {
            true => self.solve_side_by_side(left, work),
            false => in_dtype!(self.a, T => self.solve_each::<T, usize>(left, work, |_, m, r| solve_in_place(m, r))),
        };
        for (i, singular) in singular.into_iter().enumerate() {
            check((self.places)(i).0, singular)?;
        }
        Ok(out)
    }

    /// The solutions by LU factors, and the position of the first zero pivot of each matrix.
    fn solve_side_by_side(&self, left: bool, work: usize) -> (Results, Vec<usize>) {
        let (out, singular) = in_parts(self.count, LANES, work, |range| {
            let (mut m, mut r) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0));
            let (mut pivots, mut out, mut singular) = (Pivots::default(), Vec::<f64>::new(), vec![]);
            for first in lanes::groups(range.clone()) {
                let count = (range.end - first).min(LANES);
                let places = lanes::places(first, self.count).map(&self.places);
                self.a.interleave(places.map(|p| p.0), !left, &mut m);
                self.b.interleave(places.map(|p| p.1), !left, &mut r);
                lanes::lu::lu(&mut m, &mut pivots);
                singular.extend_from_slice(&pivots.singular[..count]);
                lanes::lu::solve_factored(&m, &pivots, &mut r);
                r.append(count, !left, &mut out);
            }
            (out, singular)
        });
        (Results::F64(out), singular)
    }

    /// Solves with the LU factors of matrices, which `a` has, and their 1-based pivot rows. `adjoint` transposes the matrices.
    pub(crate) fn solve_by_lu(&self, pivots: &[Vec<usize>], left: bool, adjoint: bool) -> Results {
        in_dtype!(self.a, T => self.solve_by_lu_in::<T>(pivots, left, adjoint))
    }

    fn solve_by_lu_in<T: Real>(&self, pivots: &[Vec<usize>], left: bool, adjoint: bool) -> Results {
        // The equation from the right is solved transposed. Its factors arrive transposed too.
        let transposed = left == adjoint;
        self.solve_all::<T>(left, |i, m, r| {
            if left == transposed {
                *m = m.transposed();
            }
            match transposed {
                true => solve_transposed(m, &pivots[i], r),
                false => solve_factored(m, &pivots[i], r),
            }
        })
    }

    /// Solves with the L D L^T factors of matrices, which `a` has, and their pivots.
    pub(crate) fn solve_by_ldl(&self, pivots: &[Vec<i64>]) -> Results {
        self.solve_all::<f64>(true, |i, m, r| ldl_solve(m, &pivots[i], r))
    }

    /// Solves with a triangle of matrices, whose diagonal counts as 1 if `unit`.
    pub(crate) fn solve_triangles(&self, left: bool, upper: bool, unit: bool) -> Results {
        if self.are_small() {
            return self.triangles_side_by_side(left, upper, unit).into();
        }
        let lines = if left { self.b.columns } else { self.b.rows };
        if lines <= FEW {
            // The equation from the right is solved transposed.
            let transposed = !left;
            return self.solve_few(
                left,
                &[Triangle {
                    upper,
                    transposed,
                    unit,
                }],
            );
        }
        // Transposing the equation swaps the triangles.
        let upper = upper == left;
        in_dtype!(self.a, T => self.solve_all::<T>(left, |_, m, r| solve_triangle(m, r, upper, unit)))
    }

    fn triangles_side_by_side(&self, left: bool, upper: bool, unit: bool) -> Vec<f64> {
        in_parts(self.count, LANES, self.work(), |range| {
            let (mut m, mut r, mut out) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0), vec![]);
            for first in lanes::groups(range.clone()) {
                let places = lanes::places(first, self.count).map(&self.places);
                self.a.interleave(places.map(|p| p.0), !left, &mut m);
                self.b.interleave(places.map(|p| p.1), !left, &mut r);
                // Transposing the equation swaps the triangles.
                lanes::triangles::solve_triangle(&m, &mut r, upper == left, unit);
                r.append((range.end - first).min(LANES), !left, &mut out);
            }
            out
        })
    }

    /// Solves with the products of lower triangles and their transposes; if `upper`, of the transposes of upper triangles and these.
    pub(crate) fn solve_by_cholesky(&self, upper: bool) -> Results {
        if self.b.columns <= FEW {
            let triangle = |transposed: bool| Triangle {
                upper,
                transposed,
                unit: false,
            };
            return self.solve_few(true, &[triangle(upper), triangle(!upper)]);
        }
        in_dtype!(self.a, T => self.solve_all::<T>(true, |_, m, r| {
            let turned = m.transposed();
            let (lower, upper) = if upper { (&turned, &*m) } else { (&*m, &turned) };
            solve_triangle(lower, r, false, false);
            solve_triangle(upper, r, true, false);
        }))
    }

    /// Solves by one triangle after the other, for few right-hand sides: the columns of `b`, or its rows for equations from the right.
    fn solve_few(&self, left: bool, triangles: &[Triangle]) -> Results {
        match self.a.dtype() {
            DType::F32 => self.solve_few_in::<f32>(left, triangles),
            _ => self.solve_few_in::<f64>(left, triangles),
        }
    }

    fn solve_few_in<T: Real>(&self, left: bool, triangles: &[Triangle]) -> Results {
        T::results(in_parts(self.count, 1, self.work(), |range| {
            let (mut lines, mut out) = (Matrix::<T>::zeros(0, 0), vec![]);
            for i in range {
                let (place_a, place_b) = (self.places)(i);
                self.b.read(place_b, &mut lines);
                let one_line = lines.rows == 1 || lines.columns == 1;
                if left && !one_line {
                    lines = lines.transposed();
                }
                for t in triangles {
                    solve_lines(self.a.stored(place_a), &mut lines.v, self.a.rows, *t);
                }
                match left && !one_line {
                    true => out.append(&mut lines.transposed().v),
                    false => out.extend_from_slice(&lines.v),
                }
            }
            out
        }))
    }
}
