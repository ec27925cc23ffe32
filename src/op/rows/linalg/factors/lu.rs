//! LU factors, and solutions by them.

use super::{factors_type, same_dtype, with_least};
use crate::linalg::batch::Matrices;
use crate::linalg::lu::{factors_of_all, row_order};
use crate::linalg::real::Real;
use crate::op::rows::dense::zeros;
use crate::op::rows::linalg::errors::{call_check_errors, check_info};
use crate::op::rows::linalg::results::pack_results;
use crate::op::rows::linalg::solutions::{equations, solution};
use crate::op::rows::linalg::{is_vectors, solution_type, want_matrices, want_square};
use crate::op::{Build, Call, Meaning, Op, OpError, OpId, OpResult, Sizes, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn lu_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor, Tensor, Tensor)",
            |c, _| lu_type(c),
            Meaning::Routine(lu_factor),
        )
        .doc("L below the diagonal and U on and above it, the pivots, and 0 or the index of the first zero pivot")
        .spelled("aten.@ torch.linalg.lu_factor_ex")
        .form(
            "aten._lu_with_info.default torch._lu_with_info",
            "_lu_with_info(Tensor A, bool pivot=True, bool check_errors=True) -> (Tensor, Tensor, Tensor)",
        ),
        Op::composite("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor, Tensor)",
            |b, c| {
                let v = b.call_many(OpId::LinalgLuFactorEx, [c.get("A").clone(), c.get("pivot").clone()])?;
                call_check_errors(b, "torch.linalg.lu_factor", &v[2], c.leaf("A")?)?;
                Ok(Val::Tuple(v[..2].iter().map(Val::from).collect()))
            },
        )
        .doc("L below the diagonal and U on and above it, and the pivots")
        .spelled("aten.@ torch.linalg.lu_factor"),
        Op::composite("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor, Tensor, Tensor)",
            |b, c| {
                let v = b.call_many(OpId::LinalgLuFactorEx, [c.get("A").clone(), c.get("pivot").clone()])?;
                b.call(OpId::LuUnpack, vec![(&v[0]).into(), (&v[1]).into()])
            },
        )
        .doc("the factors P, L and U with P L U = A")
        .spelled("aten.@ torch.linalg.lu"),
        Op::new("lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor, Tensor, \
             Tensor)",
            |c, _| unpack_type(c),
            Meaning::Routine(lu_unpack),
        )
        .doc("P, L and U from the results of lu_factor; results that are not requested are empty")
        .spelled("aten.@ torch.@"),
    ]
}

pub(super) fn lu_solutions() -> Vec<Op> {
    vec![
        Op::new("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
            |c, s| {
                let (d, lu) = want_square(c, "LU")?;
                same_dtype(c, "B", d)?;
                solution_type(c, s, d, lu, c.shaped("B")?.1)
            },
            Meaning::Routine(lu_solve),
        )
        .doc("the solution X of A X = B or X A = B, optionally with A transposed, from A's factors")
        .spelled("aten.@ torch.linalg.lu_solve"),
        Op::composite("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor",
            |b, c| {
                b.call(OpId::LinalgLuSolve, vec![c.get("LU_data").clone(), c.get("LU_pivots").clone(), c.get("self").clone()])
            },
        )
        .doc("the solution X of A X = self from A's factors")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor, Tensor, Tensor, Tensor)",
            solve_ex,
        )
        .doc("the solution X of A X = B or X A = B, A's factors, and 0 or the index of the first zero pivot")
        .spelled("aten.@"),
        Op::composite("linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor, Tensor)",
            |b, c| {
                let v = b.call_many(OpId::_LinalgSolveEx, c.args.clone())?;
                Ok(Val::Tuple(vec![(&v[0]).into(), (&v[3]).into()]))
            },
        )
        .doc("the solution X of A X = B or X A = B, and 0 or the index of the first zero pivot")
        .spelled("aten.@ torch.linalg.solve_ex"),
    ]
}

fn lu_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, shape) = want_matrices(c, "A")?;
    if !c.bool("pivot")? {
        return Err(OpError::arg(
            "pivot",
            "linalg.lu_factor: LU without pivoting is not implemented on the CPU",
        ));
    }
    Ok(factors_type(d, shape, with_least(shape)?))
}

fn unpack_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (d, shape) = c.shaped("LU_data")?;
    let [lead @ .., m, n] = shape else {
        return Err(OpError::shape(
            "torch.lu_unpack: LU_data must have at least 2 dimensions",
        ));
    };
    if c.leaf("LU_pivots")?.dtype != DType::I32 {
        return Err(OpError::dtype(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.",
        ));
    }
    let least = with_least(shape)?.pop().unwrap_or(Dim::Unknown);
    let matrix = |requested: bool, rows: &Dim, columns: &Dim| match requested {
        true => TensorType::new(d, [lead, &[rows.clone(), columns.clone()]].concat()),
        false => TensorType::new(d, vec![Dim::Const(0)]),
    };
    let (data, pivots) = (c.bool("unpack_data")?, c.bool("unpack_pivots")?);
    let all = [matrix(pivots, m, m), matrix(data, m, &least), matrix(data, &least, n)];
    Ok(Val::Tuple(all.map(Val::Leaf).to_vec()))
}

/// The pivots of each matrix.
pub(super) fn pivots_of(t: &Tensor) -> Vec<Vec<i64>> {
    let n = t.shape().last().copied().unwrap_or(0);
    let count: usize = t.shape().iter().rev().skip(1).product();
    if t.dtype() == DType::I32 {
        let all = t.as_slice::<i32>();
        let row = |i: usize| all[i * n..(i + 1) * n].iter().map(|p| i64::from(*p)).collect();
        return (0..count).map(row).collect();
    }
    let row = |i: usize| (i * n..(i + 1) * n).map(|k| t.get(k).to_i64()).collect();
    (0..count).map(row).collect()
}

/// The pivots of an LU factorisation; E0502 if one is not a row number.
fn lu_pivots(t: &Tensor, rows: usize) -> OpResult<Vec<Vec<usize>>> {
    let to_row = |p: &i64| usize::try_from(*p).ok().filter(|p| (1..=rows).contains(p));
    let all = pivots_of(t);
    let all: Option<Vec<Vec<usize>>> = all.iter().map(|v| v.iter().map(to_row).collect()).collect();
    all.ok_or_else(|| OpError::value("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."))
}

fn lu_factor(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let (factors, pivots, info) = factors_of_all(&Matrices::of(a));
    if c.bool("check_errors")? {
        check_info("torch.linalg.lu_factor_ex", &info, a)?;
    }
    pack_results(c, vec![factors, pivots.into(), info.into()])
}

fn lu_unpack(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let data = c.leaf("LU_data")?;
    let all = Matrices::of(data);
    let out = match all.dtype() {
        DType::F32 => lu_unpack_in::<f32>(c, &all)?,
        _ => lu_unpack_in::<f64>(c, &all)?,
    };
    Ok(Val::Tuple(
        out.into_iter().map(|t| Val::Leaf(t.to(data.dtype()))).collect(),
    ))
}

/// P, L and U; tensors without elements stand for those that are not requested.
fn lu_unpack_in<T: Real>(c: &Call<Tensor>, all: &Matrices) -> OpResult<Vec<Tensor>> {
    let (rows, columns) = (all.rows, all.columns);
    let pivots = lu_pivots(c.leaf("LU_pivots")?, rows)?;
    let least = rows.min(columns);
    let types = c.op.result_type(&c.types(), &mut Sizes::default())?;
    let shapes = types.leaves().into_iter().map(|t| t.fixed_shape().unwrap_or_default());
    let mut out = shapes
        .map(|s| zeros(all.dtype(), &s))
        .collect::<OpResult<Vec<Tensor>>>()?;
    let [p, l, u] = &mut out[..] else {
        return Err(OpError::value("torch.lu_unpack has three results"));
    };
    let (p, l, u) = (p.as_mut_slice::<T>(), l.as_mut_slice::<T>(), u.as_mut_slice::<T>());
    let (mut order, requested) = (vec![], [c.bool("unpack_pivots")?, c.bool("unpack_data")?]);
    for (i, pivots) in pivots.iter().enumerate().take(all.count) {
        if requested[0] {
            row_order(rows, pivots, &mut order);
            let p = &mut p[i * rows * rows..(i + 1) * rows * rows];
            order.iter().enumerate().for_each(|(j, row)| p[row * rows + j] = T::ONE);
        }
        if requested[1] {
            let l = &mut l[i * rows * least..(i + 1) * rows * least];
            let u = &mut u[i * least * columns..(i + 1) * least * columns];
            unpack_triangles(all.stored(i), columns, l, u);
        }
    }
    Ok(out)
}

/// Writes the triangles of a matrix to zeros.
fn unpack_triangles<T: Real>(m: &[T], columns: usize, l: &mut [T], u: &mut [T]) {
    let least = u.len() / columns.max(1);
    for (r, row) in m.chunks_exact(columns.max(1)).enumerate() {
        let below = &mut l[r * least..(r + 1) * least];
        let known = r.min(least);
        below[..known].copy_from_slice(&row[..known]);
        if r < least {
            below[r] = T::ONE;
            u[r * columns + r..(r + 1) * columns].copy_from_slice(&row[r..]);
        }
    }
}

fn lu_solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (factors, b) = (c.leaf("LU")?, c.leaf("B")?);
    let pivots = lu_pivots(c.leaf("pivots")?, factors.shape()[factors.rank() - 1])?;
    let x = equations(factors, b)?.solve_by_lu(&pivots, c.bool("left")?, c.bool("adjoint")?);
    solution(c, factors.dtype(), x)
}

/// `B` may be a batch of vectors.
fn solve_ex(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (a, rhs) = (c.leaf("A")?, c.leaf("B")?);
    let factors = b.call_many(OpId::LinalgLuFactorEx, [a.into(), Val::Bool(true)])?;
    if c.bool("check_errors")? {
        call_check_errors(b, "torch.linalg.solve_ex", &factors[2], a)?;
    }
    let vectors = is_vectors(a.shape()?, rhs.shape()?, c.bool("left")?)?;
    let rhs = match vectors {
        true => b.unsqueeze(rhs, rhs.rank()?)?,
        false => rhs.clone(),
    };
    let args = [
        (&factors[0]).into(),
        (&factors[1]).into(),
        rhs.into(),
        c.get("left").clone(),
    ];
    let x = b.op(OpId::LinalgLuSolve, args)?;
    let x = match vectors {
        true => b.squeeze(&x, x.rank()? - 1)?,
        false => x,
    };
    let all = [&x, &factors[0], &factors[1], &factors[2]];
    Ok(Val::Tuple(all.map(Val::from).to_vec()))
}
