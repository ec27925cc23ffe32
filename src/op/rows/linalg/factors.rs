//! Rows of factorisations with pivots and reflections: LU, QR, LDL, and the solvers based on them.

use super::errors::{call_check_errors, check_info};
use super::factorize::{apply_reflections, householder_qr, ldl, ldl_solve, lu, lu_parts, solve_in_place};
use super::matrix::{Matrix, tensor_from_numbers, tensor_to_matrices};
use super::{solution_type, solve_batch, want_matrices, want_square};
use crate::op::pointwise::not_implemented;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        lu_rows(),
        lu_solutions(),
        householder_rows(),
        qr_rows(),
        ldl_rows(),
        ldl_solution_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn lu_rows() -> Vec<Op> {
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

fn lu_solutions() -> Vec<Op> {
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

/// Householder vectors and products with them.
fn householder_rows() -> Vec<Op> {
    vec![
        Op::new(
            "geqrf(Tensor self) -> (Tensor, Tensor)",
            |c, _| {
                let (d, shape) = want_matrices(c, "self")?;
                let tau = with_least(shape)?;
                Ok(pair_type(TensorType::new(d, shape.to_vec()), TensorType::new(d, tau)))
            },
            Meaning::Routine(geqrf),
        )
        .doc("R on and above the diagonal, the Householder vectors below it, and their scale factors")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
            |c, _| {
                let (d, x) = want_matrices(c, "self")?;
                let (_, out) = want_matrices(c, "input3")?;
                let side = out.len() - 1 - c.bool("left")? as usize;
                if x[x.len() - 2].sub(&out[side]).as_const().is_some_and(|n| n != 0) {
                    return Err(OpError::shape("torch.ormqr: the sizes of input and other do not match"));
                }
                Ok(Val::Leaf(TensorType::new(d, out.to_vec())))
            },
            Meaning::Routine(ormqr),
        )
        .doc("the product of Q from geqrf's results, or of its transpose, with input3")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
            householder_product,
        )
        .doc("the first columns of Q from geqrf's results")
        .spelled("aten.@ torch.linalg.householder_product")
        .form(
            "aten.orgqr.default torch.orgqr Tensor.orgqr",
            "orgqr(Tensor input, Tensor tau) -> Tensor",
        ),
    ]
}

fn qr_rows() -> Vec<Op> {
    vec![
        Op::composite("linalg_qr(Tensor A, str mode='reduced') -> (Tensor, Tensor)",
            |b, c| {
                let mode = c.str("mode")?.to_string();
                if !["reduced", "complete", "r"].contains(&&*mode) {
                    return Err(OpError::arg("mode", format!(
                        "qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
                    )));
                }
                qr(b, c.leaf("A")?, &mode)
            },
        )
        .doc("the factors Q (orthonormal columns) and R (upper triangular) with Q R = A")
        .spelled("aten.@ torch.linalg.qr"),
        Op::composite("qr(Tensor self, bool some=True) -> (Tensor, Tensor)", |b, c| {
            qr(b, c.leaf("self")?, if c.bool("some")? { "reduced" } else { "complete" })
        })
        .doc("linalg_qr, reduced or complete")
        .spelled("torch.@ Tensor.@"),
    ]
}

fn ldl_rows() -> Vec<Op> {
    vec![
        Op::new("linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor, Tensor, Tensor)",
            |c, _| {
                let (d, shape) = want_square(c, "self")?;
                Ok(factors_type(d, shape, shape[..shape.len() - 1].to_vec()))
            },
            Meaning::Routine(ldl_factor),
        )
        .doc("the Bunch-Kaufman factors L and D of a symmetric matrix, the pivots, and 0 or the index of the first zero in D")
        .spelled("aten.@ torch.linalg.ldl_factor_ex"),
        Op::composite("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor, Tensor)",
            |b, c| {
                let v = b.call_many(OpId::LinalgLdlFactorEx, [c.get("self").clone(), c.get("hermitian").clone()])?;
                call_check_errors(b, "torch.linalg.ldl_factor", &v[2], c.leaf("self")?)?;
                Ok(Val::Tuple(v[..2].iter().map(Val::from).collect()))
            },
        )
        .doc("the Bunch-Kaufman factors L and D of a symmetric matrix, and the pivots")
        .spelled("aten.@ torch.linalg.ldl_factor"),
    ]
}

fn ldl_solution_rows() -> Vec<Op> {
    vec![
        Op::new(
            "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
            |c, s| {
                let (d, ld) = want_square(c, "LD")?;
                let (_, b) = want_matrices(c, "B")?;
                same_dtype(c, "B", d)?;
                let lead = s.broadcast(&ld[..ld.len() - 2], &b[..b.len() - 2])?;
                Ok(Val::Leaf(TensorType::new(d, [&lead[..], &b[b.len() - 2..]].concat())))
            },
            Meaning::Routine(|c| {
                let (ld, b) = (c.leaf("LD")?, c.leaf("B")?);
                let pivots = pivots_of(c.leaf("pivots")?);
                let one = |i: usize, m: Matrix, mut r: Matrix| {
                    ldl_solve(&m, &pivots[i], &mut r);
                    Ok(r)
                };
                solve_batch(c, ld, b, true, &one).map(Val::Leaf)
            }),
        )
        .doc("the solution X of A X = B from A's factors")
        .spelled("aten.@ torch.linalg.ldl_solve"),
    ]
}

// --- types ---------------------------------------------------------------------------------------------------------

fn pair_type(a: TensorType, b: TensorType) -> Type {
    Val::Tuple(vec![Val::Leaf(a), Val::Leaf(b)])
}

/// The batch dims, followed by the smaller size of the matrices.
pub(in crate::op::rows) fn with_least(shape: &[Dim]) -> OpResult<Vec<Dim>> {
    let [lead @ .., m, n] = shape else {
        return Err(OpError::shape("a matrix has two dims"));
    };
    let least = match (m.as_const(), n.as_const()) {
        (Some(m), Some(n)) => Dim::Const(m.min(n)),
        _ if m == n => m.clone(),
        _ => m.min_of(n),
    };
    Ok([lead, &[least]].concat())
}

/// The types of factors (of the matrices' shape), pivots, and an info per matrix.
fn factors_type(d: DType, shape: &[Dim], pivots: Vec<Dim>) -> Type {
    let info = TensorType::new(DType::I32, shape[..shape.len() - 2].to_vec());
    let pivots = TensorType::new(DType::I32, pivots);
    let all = [TensorType::new(d, shape.to_vec()), pivots, info];
    Val::Tuple(all.map(Val::Leaf).to_vec())
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
    let of = |given: bool, rows: &Dim, columns: &Dim| match given {
        true => TensorType::new(d, [lead, &[rows.clone(), columns.clone()]].concat()),
        false => TensorType::new(d, vec![Dim::Const(0)]),
    };
    let (data, pivots) = (c.bool("unpack_data")?, c.bool("unpack_pivots")?);
    let all = [of(pivots, m, m), of(data, m, &least), of(data, &least, n)];
    Ok(Val::Tuple(all.map(Val::Leaf).to_vec()))
}

fn same_dtype(c: &Call<TensorType>, name: &str, d: DType) -> OpResult<()> {
    match c.leaf(name)?.dtype == d {
        true => Ok(()),
        false => Err(OpError::dtype(format!(
            "{}: Expected all tensors to have the same dtype",
            c.op.name.replacen("linalg_", "linalg.", 1)
        ))),
    }
}

// --- values --------------------------------------------------------------------------------------------------------

/// The pivots of each matrix.
fn pivots_of(t: &Tensor) -> Vec<Vec<i64>> {
    let n = t.shape().last().copied().unwrap_or(0);
    let count: usize = t.shape().iter().rev().skip(1).product();
    let row = |i: usize| (i * n..(i + 1) * n).map(|k| t.get(k).to_i64()).collect();
    (0..count).map(row).collect()
}

/// The pivots of an LU factorisation; E0502 if one is not a row number.
fn lu_pivots(t: &Tensor, rows: usize) -> OpResult<Vec<Vec<usize>>> {
    let one = |p: &i64| usize::try_from(*p).ok().filter(|p| (1..=rows).contains(p));
    let all = pivots_of(t);
    let all: Option<Vec<Vec<usize>>> = all.iter().map(|v| v.iter().map(one).collect()).collect();
    all.ok_or_else(|| OpError::value("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."))
}

/// Packs several results into tensors of the types that the op's rule computes.
pub(in crate::op::rows) fn pack_results(c: &Call<Tensor>, values: Vec<Vec<f64>>) -> OpResult<Val<Tensor>> {
    let ty = (c.op.rule)(&c.types(), &mut Sizes::default())?;
    let mut out = vec![];
    for (t, v) in ty.leaves().into_iter().zip(values) {
        let shape = t
            .fixed_shape()
            .ok_or_else(|| OpError::shape("the sizes of a result are unknown"))?;
        out.push(Val::Leaf(tensor_from_numbers(t.dtype, &shape, v)?));
    }
    Ok(Val::Tuple(out))
}

fn lu_factor(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let a = c.leaf("A")?;
    let (mut all, mut pivots, mut info) = (vec![], vec![], vec![]);
    for mut m in tensor_to_matrices(a) {
        let (p, singular) = lu(&mut m);
        all.extend(m.v);
        pivots.extend(p.into_iter().map(|p| p as f64));
        info.push(singular as f64);
    }
    if c.bool("check_errors")? {
        check_info("torch.linalg.lu_factor_ex", &info, a)?;
    }
    pack_results(c, vec![all, pivots, info])
}

fn lu_unpack(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let data = c.leaf("LU_data")?;
    let pivots = lu_pivots(c.leaf("LU_pivots")?, data.shape()[data.rank() - 2])?;
    let mut all = vec![vec![]; 3];
    for (m, p) in tensor_to_matrices(data).into_iter().zip(&pivots) {
        let (p, l, u) = lu_parts(&m, p);
        all.iter_mut().zip([p, l, u]).for_each(|(v, m)| v.extend(m.v));
    }
    pack_results(c, all)
}

fn lu_solve(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (factors, b) = (c.leaf("LU")?, c.leaf("B")?);
    let n = factors.shape()[factors.rank() - 1];
    let pivots = lu_pivots(c.leaf("pivots")?, n)?;
    let (left, adjoint) = (c.bool("left")?, c.bool("adjoint")?);
    // A solution from the right is computed from the transposed equation, whose factors are also transposed.
    let one = |i: usize, m: Matrix, mut r: Matrix| {
        let m = if left { m } else { m.transposed() };
        let (p, l, u) = lu_parts(&m, &pivots[i]);
        let product = p.times(&l).times(&u);
        let mut product = if left == adjoint { product.transposed() } else { product };
        solve_in_place(&mut product, &mut r);
        Ok(r)
    };
    solve_batch(c, factors, b, left, &one).map(Val::Leaf)
}

/// `B` may be a batch of vectors.
fn solve_ex(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (a, rhs) = (c.leaf("A")?, c.leaf("B")?);
    let factors = b.call_many(OpId::LinalgLuFactorEx, [a.into(), Val::Bool(true)])?;
    if c.bool("check_errors")? {
        call_check_errors(b, "torch.linalg.solve_ex", &factors[2], a)?;
    }
    let vectors = super::is_vectors(a.shape()?, rhs.shape()?);
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

fn geqrf(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (mut all, mut taus) = (vec![], vec![]);
    for mut m in tensor_to_matrices(c.leaf("self")?) {
        taus.extend(householder_qr(&mut m));
        all.extend(m.v);
    }
    pack_results(c, vec![all, taus])
}

fn ormqr(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (x, tau, other) = (c.leaf("self")?, c.leaf("input2")?, c.leaf("input3")?);
    let (left, transposed) = (c.bool("left")?, c.bool("transpose")?);
    let n = tau.shape().last().copied().unwrap_or(0);
    if n > x.shape()[x.rank() - 1] {
        return Err(OpError::shape(
            "torch.ormqr: input.shape[-1] must be greater than or equal to tau.shape[-1]",
        ));
    }
    let mut all = vec![];
    for (i, (v, m)) in tensor_to_matrices(x)
        .into_iter()
        .zip(tensor_to_matrices(other))
        .enumerate()
    {
        let taus: Vec<f64> = (i * n..(i + 1) * n).map(|k| tau.get(k).to_f64()).collect();
        let mut m = if left { m } else { m.transposed() };
        apply_reflections(&v, &taus, &mut m, transposed == left);
        all.extend(if left { m.v } else { m.transposed().v });
    }
    tensor_from_numbers(other.dtype(), other.shape(), all).map(Val::Leaf)
}

/// The first columns of the identity, multiplied by the reflections.
fn householder_product(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, tau) = (c.leaf("input")?, c.leaf("tau")?);
    let [lead @ .., m, n] = x.shape()? else {
        return Err(OpError::shape(
            "torch.linalg.householder_product: input must have at least 2 dimensions.",
        ));
    };
    if m.sub(n).as_const().is_some_and(|d| d < 0) {
        return Err(OpError::shape(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]",
        ));
    }
    reflected_eye(b, x, tau, lead, m, n).map(Val::Leaf)
}

/// The first `columns` columns of the product of the reflections.
fn reflected_eye(
    b: &mut dyn Build,
    x: &Traced,
    tau: &Traced,
    lead: &[Dim],
    m: &Dim,
    columns: &Dim,
) -> OpResult<Traced> {
    let args = [Val::Int(m.clone()), Val::Int(columns.clone()), Val::DType(x.dtype())];
    let eye = b.op(OpId::Eye, args)?;
    let eye = b.expand(&eye, &[lead, &[m.clone(), columns.clone()]].concat())?;
    b.ormqr(x, tau, eye)
}

fn qr(b: &mut dyn Build, a: &Traced, mode: &str) -> OpResult<Val<Traced>> {
    let shape = a.shape()?.to_vec();
    let [lead @ .., m, _] = &shape[..] else {
        return Err(OpError::shape(
            "linalg.qr: The input tensor A must have at least 2 dimensions.",
        ));
    };
    if !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Err(not_implemented("geqrf_cpu", a.dtype()));
    }
    let least = with_least(&shape)?.pop().unwrap_or(Dim::Unknown);
    let columns = if mode == "complete" { m.clone() } else { least };
    let v = b.call_many(OpId::Geqrf, [a.into()])?;
    let dim = lead.len();
    let r = b.slice(&v[0], dim, Dim::Const(0), columns.clone(), 1)?;
    let r = b.triu(r)?;
    let q = match mode {
        "r" => b.full(&[Dim::Const(0)], Val::int(0), a.dtype())?,
        _ => reflected_eye(b, &v[0], &v[1], lead, m, &columns)?,
    };
    Ok(Val::Tuple(vec![q.into(), r.into()]))
}

fn ldl_factor(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (mut all, mut pivots, mut info) = (vec![], vec![], vec![]);
    let a = c.leaf("self")?;
    for mut m in tensor_to_matrices(a) {
        let (p, singular) = ldl(&mut m);
        all.extend(m.v);
        pivots.extend(p.into_iter().map(|p| p as f64));
        info.push(singular as f64);
    }
    if c.bool("check_errors")? {
        check_info("torch.linalg.ldl_factor_ex", &info, a)?;
    }
    pack_results(c, vec![all, pivots, info])
}
