//! Faults that are put in on purpose are reduced to what they need.

use super::*;
use crate::tensor::Tensor;

fn failing(text: &str, inputs: Vec<Tensor>) -> Failing {
    let mut session = Session::new();
    let mut model = session
        .load_text("reduce", text)
        .unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
    session.check(&mut model.module, &[]).unwrap();
    Failing {
        module: model.module,
        inputs: inputs.into_iter().map(Val::Leaf).collect(),
    }
}

/// Whether the graph calls a function.
fn calls(f: &Failing, target: &str) -> bool {
    f.graph()
        .is_some_and(|g| g.iter().any(|n| g[n].target().ends_with(target)))
}

const LONG: &str = "graph main {
    %x : f32[4, 6] = placeholder x
    %y : f32[6] = placeholder y
    %a = call_function torch.relu(%x)
    %b = call_function torch.add(%a, %y)
    %c = call_function torch.exp(%b)
    %d = call_function torch.sum(%c, 1)
    %e = call_function torch.tanh(%d)
    %f = call_method reshape(%c, [6, 4])
    output (%e, %f)
}";

fn long() -> Failing {
    let x = Tensor::from_fn(crate::types::DType::F32, &[4, 6], |i| {
        crate::tensor::Scalar::F64(i as f64 / 7.0)
    });
    failing(LONG, vec![x.clone(), Tensor::from_slice(&[6], &[1f32; 6])])
}

#[test]
fn one_call_and_its_operand_remain() {
    let reduced = reduce(long(), 1000, &mut |f| calls(f, "exp"));
    let f = &reduced.failing;
    assert_eq!(f.graph().unwrap().len(), 3, "{}", print(&f.module));
    assert_eq!(f.inputs[0].as_leaf().unwrap().numel(), 1);
    assert_eq!(f.inputs[0].as_leaf().unwrap().get(0).to_f64(), 0.0);
    assert!(f.clone().infer_types());
}

#[test]
fn calls_that_fail_together_remain_together() {
    let reduced = reduce(long(), 1000, &mut |f| calls(f, "relu") && calls(f, "tanh"));
    let f = &reduced.failing;
    assert!(f.graph().unwrap().len() <= 6, "{}", print(&f.module));
}

#[test]
fn elements_that_the_failure_needs_stay() {
    let large = |f: &Failing| {
        let v = f.values();
        v.values()
            .filter_map(|v| v.as_leaf())
            .any(|t| (0..t.numel()).any(|i| t.get(i).to_f64() > 20.0))
    };
    let reduced = reduce(long(), 1000, &mut |f| calls(f, "exp") && large(f));
    let f = &reduced.failing;
    assert!(large(f) && f.graph().unwrap().len() <= 4, "{}", print(&f.module));
}

#[test]
fn a_graph_that_a_panic_needs_is_found_without_values() {
    let mut panics = |f: &Failing| catch_unwind(AssertUnwindSafe(|| assert!(!calls(f, "tanh")))).is_err();
    let reduced = reduce(long(), 1000, &mut panics);
    assert_eq!(reduced.failing.graph().unwrap().len(), 3);
}

#[test]
fn the_number_of_attempts_is_limited() {
    let reduced = reduce(long(), 3, &mut |_| true);
    assert_eq!(reduced.attempts, 3);
}

#[test]
fn branches_and_writes_stay_whole() {
    let text = "graph main {
    %x : f32[3] = placeholder x
    %p : b8[] = placeholder p
    %y = call_method mul_(%x, 2)
    %z = call_function torch.cond(%p, @yes, @no, (%y,))
    output (%z, %y)
}
graph yes {
    %x = placeholder x
    %y = call_function torch.exp(%x)
    output %y
}
graph no {
    %x = placeholder x
    %y = call_function torch.sin(%x)
    output %y
}";
    let inputs = vec![
        Tensor::from_slice(&[3], &[1f32, 2.0, 3.0]),
        Tensor::scalar(1u8).to(crate::types::DType::B8),
    ];
    let reduced = reduce(failing(text, inputs), 1000, &mut |f| calls(f, "cond"));
    assert_eq!(reduced.failing.module.graphs.len(), 3);
    assert!(reduced.failing.clone().infer_types());
    assert!(!calls(&reduced.failing, "mul_"));
}

#[test]
fn values_before_an_error_become_inputs() {
    let text = "graph main {
    %x : f32[2, 3] = placeholder x
    %i : i64[2, 2] = placeholder i
    %a = call_function torch.exp(%x)
    %b = call_function torch.relu(%a)
    %j = call_function torch.add(%i, 7)
    %c = call_function torch.gather(%b, 1, %j)
    %d = call_function torch.tanh(%c)
    output (%d, %a)
}";
    let inputs = vec![
        Tensor::from_slice(&[2, 3], &[1f32; 6]),
        Tensor::from_slice(&[2, 2], &[0i64; 4]),
    ];
    let mut fails = |f: &Failing| {
        let module = f.module.clone();
        calls(f, "gather") && Interpreter::new(&module).run(f.inputs.clone()).is_err()
    };
    let reduced = reduce(failing(text, inputs), 1000, &mut fails).failing;
    // The two operands, the call and the output.
    assert_eq!(reduced.graph().unwrap().len(), 4, "{}", print(&reduced.module));
}

#[test]
fn the_text_of_a_graph_has_the_types_of_its_smaller_inputs() {
    let mut fails = |f: &Failing| {
        let mut session = Session::new();
        session
            .load_text("again", &print(&f.module))
            .is_ok_and(|mut again| session.check(&mut again.module, &[]).is_ok())
            && calls(f, "exp")
    };
    let reduced = reduce(long(), 1000, &mut fails).failing;
    assert_eq!(
        reduced.inputs[0].as_leaf().unwrap().numel(),
        1,
        "{}",
        print(&reduced.module)
    );
}

#[test]
fn a_reduced_graph_is_not_tried_again() {
    let mut tried = HashSet::new();
    let reduced = reduce(long(), 1000, &mut |f| {
        assert!(!calls(f, "exp") || tried.insert(f.hash()), "{}", print(&f.module));
        calls(f, "exp")
    });
    assert!(reduced.attempts < 100, "{} attempts", reduced.attempts);
}
