use super::*;
use crate::graph::build;
use crate::infer::{InferOptions, infer};
use crate::source::FileId;
use crate::syntax::parse_text;

/// Parses a text into a typed module.
pub(crate) fn module(text: &str) -> GraphModule {
    let (file, d) = parse_text(FileId(0), text);
    assert!(!d.has_errors(), "{d:?}");
    let (mut m, d) = build(&file, "g");
    assert!(!d.has_errors(), "{d:?}");
    let d = infer(&mut m, &InferOptions::default());
    assert!(!d.has_errors(), "{d:?}");
    m
}

fn f32s(shape: &[usize], v: &[f32]) -> RuntimeValue {
    Val::Leaf(Tensor::from_slice(shape, v))
}

/// Every element of every tensor of a value.
pub(crate) fn numbers(v: &RuntimeValue) -> Vec<f64> {
    let flat = v.flatten();
    let tensors = flat.iter().filter_map(|v| v.as_leaf());
    tensors
        .flat_map(|t| (0..t.numel()).map(|i| t.get(i).to_f64()))
        .collect()
}

#[test]
fn bessel_functions_overflow_where_the_exponential_does() {
    let m = module(
        "graph main {
            %x : f32[3] = placeholder x
            %a = call_function torch.special.i0(%x)
            %b = call_function torch.special.i1(%x)
            output (%a, %b)
        }",
    );
    let out = run(&m, vec![f32s(&[3], &[89., -89., 0.])]).unwrap();
    assert_eq!(
        numbers(&out),
        [f64::INFINITY, f64::INFINITY, 1., f64::INFINITY, f64::NEG_INFINITY, 0.]
    );
}

#[test]
fn graphs_call_graphs_and_python_computes_sizes() {
    let m = module(
        "graph main {
            %x : f32[N, 2] = placeholder x
            %n = call_method size(%x, 0)
            %m = call_function operator.mul(%n, 2)
            %v = call_method view(%x, %m)
            %y = call_function plus(%v, k=10)
            output {'y': %y, 'n': %m}
        }
        graph plus {
            %a = placeholder a
            %k : int = placeholder k = 1
            %s = call_function operator.add(%a, %k)
            output %s
        }",
    );
    let out = run(&m, vec![f32s(&[3, 2], &[1., 2., 3., 4., 5., 6.])]).unwrap();
    let Val::Dict(items) = &out else { panic!("{out:?}") };
    assert_eq!(numbers(&items[0].1), [11., 12., 13., 14., 15., 16.]);
    assert_eq!(items[1].1.as_int(), Some(6));
}

#[test]
fn writes_are_seen_through_every_view() {
    let m = module(
        "graph g {
            %x : f32[2, 2] = placeholder x
            %y = call_function exp(%x)
            %z = call_function mul(%y, 0)
            %t = call_method t(%z)
            %row = call_method select(%t, 0, 1)
            %w = call_method add_(%row, 5)
            %i = call_function operator.iadd(%z, %z)
            output (%z, %t, %w)
        }",
    );
    let out = run(&m, vec![f32s(&[2, 2], &[0.; 4])]).unwrap();
    assert_eq!(numbers(&out), [0., 10., 0., 10., 0., 0., 10., 10., 10., 10.]);
}

#[test]
fn missing_and_surplus_inputs_are_treated_as_torch_does() {
    let m = module(
        "graph g {
            %x : f32[1] = placeholder x
            %k : int = placeholder k = 3
            %y = call_function mul(%x, %k)
            output %y
        }",
    );
    let x = || f32s(&[1], &[2.]);
    let e = run(&m, vec![]).unwrap_err();
    assert_eq!(
        e.title,
        "Expected positional argument for parameter x, but one was not passed in!"
    );
    assert_eq!(numbers(&run(&m, vec![x()]).unwrap()), [6.]);
    assert_eq!(numbers(&run(&m, vec![x(), Val::int(4), Val::int(5)]).unwrap()), [8.]);
    let e = Interpreter::new(&m).boxed_run(&mut vec![x()]).unwrap_err();
    assert_eq!(
        e.title,
        "Interpreter.boxed_run expected 2 arguments for placeholders but received 1 (missing arguments)"
    );
}

/// Records when the test holds the only reference to the input.
struct Watch {
    input: Tensor,
    freed_after: Vec<String>,
}

impl Hooks for Watch {
    fn run_node(&mut self, at: RunningNode<'_>) -> Hooked {
        if self.input.is_unique() {
            self.freed_after.push(at.name().into());
        }
        Ok(if at.name() == "c" {
            Some(f32s(&[2], &[7., 7.]))
        } else {
            None
        })
    }
}

#[test]
fn values_are_freed_at_their_last_use_and_hooks_replace_nodes() {
    let m = module(
        "graph g {
            %x : f32[2] = placeholder x
            %a = call_function exp(%x)
            %b = call_function neg(%a)
            %c = call_function sin(%b)
            output %c
        }",
    );
    let input = Tensor::from_slice(&[2], &[1f32, 2.]);
    let inputs = vec![Val::Leaf(input.clone())];
    let mut watch = Watch {
        input,
        freed_after: vec![],
    };
    let out = Interpreter::new(&m).run_with(inputs, &mut watch).unwrap();
    assert_eq!(numbers(&out), [7., 7.]);
    assert_eq!(watch.freed_after, ["b", "c", "output"]);
}

#[test]
fn an_error_names_the_node_its_place_and_the_types() {
    let m = module(
        "graph g {
            %x : i64[2] = placeholder x
            %w : f32[4, 2] = placeholder w
            %e = call_function embedding(%w, %x)  loc(\"model.py\":7 in forward)
            output %e
        }",
    );
    let x = Val::Leaf(Tensor::from_slice(&[2], &[1i64, 9]));
    let e = run(&m, vec![x, f32s(&[4, 2], &[0.; 8])]).unwrap_err();
    assert_eq!(e.code, Code::E0502, "{e:?}");
    assert!(
        e.labels[0].primary && e.labels.iter().any(|l| l.text == "`%x` is i64[2]"),
        "{e:?}"
    );
    assert!(
        e.notes
            .iter()
            .any(|n| n.contains("`%e` comes from model.py:7 in forward")),
        "{e:?}"
    );
}

#[test]
fn degrees_too_large_to_count_are_refused() {
    // As a number, and as an element of a tensor.
    for call in [
        "laguerre_polynomial_l(%x, 1000000000000000000)",
        "legendre_polynomial_p(0.5, %n)",
        "shifted_chebyshev_polynomial_t(1e-30, %n)",
    ] {
        let m = module(&format!(
            "graph main {{ %x : f32[2] = placeholder x
            %n = call_function torch.full([2], 1e18)
            %y = call_function torch.special.{call}
            output %y }}"
        ));
        let refused = run(&m, vec![f32s(&[2], &[0.5, 0.25])]).unwrap_err();
        assert!(refused.title.contains("the degree is too large"), "{call}: {refused:?}");
    }
}
