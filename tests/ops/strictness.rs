//! Right and wrong arguments against PyTorch's verdicts: `tests/torch/strictness.py --extract` wrote them.

use fxc::driver::Session;
use serde_json::Value as Json;

const CASES: &str = include_str!("../data/strictness.json");

/// Whether fxc takes the call of a case.
fn takes(case: &Json) -> bool {
    let types = case["inputs"].as_object().expect("inputs");
    let inputs: String = types
        .iter()
        .map(|(n, t)| format!("    %{n} : {} = placeholder {n}\n", t.as_str().expect("a type")))
        .collect();
    let call = case["call"].as_str().expect("a call");
    let module = case["module"].as_str().unwrap_or_default();
    let text = format!("{module}\ngraph main {{\n{inputs}    %r = {call}\n    output None\n}}\n");
    let mut session = Session::new();
    match session.load_text("case", &text) {
        Ok(mut model) => session.check(&mut model.module, &[]).is_ok(),
        Err(_) => false,
    }
}

#[test]
fn calls_are_taken_and_refused_as_torch_does() {
    let data: Json = serde_json::from_str(CASES).expect("valid JSON");
    let cases = data["cases"].as_array().expect("cases");
    assert!(cases.len() > 200, "{} cases", cases.len());
    let differ: Vec<String> = cases
        .iter()
        .filter(|c| takes(c) != (c["torch"] == true))
        .map(|c| format!("torch {}: {}: {} {}", c["torch"], c["what"], c["module"], c["call"]))
        .collect();
    assert!(
        differ.is_empty(),
        "{} of {}:\n{}",
        differ.len(),
        cases.len(),
        differ.join("\n")
    );
}
