//! `fxc reduce` on models with faults that are put in on purpose.

use crate::output::ok;
use crate::support::{Dir, fxc};

const MODEL: &str = "graph main {
    %x : f32[8, 6] = placeholder x
    %w : f32[6, 5] = placeholder w
    %a = call_function torch.exp(%x)
    %b = call_function torch.matmul(%a, %w)
    %c = call_function torch.sub(%b, 3)
    %d = call_function torch.relu(%c)
    %e = call_function torch.sum(%d, 1)
    %f = call_function torch.softmax(%c, 0)
    output (%e, %f)
}
";

/// The nodes of a graph in a text.
fn node_count(text: &str) -> usize {
    text.lines().filter(|l| l.trim_start().starts_with(['%', 'o'])).count()
}

#[test]
fn an_unsound_rule_is_reduced_to_the_call_that_it_changes() {
    let dir = Dir::new("reduce-rule");
    let model = dir.file("model.fxir", MODEL);
    let rules = dir.file("bad.fxir", "rewrite bad: relu(%x) => %x\n");
    let at = |name: &str| dir.0.join(name).display().to_string();
    let (want, changed, out) = (at("want.npz"), at("changed.fxir"), at("small.fxir"));
    let fxc_path = env!("CARGO_BIN_EXE_fxc");
    let check = format!(
        "'{fxc_path}' run {{}} --inputs {{inputs}} --outputs '{want}' && '{fxc_path}' rewrite {{}} --rules '{rules}' -o '{changed}' \
         && ! '{fxc_path}' run '{changed}' --inputs {{inputs}} --expect '{want}'"
    );
    let ran = ok(&[
        "reduce",
        &model,
        "x=randn:1",
        "w=randn:2",
        "--check",
        &check,
        "-o",
        &out,
    ]);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("relu") && node_count(&text) == 3, "{text}\n{}", ran.err);
    assert!(text.starts_with("# "), "the inputs come first: {text}");
    // What was written runs with the inputs next to it.
    ok(&["run", &out, "--inputs", &at("small.inputs.safetensors"), "--check"]);
}

#[test]
fn an_error_is_reduced_to_the_node_that_reports_it() {
    let dir = Dir::new("reduce-error");
    let text = MODEL.replace(
        "%e = call_function torch.sum(%d, 1)",
        "%e = call_function torch.gather(%d, 1, %i)",
    );
    let text = text.replace("%a = ", "%i : i64[8, 2] = placeholder i\n    %a = ");
    let model = dir.file("model.fxir", text);
    let ran = ok(&["reduce", &model, "x=randn:1", "w=randn:2", "i:i64[8,2]=arange"]);
    assert!(ran.err.contains("the failure: error E0502"), "{}", ran.err);
    // The two operands, the call and the output.
    assert!(ran.out.contains("gather") && node_count(&ran.out) == 4, "{}", ran.out);
}

#[test]
fn a_model_that_does_not_fail_is_left_alone() {
    let dir = Dir::new("reduce-none");
    let model = dir.file("model.fxir", MODEL);
    let ran = fxc(&["reduce", &model, "x=randn:1", "w=randn:2"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("the model does not fail"), "{}", ran.err);
}
