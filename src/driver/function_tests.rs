//! Tests of functions.

use super::*;
use crate::driver::{Dims, Fill, Given, Provided, Value, bind, fill};
use crate::types::{DType, Val};

fn function(session: &mut Session, text: &str) -> Function {
    let model = session
        .load_text("test", text)
        .unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
    Function::new(model, Request::default())
}

fn bound(f: &Function, x: &Tensor) -> BoundInputs {
    let given = Provided {
        name: "x".into(),
        given: Given::Value(Val::Leaf(x.clone())),
        origin: "the test".into(),
        must_match: true,
    };
    let (bound, found) = bind::bind_inputs(&f.module, vec![given], Dims::new());
    bound.unwrap_or_else(|| panic!("{found:?}"))
}

fn call(f: &mut Function, session: &mut Session, x: &Tensor) -> CallResult {
    let bound = bound(f, x);
    let called = f.call(session, &bound);
    called.unwrap_or_else(|_| panic!("{:?}", session.diagnostics))
}

fn arange(rows: usize) -> Tensor {
    fill::filled_tensor(DType::F32, &[rows, 2], Fill::Arange)
}

fn numbers(v: &Value) -> Vec<f64> {
    let leaves = v.leaves();
    let each = |t: &&Tensor| (0..t.numel()).map(|i| t.get(i).to_f64()).collect::<Vec<_>>();
    leaves.iter().flat_map(each).collect()
}

#[test]
fn each_size_is_compiled_once() {
    let mut s = Session::new();
    let mut f = function(
        &mut s,
        "dim N in 1..9
        graph main {
            %x : f32[N, 2] = placeholder x
            %n = call_method size(%x, 0)
            %y = call_function torch.sum(%x, 0)
            %z = call_function operator.mul(%y, %n)
            output %z
        }",
    );
    for rows in [1, 3, 8, 3, 1] {
        let n = rows as f64;
        let want = [n * n * (n - 1.0), n * n * n];
        assert_eq!(
            numbers(&call(&mut f, &mut s, &arange(rows)).result),
            want,
            "{rows} rows"
        );
    }
    assert_eq!(f.compiled_count(), 3);
    let given = Provided {
        name: "x".into(),
        given: Given::Value(Val::Leaf(arange(10))),
        origin: "the test".into(),
        must_match: true,
    };
    let (none, found) = bind::bind_inputs(&f.module, vec![given], Dims::new());
    assert!(none.is_none() && found.iter().any(|d| d.title.contains("outside its range 1..9")));
}

#[test]
fn only_so_many_sizes_stay_compiled() {
    let mut s = Session::new();
    let text = "graph main { %x : f32[N, 2] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
    let mut f = function(&mut s, text);
    for rows in 1..KEPT + 4 {
        assert_eq!(
            call(&mut f, &mut s, &arange(rows)).result.leaves()[0].shape(),
            [rows, 2]
        );
    }
    assert_eq!(f.compiled_count(), KEPT);
}

#[test]
fn buffers_keep_their_values_from_call_to_call_and_size_to_size() {
    let mut s = Session::new();
    let mut f = function(
        &mut s,
        "const total : f32[2] = [0, 0]
        graph main {
            %x : f32[N, 2] = placeholder x
            %t = get_attr total
            %s = call_function torch.sum(%x, 0)
            %u = call_method add_(%t, %s)
            %y = call_function operator.add(%t, 0)
            output %y
        }",
    );
    assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [2.0, 4.0]);
    assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [4.0, 8.0]);
    let third = call(&mut f, &mut s, &arange(3));
    assert_eq!(numbers(&third.result), [10.0, 17.0]);
    assert_eq!(third.written[0].0, Mutation::Buffer("total".into()));
    assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [12.0, 21.0]);
    f.set_state("total", Tensor::from_slice(&[2], &[0.5f32, 0.0]));
    assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [2.5, 4.0]);
}

#[test]
fn results_that_are_kept_stay_as_they_were() {
    let mut s = Session::new();
    let text = "const total : f32[2] = [0, 0]
        graph main {
            %x : f32[N, 2] = placeholder x
            %t = get_attr total
            %s = call_function torch.sum(%x, 0)
            %u = call_method add_(%t, %s)
            %y = call_function operator.mul(%t, 10)
            output %y
        }";
    let mut f = function(&mut s, text);
    let calls: Vec<CallResult> = (0..5).map(|_| call(&mut f, &mut s, &arange(2))).collect();
    for (i, c) in calls.iter().enumerate() {
        let n = (i + 1) as f64;
        assert_eq!(numbers(&c.result), [20.0 * n, 40.0 * n]);
        assert_eq!(c.written[0].1.get(0).to_f64(), 2.0 * n);
    }
}

#[test]
fn sizes_share_code_and_weights() {
    let mut s = Session::new();
    let text = "dim N in 1..64
        const w : f32[2, 3] = [[1, 2, 3], [4, 5, 6]]
        graph main {
            %x : f32[N, 2] = placeholder x
            %w = get_attr w
            %y = call_function torch.matmul(%x, %w)
            %z = call_function torch.tanh(%y)
            %n = call_function torch.sum(%z, 1)
            output %n
        }";
    let mut f = function(&mut s, text);
    for rows in [5, 6, 7] {
        let want = (0..rows).map(|i| {
            let at = |k: usize| (2 * i + k) as f64;
            (1..=3)
                .map(|j| (at(0) * j as f64 + at(1) * (j + 3) as f64).tanh())
                .sum::<f64>()
        });
        let got = numbers(&call(&mut f, &mut s, &arange(rows)).result);
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
    }
    assert!(matches!(f.general, SymbolicModule::Made(_)));
    let executables: Vec<_> = f.versions.iter().filter_map(|v| v.ready.executable()).collect();
    for e in &executables[1..] {
        assert_eq!(
            e.kernels().shared_with(executables[0].kernels()),
            e.kernels().function_count()
        );
    }
}

#[test]
fn what_has_no_compiled_form_is_interpreted() {
    let text = "graph main {
            %x : f32[3, 2] = placeholder x
            %p = call_function operator.gt(%x, -1)
            %q = call_function torch.all(%p)
            %y = call_function torch.ops.higher_order.cond(%q, @loop, @same, (%x,))
            output %y
        }
        graph loop {
            %x : f32[3, 2] = placeholder x
            %r = call_function torch.ops.higher_order.while_loop(@test, @body, (0, %x), ())
            %y = call_function operator.getitem(%r, 1)
            output (%y,)
        }
        graph same { %x : f32[3, 2] = placeholder x  output (%x,) }
        graph test {
            %i : int = placeholder i
            %x : f32[3, 2] = placeholder x
            %t = call_function operator.lt(%i, 3)
            output %t
        }
        graph body {
            %i : int = placeholder i
            %x : f32[3, 2] = placeholder x
            %j = call_function operator.add(%i, 1)
            %y = call_function operator.mul(%x, 2)
            output (%j, %y)
        }";
    // In the second model the loop comes before a size that depends on values.
    let sized = "%w = call_function operator.getitem(%y, 0)
            %z = call_function torch.nonzero(%w)
            output (%w, %z)";
    for text in [text.into(), text.replacen("output %y", sized, 1)] {
        let mut s = Session::new();
        let mut f = function(&mut s, &text);
        let got = numbers(&call(&mut f, &mut s, &arange(3)).result);
        assert_eq!(got[..6], [0.0, 8.0, 16.0, 24.0, 32.0, 40.0]);
        let found = s.diagnostics.iter().find(|d| d.code == Code::L0003);
        let told = found.map(|d| &*d.title);
        let why = "the graph runs in the interpreter: the value of a carried number is only known at run time";
        assert_eq!(told, Some(why), "{:?}", s.diagnostics);
    }
}

#[test]
fn a_row_selected_by_a_number_keeps_its_dim() {
    let text = "graph main {
            %x : f32[3, 2] = placeholder x
            %k = call_function torch.ones([], dtype=torch.int64)
            %row = call_function torch.index_select(%x, 0, %k)
            output %row
        }";
    let mut s = Session::new();
    let mut f = function(&mut s, text);
    let got = call(&mut f, &mut s, &arange(3)).result;
    assert_eq!(got.leaves()[0].shape(), [1, 2]);
    assert_eq!(numbers(&got), [2.0, 3.0]);
}

#[test]
fn loops_update_their_state_and_not_their_inputs() {
    let text = "graph main {
            %x : f32[3, 2] = placeholder x
            %i = call_function torch.zeros([], dtype=torch.int64)
            %r = call_function torch.ops.higher_order.while_loop(@test, @body, (%i, %x), ())
            %y = call_function operator.getitem(%r, 1)
            output (%y, %x)
        }
        graph test {
            %i : i64[] = placeholder i
            %s : f32[3, 2] = placeholder s
            %t = call_function torch.lt(%i, 3)
            output %t
        }
        graph body {
            %i : i64[] = placeholder i
            %s : f32[3, 2] = placeholder s
            %k = call_function torch.reshape(%i, [1])
            %row = call_function torch.index_select(%s, 0, %k)
            %next = call_function torch.mul(%row, 10)
            %o = call_function torch.index_copy(%s, 0, %k, %next)
            %j = call_function torch.add(%i, 1)
            output (%j, %o)
        }";
    let mut s = Session::new();
    let mut f = function(&mut s, text);
    let x = arange(3);
    for _ in 0..2 {
        let got = numbers(&call(&mut f, &mut s, &x).result);
        assert_eq!(got[..6], [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(got[6..], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }
    assert!(
        s.diagnostics.iter().all(|d| d.code != Code::L0003),
        "{:?}",
        s.diagnostics
    );
}

#[test]
fn what_follows_a_size_that_depends_on_values_is_interpreted() {
    let mut s = Session::new();
    let mut f = function(
        &mut s,
        "graph main {
            %x : f32[N, 2] = placeholder x
            %h = call_function torch.exp(%x)
            %m = call_function operator.gt(%h, 5)
            %i = call_function torch.nonzero(%m)
            %y = call_function operator.mul(%i, 2)
            %n = call_function torch.neg(%h)
            output (%y, %n)
        }",
    );
    let called = call(&mut f, &mut s, &arange(2));
    // exp(2) and exp(3) are above 5.
    assert_eq!(numbers(&called.result)[..4], [2.0, 0.0, 2.0, 2.0]);
    assert!((numbers(&called.result)[4 + 3] + 3f64.exp()).abs() < 1e-4);
    let warnings: Vec<_> = s.diagnostics.iter().map(|d| d.title.clone()).collect();
    assert_eq!(
        warnings,
        ["2 of 5 operations run in the interpreter because of data-dependent sizes"]
    );
    assert_eq!(
        numbers(&call(&mut f, &mut s, &arange(1)).result),
        [-1.0, -1f64.exp() as f32 as f64]
    );
}
