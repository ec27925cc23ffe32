use super::*;
use crate::infer::{InferOptions, infer};
use crate::interp;
use crate::source::FileId;
use crate::syntax::parse_text;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;
use std::fmt::Write;

/// An unrolled LSTM of `steps` steps, batch 2, width 3, 4 hidden units; backwards if `reversed`. Its last cell state is
/// a result, and so is the first if `leak` is set. If `projected`, its output is projected to 3 numbers.
fn unrolled(steps: usize, reversed: bool, leak: bool, projected: bool) -> GraphModule {
    let width = if projected { 3 } else { 4 };
    let mut t = format!(
        "graph g {{
            %x : f32[{steps}, 2, 3] = placeholder x
            %wi : f32[16, 3] = placeholder wi
            %wh : f32[16, {width}] = placeholder wh
            %bi : f32[16] = placeholder bi
            %bh : f32[16] = placeholder bh
            %wr : f32[3, 4] = placeholder wr
            %h0 : f32[2, {width}] = placeholder h0
            %c0 : f32[1, 2, 4] = placeholder c0
            %xv = call_function view(%x, [{}, 3])
            %wit = call_function permute(%wi, [1, 0])
            %xp = call_function addmm(%bi, %xv, %wit)
            %xs = call_function view(%xp, [{steps}, 2, 16])
            %s0 = call_function unsqueeze(%h0, 0)\n",
        steps * 2
    );
    let mut names = vec![];
    for i in 0..steps {
        let (h, c) = if i == 0 {
            ("s0".to_string(), "c0".to_string())
        } else {
            (format!("h{i}"), format!("c{i}"))
        };
        let (at, n) = (if reversed { steps - 1 - i } else { i }, i + 1);
        let _ = write!(
            t,
            "%q{n} = call_function slice(%xs, 0, {at}, {})
            %e{n} = call_function squeeze(%q{n}, [0])
            %a{n} = call_function view(%{h}, [2, {width}])
            %w{n} = call_function permute(%wh, [1, 0])
            %p{n} = call_function addmm(%bh, %a{n}, %w{n})
            %v{n} = call_function view(%p{n}, [1, 2, 16])
            %g{n} = call_function add(%v{n}, %e{n})
            %y{n} = call_function split_with_sizes(%g{n}, [4, 4, 4, 4], 2)
            %y{n}a = call_function item_of(%y{n}, 0)
            %y{n}b = call_function item_of(%y{n}, 1)
            %y{n}c = call_function item_of(%y{n}, 2)
            %y{n}d = call_function item_of(%y{n}, 3)
            %i{n} = call_function sigmoid(%y{n}a)
            %f{n} = call_function sigmoid(%y{n}b)
            %t{n} = call_function tanh(%y{n}c)
            %o{n} = call_function sigmoid(%y{n}d)
            %k{n} = call_function mul(%f{n}, %{c})
            %m{n} = call_function mul(%i{n}, %t{n})
            %c{n} = call_function add(%k{n}, %m{n})
            %u{n} = call_function tanh(%c{n})
            %z{n} = call_function mul(%o{n}, %u{n})\n",
            at + 1
        );
        let state = match projected {
            false => format!("%h{n} = call_function view(%z{n}, [1, 2, 4])\n"),
            true => format!(
                "%r{n} = call_function permute(%wr, [1, 0])
                %b{n} = call_function view(%z{n}, [2, 4])
                %d{n} = call_function mm(%b{n}, %r{n})
                %h{n} = call_function view(%d{n}, [1, 2, 3])\n"
            ),
        };
        t.push_str(&state);
        names.push(format!("%h{n}"));
    }
    if reversed {
        names.reverse();
    }
    let leaked = if leak { ", %c1" } else { "" };
    let _ = write!(
        t,
        "%out = call_function cat([{}])\noutput (%out, %h{steps}, %c{steps}{leaked})\n}}",
        names.join(", ")
    );
    module(&t)
}

fn module(t: &str) -> GraphModule {
    let (file, d) = parse_text(FileId(0), t);
    assert!(!d.has_errors(), "{d:?}");
    let (mut m, d) = crate::graph::build(&file, "g");
    assert!(!d.has_errors(), "{d:?}");
    let d = infer(&mut m, &InferOptions::default());
    assert!(!d.has_errors(), "{d:?}");
    m
}

fn results(m: &GraphModule) -> Vec<f64> {
    let g = m.entry().unwrap();
    let inputs = g.placeholders().into_iter().enumerate().map(|(k, p)| {
        let shape = g[p].meta.ty.as_ref().unwrap().as_leaf().unwrap().fixed_shape().unwrap();
        Val::Leaf(Tensor::from_fn(DType::F32, &shape, |i| {
            Scalar::F64(((i * 7 + k * 3) % 11) as f64 / 5.0 - 1.0)
        }))
    });
    let v = interp::run(m, inputs.collect()).unwrap_or_else(|d| panic!("{d:?}"));
    let leaves = v.leaves();
    leaves
        .iter()
        .flat_map(|t| (0..t.numel()).map(|i| t.get(i).to_f64()).collect::<Vec<_>>())
        .collect()
}

fn calls(m: &GraphModule, op: &str) -> usize {
    let g = m.entry().unwrap();
    g.iter().filter(|&n| g[n].target() == op).count()
}

fn rolled(m: &GraphModule) -> GraphModule {
    let mut m = m.clone();
    let options = crate::pass::PassOptions::default();
    let mut cx = PassContext {
        options: &options,
        remarks: vec![],
    };
    run(&mut m, &mut cx).unwrap();
    m
}

#[test]
fn layers_forwards_and_backwards_are_found() {
    for (reversed, projected) in [(false, false), (true, false), (false, true), (true, true)] {
        let before = unrolled(5, reversed, false, projected);
        let after = rolled(&before);
        assert_eq!(
            (calls(&after, "lstm"), calls(&after, "tanh")),
            (1, 0),
            "reversed: {reversed}, projected: {projected}"
        );
        let (a, b) = (results(&before), results(&after));
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
    }
}

#[test]
fn states_that_are_used_elsewhere_keep_it_unrolled() {
    assert_eq!(calls(&rolled(&unrolled(5, false, true, false)), "lstm"), 0);
}

/// A plain recurrent layer of three steps, over products that may be joined along the batch. Its first and last states
/// are results, and its states are joined nowhere. If `backwards`, its inputs are flipped.
fn plain(f: &str, backwards: bool) -> GraphModule {
    let xs = if backwards {
        "flip(%xb, [0])"
    } else {
        "view(%xb, [3, 2, 4])"
    };
    let mut t = format!(
        "graph g {{
            %x : f32[3, 2, 5] = placeholder x
            %wi : f32[4, 5] = placeholder wi
            %wh : f32[4, 4] = placeholder wh
            %bi : f32[4] = placeholder bi
            %bh : f32[4] = placeholder bh
            %h0 : f32[2, 4] = placeholder h0
            %wit = call_function permute(%wi, [1, 0])
            %we = call_function expand(%wit, [3, 5, 4])
            %xp = call_function bmm(%x, %we)
            %xb = call_function add(%xp, %bi)
            %xs = call_function {xs}\n"
    );
    for i in 0..3 {
        let n = i + 1;
        let _ = write!(
            t,
            "%q{n} = call_function slice(%xs, 0, {i}, {n})
            %w{n} = call_function permute(%wh, [1, 0])
            %a{n} = call_function view(%h{i}, [2, 4])
            %p{n} = call_function addmm(%bh, %a{n}, %w{n})
            %v{n} = call_function view(%p{n}, [1, 2, 4])
            %s{n} = call_function add(%v{n}, %q{n})
            %h{n} = call_function {f}(%s{n})\n"
        );
    }
    t.push_str("output (%h1, %h3)\n}");
    module(&t)
}

#[test]
fn states_that_are_used_elsewhere_are_read_from_the_result() {
    for (f, op) in [("tanh", "rnn_tanh"), ("relu", "rnn_relu")] {
        for backwards in [false, true] {
            let before = plain(f, backwards);
            let after = rolled(&before);
            assert_eq!((calls(&after, op), calls(&after, f)), (1, 0), "backwards: {backwards}");
            let (a, b) = (results(&before), results(&after));
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
        }
    }
}
