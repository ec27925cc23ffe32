//! Views, indexing, products and the ops of networks: the type rule's type is the value's, the interpreted value is torch's,
//! what torch refuses is refused, and the type rule holds for symbolic sizes too.

use super::cases::{self, Inputs, Ran, check_file, run, value};
use fxc::internals::op::Call;
use fxc::internals::tensor::Tensor;
use fxc::types::{DType, Dim, TensorType, Type, Val};
use serde_json::Value as Json;

/// Relative to the largest magnitude of the result: sums are taken in another order than torch's.
fn tolerance(d: DType) -> f64 {
    match d {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 1e-5,
        DType::F64 => 1e-7,
        _ => 0.0,
    }
}

fn differs(got: &Tensor, want: &Tensor) -> Option<String> {
    let magnitudes = (0..want.numel()).map(|i| want.get(i).to_f64().abs());
    let largest = magnitudes.filter(|x| x.is_finite()).fold(0.0, f64::max);
    let limit = tolerance(want.dtype()) * largest;
    cases::differs(got, want, |g, w| g == w || (g - w).abs() <= limit)
}

fn differ(got: &Val<Tensor>, want: &Val<Tensor>) -> Option<String> {
    match (got, want) {
        (Val::Leaf(g), Val::Leaf(w)) => differs(g, w),
        (Val::Tuple(g) | Val::List(g), Val::Tuple(w) | Val::List(w)) if g.len() == w.len() => {
            g.iter().zip(w).find_map(|(g, w)| differ(g, w))
        }
        _ if got == want => None,
        _ => Some(format!("{got:?} instead of {want:?}")),
    }
}

/// Python's list of results, whatever it is called here.
fn flat(v: Val<Tensor>) -> Val<Tensor> {
    match v {
        Val::Tuple(v) => Val::List(v),
        v => v,
    }
}

/// Types that are equal up to sizes that only run time knows.
fn fits(rule: &Type, value: &Type) -> bool {
    match (rule, value) {
        (Val::Leaf(a), Val::Leaf(b)) => {
            let same = |(x, y): (&Dim, &Dim)| x == y || *x == Dim::Unknown;
            a.dtype == b.dtype
                && match (&a.shape, &b.shape) {
                    (Some(x), Some(y)) => x.len() == y.len() && x.iter().zip(y).all(same),
                    _ => a.shape.is_none(),
                }
        }
        (Val::Tuple(a), Val::Tuple(b)) | (Val::List(a), Val::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fits(a, b))
        }
        (Val::List(_) | Val::Unknown, _) => true,
        (Val::Any(_), _) => true,
        _ => rule == value,
    }
}

/// The rule with every size of the tensors a variable (equal sizes the same one): where it gives a type, the type with
/// the sizes put in is the known one.
fn symbolic(call: &Call<Tensor>, known: &Type) -> Option<String> {
    let name = |n: &Dim| match n {
        Dim::Const(c) if *c > 1 => Dim::var(&format!("n{c}")),
        d => d.clone(),
    };
    let types = call.map(|t| TensorType {
        dtype: t.dtype(),
        shape: t.ty().shape.map(|s| s.iter().map(name).collect()),
    });
    let Ok(ty) = (call.op.rule)(&types, &mut Default::default()) else {
        return None;
    };
    let size = |v: &str| v.strip_prefix('n').and_then(|n| n.parse::<i64>().ok()).map(Dim::Const);
    let put = |t: &TensorType| TensorType {
        dtype: t.dtype,
        shape: t
            .shape
            .as_ref()
            .map(|s| s.iter().map(|d| d.substitute(&size)).collect()),
    };
    let fixed: Result<Type, ()> = ty.try_map(&mut |t| Ok(Val::Leaf(put(t))));
    let fixed = substitute_ints(&fixed.expect("no errors"), &size);
    // Bounds of slices count as within symbolic dims, which these cases' are not.
    if matches!(
        call.op.name,
        "slice" | "getitem" | "tensor_split_at" | "split_with_sizes"
    ) {
        return None;
    }
    (!fits(&fixed, known)).then(|| format!("with symbolic sizes the rule says {ty}, known it is {known}"))
}

fn substitute_ints(v: &Type, size: &dyn Fn(&str) -> Option<Dim>) -> Type {
    match v {
        Val::Int(d) => Val::Int(d.substitute(size)),
        Val::Tuple(v) => Val::Tuple(v.iter().map(|v| substitute_ints(v, size)).collect()),
        Val::List(v) => Val::List(v.iter().map(|v| substitute_ints(v, size)).collect()),
        v => v.clone(),
    }
}

/// How many of the refusals say what torch says, and how many there are.
#[derive(Default)]
struct Texts {
    same: usize,
    all: usize,
}

/// What is wrong with a case, if anything.
fn check(case: &Json, inputs: &Inputs, texts: &mut Texts) -> Option<String> {
    let result = run(case, inputs);
    if let Some(error) = case["error"].as_str() {
        texts.all += 1;
        return match result {
            Ok(ran) => {
                let ty = ran.value.map(Tensor::ty);
                Some(format!("gives {ty} instead of the error {error:?}"))
            }
            Err(e) => {
                texts.same += (e == error) as usize;
                None
            }
        };
    }
    let Ran { call, rule, value: got } = match result {
        Ok(r) => r,
        Err(e) => return Some(e),
    };
    let got_ty = got.map(Tensor::ty);
    if !fits(&rule, &got_ty) {
        return Some(format!("the type rule says {rule}, the value is {got_ty}"));
    }
    let (got, want) = (flat(got), flat(value(&case["out"], inputs)));
    differ(&got, &want).or_else(|| symbolic(&call, &got_ty))
}

/// At least this part of the refusals says what torch says.
const SAME_TEXTS: f64 = 0.5;

fn check_all(text: &str) {
    let mut texts = Texts::default();
    check_file(text, |case, inputs| check(case, inputs, &mut texts));
    let Texts { same, all } = texts;
    assert!(
        same as f64 >= SAME_TEXTS * all as f64,
        "only {same} of {all} refusals in torch's words"
    );
}

#[test]
fn views_agree_with_torch() {
    check_all(include_str!("../data/views.json"));
}

#[test]
fn indexing_and_joining_agree_with_torch() {
    check_all(include_str!("../data/index.json"));
}

#[test]
fn products_and_nn_ops_agree_with_torch() {
    check_all(include_str!("../data/nn.json"));
}
