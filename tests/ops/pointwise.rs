//! Pointwise ops, reductions and scans: the type rule's type is torch's, the interpreted value is torch's within torch's own
//! tolerances, signed zeros are torch's, and what torch refuses is refused with its message.

use super::cases::{self, Inputs, check_file, run};
use super::json::tensor;
use fxc::internals::tensor::Tensor;
use fxc::types::DType;
use serde_json::Value as Json;

/// torch.testing.assert_close's tolerances: relative and absolute.
fn tolerance(d: DType) -> (f64, f64) {
    match d {
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    }
}

fn differs(path: &str, got: &Tensor, want: &Tensor) -> Option<String> {
    let (mut rtol, atol) = tolerance(want.dtype());
    // torch sums f16 over several dims in 16 bits, which is one more rounding.
    if path.ends_with(".nanmean") && want.dtype() == DType::F16 {
        rtol *= 2.0;
    }
    cases::differs(got, want, |g, w| {
        if w == 0.0 && g == 0.0 {
            return g.is_sign_negative() == w.is_sign_negative();
        }
        g == w || w.is_finite() && (g - w).abs() <= atol + rtol * w.abs()
    })
}

/// What is wrong with a case, if anything.
fn check(case: &Json, inputs: &Inputs) -> Option<String> {
    let result = run(case, inputs);
    if let Some(error) = case["error"].as_str() {
        return match result {
            Ok(ran) => Some(format!("gives {} instead of the error {error:?}", ran.rule)),
            Err(e) if e == error => None,
            Err(e) => Some(format!("says {e:?}\n     instead of {error:?}")),
        };
    }
    let ran = match result {
        Ok(r) => r,
        Err(e) => return Some(e),
    };
    let ty = ran.value.map(Tensor::ty);
    if ran.rule.to_string() != ty.to_string() {
        return Some(format!("the type rule says {}, the value is {ty}", ran.rule));
    }
    let want: Vec<Tensor> = match &case["out"] {
        Json::Array(v) => v.iter().map(tensor).collect(),
        v => vec![tensor(v)],
    };
    let path = case["path"].as_str().unwrap_or_default();
    let got = ran.value.leaves();
    if got.len() != want.len() {
        return Some(format!("{} results instead of {}", got.len(), want.len()));
    }
    got.iter().zip(&want).find_map(|(g, w)| differs(path, g, w))
}

#[test]
fn pointwise_and_creation_ops_agree_with_torch() {
    check_file(include_str!("../data/pointwise.json"), check);
}

#[test]
fn reductions_and_scans_agree_with_torch() {
    check_file(include_str!("../data/reductions.json"), check);
}
