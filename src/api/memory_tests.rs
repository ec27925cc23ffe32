//! Calls on memory of the caller's.

use super::*;
use crate::diag::Code;
use crate::parallel::CancelToken;
use crate::tensor::{Tensor, View, ViewMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn compiled(text: &str) -> Compiled {
    compiled_with(text, &Options::new().threads(1))
}

fn compiled_with(text: &str, options: &Options) -> Compiled {
    Model::from_text(text).unwrap().compile(options).unwrap()
}

/// The inputs and the buffers are handed through: what a call keeps of borrowed memory is a copy.
const KEEPS_INPUT: &str = "const last : f32[2] = [0, 0]
graph main {
    %x : f32[2] = placeholder x
    %l = get_attr last
    %before = call_function operator.add(%l, 0)
    %u = call_method copy_(%l, %x)
    output (%x, %before)
}";

/// `nonzero` makes the interpreter run the end of the graph.
const INTERPRETED: &str = "graph main {
    %x : f32[2] = placeholder x
    %n = call_function torch.nonzero(%x)
    output (%x, %n)
}";

#[test]
fn what_is_kept_of_borrowed_memory_is_a_copy() {
    for text in [KEEPS_INPUT, INTERPRETED] {
        let compiled = compiled(text);
        let mut session = compiled.session();
        let mut kept = vec![];
        for i in 0..4 {
            let mut data = vec![i as f32, 1.0];
            let input = View::from_slice(&[2], &data).unwrap();
            let out = session.run([input.into()]).unwrap();
            data.fill(-1.0);
            drop(data);
            kept.push(out);
        }
        for (i, out) in kept.iter().enumerate() {
            assert_eq!(out[0].as_slice::<f32>(), [i as f32, 1.0]);
            if text == KEEPS_INPUT && i > 0 {
                assert_eq!(out[1].as_slice::<f32>(), [i as f32 - 1.0, 1.0]);
            }
        }
        assert!(session.state().values().all(|t| t.as_slice::<f32>() == [3.0, 1.0]));
    }
}

/// Two caches, each with a row written at a position of its own; the second write depends on the first.
const TWO_CACHES: &str = "const first : f32[4] = [0, 0, 0, 0]
const second : f32[4] = [0, 0, 0, 0]
graph main {
    %x : f32[1] = placeholder x
    %i : i64[1] = placeholder i
    %j : i64[1] = placeholder j
    %a = get_attr first
    %b = get_attr second
    %c = call_method index_copy_(%a, 0, %i, %x)
    %sum = call_method sum(%c, [0], True)
    %d = call_method index_put_(%b, [%j], %sum)
    %y = call_function operator.add(%c, %d)
    output %y
}";

#[test]
fn a_call_that_fails_restores_the_buffers_that_it_wrote_in_place() {
    let compiled = compiled(TWO_CACHES);
    let mut session = compiled.session();
    let index = |i: i64| Tensor::from_slice(&[1], &[i]);
    let mut call = |x: f32, i: i64, j: i64| {
        let out = session.run([Tensor::from_slice(&[1], &[x]).into(), index(i).into(), index(j).into()]);
        let state: Vec<Vec<f32>> = session.state().values().map(|t| t.as_slice::<f32>().to_vec()).collect();
        (
            out.map(|o| o[0].as_slice::<f32>().to_vec()).map_err(|e| e.code()),
            state,
        )
    };
    let written = vec![vec![0.0, 2.0, 0.0, 0.0], vec![0.0, 0.0, 2.0, 0.0]];
    assert_eq!(call(2.0, 1, 2), (Ok(vec![0.0, 2.0, 2.0, 0.0]), written.clone()));
    assert_eq!(call(5.0, 1, 9), (Err(Some(Code::E0502)), written.clone()));
    assert_eq!(call(5.0, 9, 1), (Err(Some(Code::E0502)), written));
    let next = vec![vec![3.0, 2.0, 0.0, 0.0], vec![5.0, 0.0, 2.0, 0.0]];
    assert_eq!(call(3.0, 0, 0), (Ok(vec![8.0, 2.0, 2.0, 0.0]), next));
}

#[test]
fn strided_inputs_are_what_they_show() {
    let text = "graph main { %x : f32[N, M] = placeholder x  %y = call_function torch.mul(%x, 10)  output %y }";
    let compiled = compiled(text);
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let shapes: [(&[usize], &[usize]); 4] = [
        (&[3, 4], &[4, 1]),
        (&[4, 3], &[1, 4]),
        (&[2, 2], &[4, 2]),
        (&[3, 5], &[1, 0]),
    ];
    for _ in 0..2 {
        for (shape, strides) in shapes {
            let view = View::strided(shape, strides, &data).unwrap();
            let want: Vec<f32> = view.to_tensor().as_slice::<f32>().iter().map(|x| x * 10.0).collect();
            assert_eq!(compiled.run([view.into()]).unwrap()[0].as_slice::<f32>(), want);
        }
    }
}

#[test]
fn results_go_where_the_caller_wants_them() {
    let text = "const total : f32[2] = [0, 0]
        graph main {
            %x : f32[2] = placeholder x
            %t = get_attr total
            %u = call_method add_(%t, %x)
            %y = call_function torch.neg(%x)
            output (%y, %u, %x, %y)
        }";
    let compiled = compiled(text);
    let mut session = compiled.session();
    let x = [1.0f32, 2.0];
    for i in 1..5 {
        let n = i as f32;
        let mut out = [[0f32; 2]; 4];
        let mut targets: Vec<ViewMut> = out.iter_mut().map(|o| ViewMut::from_slice(&[2], o).unwrap()).collect();
        let input = View::from_slice(&[2], &x).unwrap();
        session.run_into([input.into()], &mut targets).unwrap();
        drop(targets);
        assert_eq!(out, [[-1.0, -2.0], [n, 2.0 * n], [1.0, 2.0], [-1.0, -2.0]]);
        // What the caller does with its memory is not seen in the buffers.
        out.iter_mut().for_each(|o| o.fill(99.0));
        assert_eq!(session.state()["total"].as_slice::<f32>(), [n, 2.0 * n]);
    }
    let mixed = session.run([Tensor::from_slice(&[2], &x).into()]).unwrap();
    assert_eq!(mixed[1].as_slice::<f32>(), [5.0, 10.0]);
}

#[test]
fn memory_for_results_must_have_their_types() {
    for text in [
        "graph main { %x : f32[2] = placeholder x  %y = call_function torch.neg(%x)  output %y }",
        "graph main { %x : f32[N] = placeholder x  %n = call_function torch.nonzero(%x)  %y = call_function torch.neg(%x)  output %y }",
    ] {
        let compiled = compiled(text);
        let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
        for _ in 0..2 {
            let code =
                |outputs: &mut [ViewMut<'_>]| compiled.run_into([(&x).into()], outputs).err().and_then(|e| e.code());
            let (mut f, mut g, mut i) = ([0f32; 2], [0f32; 3], [0i64; 2]);
            assert_eq!(code(&mut []), Some(Code::E0504));
            assert_eq!(
                code(&mut [ViewMut::from_slice(&[3], &mut g).unwrap()]),
                Some(Code::E0504)
            );
            assert_eq!(
                code(&mut [ViewMut::from_slice(&[2], &mut i).unwrap()]),
                Some(Code::E0503)
            );
            assert_eq!(code(&mut [ViewMut::from_slice(&[2], &mut f).unwrap()]), None);
            assert_eq!(f, [-1.0, -2.0]);
        }
    }
}

#[test]
fn a_call_that_fails_leaves_the_buffers_as_they_were() {
    let text = "const total : f32[2] = [0, 0]
        graph main {
            %x : f32[N] = placeholder x
            %t = get_attr total
            %u = call_method add_(%t, %x)
            output %x
        }";
    let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
    for name in [None, Some("x")] {
        let mut session = compiled(text).session();
        for calls in 0..3 {
            let input = || name.map_or(Input::from(&x), |n| Input::from((n, &x)));
            assert!(session.run_into([input()], &mut []).is_err());
            let total = session.state().get("total").map_or(0.0, |t| t.get(0).to_f64());
            assert_eq!(total, calls as f64);
            session.run([input()]).unwrap();
        }
    }
}

#[test]
fn inputs_that_a_call_changes_come_back() {
    let text = "graph main { %x : f32[2] = placeholder x  %u = call_method add_(%x, 1)  %y = call_function torch.neg(%u)  output %y }";
    let compiled = compiled(text);
    let x = [1.0f32, 2.0];
    for _ in 0..2 {
        let out = compiled.run([View::from_slice(&[2], &x).unwrap().into()]).unwrap();
        let changed: Vec<_> = out.changed_inputs().collect();
        assert_eq!(changed.len(), 1);
        assert_eq!(
            (changed[0].0, changed[0].1.as_slice::<f32>()),
            ("x", &[2.0f32, 3.0][..])
        );
        let mut y = [0f32; 2];
        let mut target = [ViewMut::from_slice(&[2], &mut y).unwrap()];
        compiled
            .run_into([View::from_slice(&[2], &x).unwrap().into()], &mut target)
            .unwrap();
        assert_eq!((x, y), ([1.0, 2.0], [-2.0, -3.0]));
    }
}

#[test]
fn indices_out_of_range_are_told_in_later_calls_too() {
    let text = "const w : f32[3, 2] = [[1, 2], [3, 4], [5, 6]]
        graph main { %i : i64[2] = placeholder i  %w = get_attr w  %y = call_function torch.nn.functional.embedding(%i, %w)  output %y }";
    let compiled = compiled(text);
    let run = |i: [i64; 2]| {
        compiled
            .run([View::from_slice(&[2], &i).unwrap().into()])
            .map(|o| o[0].get(0).to_f64())
    };
    assert_eq!(run([1, 0]).unwrap(), 3.0);
    let e = run([0, 3]).unwrap_err();
    assert_eq!(e.code(), Some(Code::E0502));
    assert!(e.report(false).contains("embedding"), "{e:#}");
    assert_eq!(run([2, 0]).unwrap(), 5.0);
}

#[test]
fn a_token_stops_calls_and_compiling() {
    let text = "graph main { %x : f32[N] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
    let token = CancelToken::new();
    let options = Options::new().threads(1).cancel(token.clone());
    let compiled = compiled_with(text, &options);
    let x = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
    let code = || compiled.run([(&x).into()]).err().and_then(|e| e.code());
    assert_eq!(code(), None);
    token.cancel();
    assert_eq!(code(), Some(Code::E0512));
    assert_eq!(
        Model::from_text(text)
            .unwrap()
            .compile(&options)
            .err()
            .and_then(|e| e.code()),
        Some(Code::E0512)
    );
    token.reset();
    assert_eq!(code(), None);

    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let polled = CancelToken::polling(Duration::ZERO, move || count.fetch_add(1, Ordering::Relaxed) > 1_000);
    let compiled = compiled_with(text, &Options::new().threads(1).cancel(polled));
    let stopped = (0..2_000).find_map(|_| compiled.run([(&x).into()]).err());
    assert_eq!(stopped.and_then(|e| e.code()), Some(Code::E0512));
}

/// The loop runs in the interpreter, because its first value depends on a size that only the run knows.
#[test]
fn a_token_stops_the_interpreter() {
    let text = "graph main {
            %n : i64[] = placeholder n
            %rows = call_function torch.nonzero(%n)
            %sum = call_function torch.sum(%rows)
            %start = call_function operator.add(%n, %sum)
            %w = call_function torch.while_loop(@more, @step, (%start,), ())
            %y = call_function operator.getitem(%w, 0)
            output %y
        }
        graph more {
            %n : i64[] = placeholder n
            %t = call_function operator.gt(%n, 0)
            output %t
        }
        graph step {
            %n : i64[] = placeholder n
            %m = call_function operator.sub(%n, 1)
            output (%m,)
        }";
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let token = CancelToken::polling(Duration::ZERO, move || count.fetch_add(1, Ordering::Relaxed) > 300);
    let compiled = compiled_with(text, &Options::new().threads(1).cancel(token.clone()));
    let run = |n: i64| compiled.run([Tensor::from_slice(&[], &[n]).into()]);
    let stopped = run(1 << 50).unwrap_err();
    assert_eq!(stopped.code(), Some(Code::E0512));
    token.reset();
    asked.store(0, Ordering::Relaxed);
    assert_eq!(run(5).unwrap()[0].as_slice::<i64>(), [0]);
}

#[test]
fn inputs_and_results_are_described() {
    let compiled = compiled(KEEPS_INPUT);
    let described = |v: Vec<ValueInfo>| {
        let of = |v: &ValueInfo| format!("{}: {}", v.name, v.ty.as_ref().map_or("?".into(), |t| t.to_string()));
        v.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(described(compiled.inputs()), ["x: f32[2]"]);
    assert_eq!(
        described(compiled.outputs().unwrap()),
        ["output.0: f32[2]", "output.1: f32[2]"]
    );
}

/// Hosts such as Python let their users write to results.
#[test]
fn results_share_no_memory_with_the_model() {
    let text = "const total : f32[2] = [0, 0]
        const scale : f32[2] = [1, 10]
        graph main {
            %x : f32[2] = placeholder x
            %t = get_attr total
            %old = call_method clone(%t)
            %u = call_method add_(%t, %x)
            %s = get_attr scale
            INTERPRETED
            output (%t, %s, %old)
        }";
    let interpreted = "%n = call_function torch.nonzero(%x)";
    for text in [
        text.replace("INTERPRETED", ""),
        text.replace("INTERPRETED", interpreted),
    ] {
        let compiled = compiled(&text);
        let mut session = compiled.session();
        for _ in 0..2 {
            let out = session.run([Tensor::from_slice(&[2], &[1.0f32, 2.0]).into()]).unwrap();
            let state = session.state();
            let scale = compiled.model().module().attributes["scale"].value.clone().unwrap();
            for t in out.tensors() {
                assert!(t.bytes().as_ptr() != state["total"].bytes().as_ptr());
                assert!(t.bytes().as_ptr() != scale.bytes().as_ptr());
            }
        }
    }
}
