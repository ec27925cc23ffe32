//! Which constants are folded.

use super::fold;
use crate::graph::{Attribute, AttributeKind, GraphModule};
use crate::infer::{InferOptions, infer};
use crate::pass::{PassContext, PassOptions};
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// The targets of a graph's calls after folding, if the weight `w` has 600 x 600 elements, more than the limit.
fn folded(body: &str) -> Vec<String> {
    folded_from(DType::F32, body)
}

/// [`folded`] with a weight of this dtype.
fn folded_from(dtype: DType, body: &str) -> Vec<String> {
    let text = format!(
        "param w : {dtype}[600, 600]\n\ngraph g {{\n    %x : f32[2, 600] = placeholder x\n    %w = get_attr w\n{body}}}\n"
    );
    let (file, d) = crate::syntax::parse_text(crate::source::FileId(0), &text);
    assert!(!d.has_errors(), "{d:?}");
    let (mut m, d) = crate::graph::build(&file, "g");
    assert!(!d.has_errors(), "{d:?}");
    let value = Tensor::from_fn(dtype, &[600, 600], |i| Scalar::F32((i % 7) as f32 + 1.0));
    let w = Attribute {
        kind: AttributeKind::Parameter,
        ty: None,
        value: Some(value),
        span: None,
    };
    m.attributes.insert("w".into(), w);
    let d = infer(&mut m, &InferOptions::default());
    assert!(d.is_empty(), "{d:?}");
    let options = PassOptions::default();
    let mut cx = PassContext {
        options: &options,
        remarks: vec![],
    };
    fold::run(&mut m, &mut cx).unwrap();
    calls(&m)
}

fn calls(m: &GraphModule) -> Vec<String> {
    let g = m.entry().unwrap();
    let calls = g.iter().filter(|&n| g[n].op().is_call());
    calls.map(|n| g[n].target().to_string()).collect()
}

#[test]
fn a_large_constant_is_replaced_by_what_is_computed_from_it() {
    let scaled = "    %s = call_function mul(%w, 2.0)\n    %y = call_function mm(%x, %s)\n    output %y\n";
    assert_eq!(folded(scaled), ["mm"]);
    // The view stays a view of a constant that is otherwise unused.
    let viewed = "    %v = call_function reshape(%w, [600, 30, 20])\n    %s = call_function relu(%v)\n    \
        %r = call_function reshape(%s, [600, 600])\n    %y = call_function mm(%x, %r)\n    output %y\n";
    assert!(!folded(viewed).contains(&"relu".to_string()));
    // A weight that gives its shape to what is computed from it.
    let standardised = "    %v = call_function reshape(%w, [600, 30, 20])\n    %s = call_function relu(%v)\n    \
        %r = call_function reshape_as(%s, %w)\n    %y = call_function mm(%x, %r)\n    output %y\n";
    assert!(!folded(standardised).contains(&"relu".to_string()));
}

#[test]
fn products_of_large_constants_are_folded() {
    let twice = "    %s = call_function mm(%w, %w)\n    %y = call_function mm(%x, %s)\n    %z = call_function mm(%y, %w)\n    output %z\n";
    assert_eq!(folded(twice), ["mm", "mm"]);
    // A larger result would take more memory than it saves.
    let outer = "    %r = call_function reshape(%w, [3600, 100])\n    %c = call_function reshape(%w, [100, 3600])\n    \
        %s = call_function mm(%r, %c)\n    %k = call_function narrow(%s, 0, 0, 600)\n    \
        %y = call_function mm(%x, %k)\n    output %y\n";
    assert_eq!(folded(outer).iter().filter(|target| *target == "mm").count(), 2);
}

/// Chains of views and of operations, however long, take neither stack nor minutes.
#[test]
fn long_chains_on_a_large_constant_are_folded_in_part() {
    let chain = |call: &str, n: usize| {
        let mut body = String::new();
        let mut last = "%w".to_string();
        for i in 0..n {
            body += &format!("    %c{i} = call_function {}\n", call.replace('@', &last));
            last = format!("%c{i}");
        }
        body + &format!("    %s = call_function relu({last})\n    %y = call_function mm(%x, %s)\n    output %y\n")
    };
    assert_eq!(folded(&chain("reshape(@, [600, 600])", 5000)).len(), 5002);
    let left = folded(&chain("mul(@, 1.5)", 1000)).len();
    assert!((100..900).contains(&left), "{left} calls are left");
    // A view that is larger than its constant is not made.
    let expanded = "    %e = call_function expand(%w, [1000000, 600, 600])\n    %s = call_function relu(%e)\n    %m = call_function amax(%s)\n    output %m\n";
    assert_eq!(folded(expanded).len(), 3);
}

#[test]
fn a_large_constant_that_is_still_used_is_not_copied() {
    let twice = "    %s = call_function mul(%w, 2.0)\n    %y = call_function mm(%x, %s)\n    %z = call_function mm(%y, %w)\n    output %z\n";
    assert_eq!(folded(twice), ["mul", "mm", "mm"]);
    let rearranged = "    %t = call_function t(%w)\n    %y = call_function mm(%x, %t)\n    output %y\n";
    assert_eq!(folded(rearranged), ["t", "mm"]);
    let larger = "    %s = call_function to(%w, f64)\n    output %s\n";
    assert_eq!(folded(larger).len(), 1);
}

/// 8-bit floats become numbers that kernels compute with, and what is computed from these folds too.
#[test]
fn weights_of_8_bit_floats_are_decoded() {
    let scaled = "    %t = call_function t(%w)\n    %f = call_function convert_stored(%t, f32)\n    \
        %s = call_function mul(%f, 0.5)\n    %y = call_function mm(%x, %s)\n    output %y\n";
    for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E8M0FNU] {
        assert_eq!(folded_from(dtype, scaled), ["mm"], "{dtype}");
        assert_eq!(
            folded_from(dtype, &scaled.replace("convert_stored", "to")),
            ["mm"],
            "{dtype}"
        );
    }
}
