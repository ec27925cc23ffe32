//! Right and wrong arguments against PyTorch's verdicts: `tests/torch/strictness.py --extract` wrote them.

use fxc::internals::driver::Session;
use serde_json::{Value as Json, json};

const CASES: &str = include_str!("../data/strictness.json");

const VERDICTS: &str = include_str!("verdicts.txt");

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

/// A line of `verdicts.txt` as a case.
fn verdict(line: &str) -> Json {
    let (taken, call) = line.split_once(' ').expect("a verdict and a call");
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let names = call.split('%').skip(1);
    let names = names.map(|rest| &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())]);
    let of = |name: &str| {
        let (dtype, shape) = name.split_once('_').unwrap_or((name, ""));
        json!(format!("{dtype}[{}]", shape.replace('_', ", ")))
    };
    let inputs: serde_json::Map<String, Json> = names.map(|n| (n.to_string(), of(n))).collect();
    let call = call.trim();
    let (module, call) = match call.split_once(" @ ") {
        Some((module, inputs)) => (format!("module m = {module}"), format!("call_module m{inputs}")),
        None => (String::new(), format!("call_function {call}")),
    };
    json!({"what": "", "torch": taken == "yes", "module": module, "call": call, "inputs": inputs})
}

#[test]
fn classes_of_calls_are_taken_and_refused_as_torch_does() {
    let lines = VERDICTS.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let differ: Vec<&str> = lines
        .filter(|l| {
            let case = verdict(l);
            takes(&case) != (case["torch"] == true)
        })
        .collect();
    assert!(differ.is_empty(), "torch says otherwise:\n{}", differ.join("\n"));
}
