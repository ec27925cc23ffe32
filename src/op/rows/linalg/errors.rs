//! The check behind the functions of `torch.linalg` that can fail.

use crate::op::{Call, Effect, Meaning, Op, OpError, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// The rows.
pub fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "_linalg_check_errors",
            "_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()",
            |c, _| match c.leaf("info")?.dtype {
                DType::I32 => Ok(Val::None),
                _ => Err(OpError::dtype("_linalg_check_errors: info must be a tensor of i32")),
            },
            Meaning::Routine(check),
        )
        .doc("raises the error of the function named if a factorization failed")
        .spelled("aten._linalg_check_errors.default torch._linalg_check_errors")
        .effect(Effect::Effect),
    ]
}

fn check(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (info, api) = (c.leaf("info")?, c.str("api_name")?);
    let failed = (0..info.numel())
        .map(|i| (i, info.get(i).to_i64()))
        .find(|(_, code)| *code != 0);
    let Some((place, code)) = failed else {
        return Ok(Val::None);
    };
    let batch = match c.bool("is_matrix")? {
        true => String::new(),
        false => format!("(Batch element {place}): "),
    };
    Err(OpError::value(format!("{api}: {batch}{}", reason(api, code))))
}

/// torch's words for a code of LAPACK.
fn reason(api: &str, code: i64) -> String {
    if code < 0 {
        return match api.contains("svd") && code == -4 {
            true => "The algorithm failed to converge because the input matrix contained non-finite values.".into(),
            false => format!("Argument {} has illegal value.", code.unsigned_abs()),
        };
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
