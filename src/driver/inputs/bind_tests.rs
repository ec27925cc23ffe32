//! Tests of binding inputs: what fits, and the errors for what does not.

use super::*;
use crate::types::{DType, Dim};

fn module() -> GraphModule {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let n = Dim::var("N");
    g.meta_mut(x).ty = Some(Val::Leaf(TensorType::new(DType::F32, vec![n.clone(), Dim::Const(2)])));
    let y = g.placeholder("other", None);
    g.meta_mut(y).ty = Some(Val::Leaf(TensorType::new(DType::I64, vec![n.mul(&Dim::Const(2))])));
    let k = g.placeholder("k", Some(Val::int(3)));
    g.set_output(Val::Tuple(vec![Val::Leaf(x), Val::Leaf(y), Val::Leaf(k)]));
    GraphModule::new("g", g)
}

fn value(name: &str, t: Tensor) -> Provided {
    Provided {
        name: name.into(),
        given: Given::Value(Val::Leaf(t)),
        origin: "in.npz".into(),
        must_match: false,
    }
}

fn fill(name: &str, f: Fill) -> Provided {
    Provided {
        name: name.into(),
        given: Given::Fill(f, None),
        origin: COMMAND_LINE.into(),
        must_match: true,
    }
}

fn titles(provided: Vec<Provided>, dims: &[(&str, i64)]) -> Vec<String> {
    let dims = dims.iter().map(|(k, v)| (k.to_string(), *v)).collect();
    let (bound, out) = bind_inputs(&module(), provided, dims);
    assert_eq!(bound.is_none(), out.has_errors());
    out.iter().map(|d| format!("{} {}", d.code, d.title)).collect()
}

#[test]
fn sizes_are_solved_and_defaults_used() {
    let given = vec![
        value("x", Tensor::zeros(DType::F32, &[5, 2])),
        fill("other", Fill::Uniform(1)),
    ];
    let (bound, _) = bind_inputs(&module(), given, Dims::new());
    let bound = bound.unwrap();
    assert_eq!(bound.dims["N"], 5);
    assert_eq!(bound.values[1].as_leaf().unwrap().shape(), [10]);
    assert_eq!(bound.values[2], Val::int(3));
}

#[test]
fn what_does_not_fit_is_told() {
    let x = || value("x", Tensor::zeros(DType::F32, &[5, 2]));
    let other = |d, n| value("other", Tensor::zeros(d, &[n]));
    let says = |given: Vec<Provided>, dims: &[(&str, i64)], want: &str| {
        let t = titles(given, dims);
        assert!(t.iter().any(|t| t.contains(want)), "{t:?} lacks {want}");
    };
    says(
        vec![x(), other(DType::I32, 10)],
        &[],
        "E0503 input `other` must be i64[2*N], but in.npz provides i32[10]",
    );
    says(vec![x(), other(DType::I64, 9)], &[], "E0504 input `other`");
    says(vec![x()], &[], "E0501 input `other` (i64[2*N]) has no value");
    says(vec![x(), value("othr", Tensor::zeros(DType::I64, &[1]))], &[], "E0501");
    says(
        vec![x(), other(DType::I64, 10), fill("y", Fill::Ones)],
        &[],
        "E0505 the graph has no input `y`",
    );
    says(
        vec![x(), other(DType::I64, 10), value("labels", Tensor::scalar(1i64))],
        &[],
        "E0505 `labels` from in.npz",
    );
    says(
        vec![fill("x", Fill::Ones), fill("other", Fill::Ones)],
        &[],
        "E0304 the sizes of input `x`",
    );
    says(
        vec![fill("x", Fill::Ones), fill("other", Fill::Ones)],
        &[("M", 2)],
        "E0505 unknown size `M`",
    );
    assert!(titles(vec![fill("x", Fill::Ones), fill("other", Fill::Ones)], &[("N", 2)]).is_empty());
}

#[test]
fn lists_are_tensors_where_an_untyped_graph_takes_one() {
    let mut g = Graph::new();
    let (x, sizes) = (g.placeholder("x", None), g.placeholder("sizes", None));
    let args = vec![Val::Leaf(x), Val::Leaf(sizes)];
    let y = g.call_function("torch.reshape", args, vec![]);
    g.set_output(Val::Leaf(y));
    let module = GraphModule::new("g", g);
    let list = |name: &str, items: Vec<Value>| Provided {
        name: name.into(),
        given: Given::Value(Val::List(items)),
        origin: COMMAND_LINE.into(),
        must_match: true,
    };
    let ints = || vec![Val::int(1), Val::int(2)];
    let (bound, _) = bind_inputs(&module, vec![list("x", ints()), list("sizes", ints())], Dims::new());
    let bound = bound.unwrap();
    assert_eq!(
        bound.values[0].as_leaf().map(|t| t.ty().to_string()),
        Some("i64[2]".into())
    );
    assert_eq!(bound.values[1], Val::List(ints()));
    let floats = vec![Val::int(1), Val::Float(2.5)];
    let (bound, _) = bind_inputs(&module, vec![list("x", floats), list("sizes", ints())], Dims::new());
    assert_eq!(
        bound.unwrap().values[0].as_leaf().map(|t| t.ty().to_string()),
        Some("f32[2]".into())
    );
}
