//! The error check of functions of `torch.linalg` that can fail.

use crate::linalg::batch::Matrices;
use crate::op::{Build, Call, Effect, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()",
            |c, _| match c.leaf("info")?.dtype {
                DType::I32 => Ok(Val::None),
                _ => Err(OpError::dtype("_linalg_check_errors: info must be a tensor of i32")),
            },
            Meaning::Routine(check_errors),
        )
        .doc("raises the named function's error if a factorization failed")
        .spelled("aten.@ torch.@")
        .effect(Effect::External),
    ]
}

fn check_errors(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let info = c.leaf("info")?;
    let codes = (0..info.numel()).map(|i| info.get(i).to_i64());
    check_codes(c.str("api_name")?, codes, c.bool("is_matrix")?).map(|()| Val::None)
}

/// Returns the error for the first non-zero code. `api` is the beginning of torch's message.
pub(super) fn check_codes(api: &str, codes: impl IntoIterator<Item = i64>, is_matrix: bool) -> OpResult<()> {
    let failed = codes.into_iter().enumerate().find(|(_, code)| *code != 0);
    let Some((place, code)) = failed else {
        return Ok(());
    };
    let batch = match is_matrix {
        true => String::new(),
        false => format!("(Batch element {place}): "),
    };
    Err(OpError::value(format!("{api}: {batch}{}", error_text(api, code))))
}

/// [`check_codes`] for the codes that a routine returned for the matrices `a`.
pub(super) fn check_info(api: &str, info: &[usize], a: &Tensor) -> OpResult<()> {
    check_codes(api, info.iter().map(|&i| i as i64), a.rank() == 2)
}

/// Returns the error that computing singular values gives if elements of the matrices `a` are not finite.
pub(super) fn check_finite(api: &str, matrices: &Matrices, a: &Tensor) -> OpResult<()> {
    let code = |i: usize| if matrices.is_finite(i) { 0 } else { -4 };
    check_codes(api, (0..matrices.count).map(code), a.rank() == 2)
}

/// Emits a call of `_linalg_check_errors` on the codes of a factorisation of the matrices `a`.
pub(in crate::op::rows) fn call_check_errors(b: &mut dyn Build, api: &str, info: &Traced, a: &Traced) -> OpResult<()> {
    let is_matrix = Val::Bool(a.rank()? == 2);
    b.call(OpId::_LinalgCheckErrors, vec![info.into(), Val::str(api), is_matrix])
        .map(|_| ())
}

/// The inverse, with errors reported for the function `api`.
pub(in crate::op::rows) fn checked_inverse(b: &mut dyn Build, api: &str, a: &Traced) -> OpResult<Traced> {
    let v = b.call_many(OpId::LinalgInvEx, [a.into()])?;
    call_check_errors(b, api, &v[1], a)?;
    Ok(v[0].clone())
}

/// Emits the error check of `cholesky_inverse`: a triangle must not have a 0 on its diagonal.
pub(super) fn check_diagonal(b: &mut dyn Build, l: &Traced) -> OpResult<()> {
    let rank = l.rank()? as i64;
    if rank < 2 || l.ty.numel() == Dim::Const(0) {
        return Ok(());
    }
    let diagonal = b.op(
        OpId::Diagonal,
        [l.into(), Val::int(0), Val::int(rank - 2), Val::int(rank - 1)],
    )?;
    let zero = b.eq(&diagonal, Val::int(0))?;
    let any = b.op(OpId::Any, [(&zero).into(), Val::int(-1)])?;
    let number = b.to_dtype(&zero, DType::I32)?;
    let place = b.op(OpId::Argmax, [number.into(), Val::int(-1)])?;
    let place = b.add(&place, Val::int(1))?;
    let code = b.r#where(any, place, Val::int(0))?;
    let code = b.to_dtype(&code, DType::I32)?;
    call_check_errors(b, "cholesky_inverse", &code, l)
}

/// The message for a negative code: LAPACK rejected an argument.
fn invalid_argument_text(api: &str, code: i64) -> String {
    match api.contains("svd") && code == -4 {
        true => "The algorithm failed to converge because the input matrix contained non-finite values.".into(),
        false => format!("Argument {} has illegal value.", code.unsigned_abs()),
    }
}

/// torch's text for an error code of LAPACK.
fn error_text(api: &str, code: i64) -> String {
    if code < 0 {
        return invalid_argument_text(api, code);
    }
    let repeated = |what: &str| {
        format!(
            "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated {what} (error \
             code: {code})."
        )
    };
    let is = |parts: &[&str]| parts.iter().any(|p| api.contains(p));
    if is(&["inv"]) {
        format!(
            "The diagonal element {code} is zero, the inversion could not be completed because the input matrix is singular."
        )
    } else if is(&["solve"]) {
        "The solver failed because the input matrix is singular.".into()
    } else if is(&["cholesky"]) {
        format!(
            "The factorization could not be completed because the input is not positive-definite (the leading minor of order \
             {code} is not positive-definite)."
        )
    } else if is(&["eig", "syevd"]) {
        repeated("eigenvalues")
    } else if is(&["svd"]) {
        repeated("singular values")
    } else if is(&["lstsq"]) {
        format!(
            "The least squares solution could not be computed because the input matrix does not have full rank (error code: {code})."
        )
    } else if is(&["lu_factor"]) {
        format!(
            "U[{code},{code}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform \
             the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
        )
    } else {
        format!("Unknown error code: {code}.")
    }
}
