//! PyTorch's OpInfo samples against fxc, interpreted and compiled.
//!
//! `tests/torch/opinfo.py` writes the samples as graphs; with `FXC_OPINFO` naming its folder, the first test runs them all
//! in this process and writes the results, which the script compares. The second runs the extract of them that is kept
//! in `tests/data/opinfo.json`, and the calls of `tests/data/more.json`, and compares by itself.

#[path = "ops/json.rs"]
mod json_tensors;

use fxc::diag::Diagnostic;
use fxc::internals::driver::{BoundInputs, Request, Session, Stage, compile};
use fxc::internals::op::random;
use fxc::internals::tensor::{Tensor, files};
use fxc::interp;
use fxc::types::{DType, Type, Val};
use json_tensors::tensor;
use serde_json::{Value as Json, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The tensors that a graph gives, or why it does not run.
type Results = Result<Vec<Tensor>, String>;

fn first_error(session: &Session) -> String {
    session
        .diagnostics
        .iter()
        .find(|d| d.is_error())
        .map_or("no diagnostic".into(), words)
}

fn words(d: &Diagnostic) -> String {
    let notes: Vec<String> = d.notes.iter().map(|n| format!("{n:?}")).collect();
    format!("{} {} {}", d.code, d.title, notes.join(" "))
}

/// The tensors of a result in order; Python numbers count as tensors of no dims.
fn leaves(v: &Val<Tensor>) -> Vec<Tensor> {
    match v {
        Val::Leaf(t) => vec![t.clone()],
        Val::Bool(b) => vec![Tensor::scalar(*b as u8).to(DType::B8)],
        Val::Float(x) => vec![Tensor::scalar(*x as f32)],
        Val::Int(_) => v.as_int().map(Tensor::scalar).into_iter().collect(),
        _ => v.items().unwrap_or_default().iter().flat_map(leaves).collect(),
    }
}

/// The graph of the text run on `inputs` node by node.
fn interpreted(text: &str, inputs: &[Tensor]) -> Results {
    let mut session = Session::new();
    let mut model = session.load_text("case", text).map_err(|_| first_error(&session))?;
    let types: Vec<Type> = inputs.iter().map(|t| Val::Leaf(t.ty())).collect();
    session
        .check(&mut model.module, &types)
        .map_err(|_| first_error(&session))?;
    let values = inputs.iter().cloned().map(Val::Leaf).collect();
    let result = interp::run(&model.module, values).map_err(|d| words(&d))?;
    agree_with_types(&model.module, &result)?;
    Ok(leaves(&result))
}

/// The types that inference gave the results are those of the values.
fn agree_with_types(module: &fxc::graph::GraphModule, result: &Val<Tensor>) -> Result<(), String> {
    let Some(graph) = module.entry() else {
        return Err("no graph".into());
    };
    let Some(Val::List(inferred)) = graph.output().and_then(|o| graph[o].meta.ty.clone()) else {
        return Ok(());
    };
    let Val::List(values) = result else {
        return Err("the result is not a list".into());
    };
    for (ty, value) in inferred.iter().zip(values) {
        let (Val::Leaf(ty), Val::Leaf(value)) = (ty, value) else {
            continue;
        };
        let known = ty
            .shape
            .as_ref()
            .is_some_and(|s| s.iter().all(|d| d.as_const().is_some()));
        if ty.dtype != value.dtype() || known && *ty != value.ty() {
            return Err(format!("inference says {ty}, the value is {}", value.ty()));
        }
    }
    Ok(())
}

/// The graph of the text compiled and run.
fn compiled(text: &str, inputs: &[Tensor]) -> Results {
    let mut session = Session::new();
    let model = session.load_text("case", text).map_err(|_| first_error(&session))?;
    let request = Request {
        inputs: Some(inputs.iter().map(|t| Val::Leaf(t.ty())).collect()),
        threads: 1,
        until: Some(Stage::Compile),
        ..Request::default()
    };
    let mut made = compile(&mut session, model, &request).map_err(|_| first_error(&session))?;
    let bound = BoundInputs {
        values: inputs.iter().cloned().map(Val::Leaf).collect(),
        types: inputs.iter().map(|t| Val::Leaf(t.ty())).collect(),
        dims: Default::default(),
    };
    let result = made.run(&bound).map_err(|e| words(&e))?;
    let graph = made.module.entry().ok_or("no graph")?;
    Ok(leaves(&fxc::internals::driver::run::user_result(graph, result)))
}

fn caught(run: impl FnOnce() -> Results) -> Results {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|e| {
        let text = e.downcast_ref::<String>().map(String::as_str);
        let text = text.or(e.downcast_ref::<&str>().copied()).unwrap_or("?");
        Err(format!("PANIC {text}"))
    })
}

/// A way to run a text on inputs.
type Run = fn(&str, &[Tensor]) -> Results;

const MODES: [(&str, Run); 2] = [("interpreted", interpreted), ("compiled", compiled)];

/// Runs the cases of one file, and writes what they give. `at` holds the case that runs, should the process end.
fn run_chunk(file: &Path, at: &Path) {
    let base = file.with_extension("");
    let name = base.file_name().expect("a name").to_string_lossy().into_owned();
    let beside = |ending: &str| file.with_file_name(format!("{name}.{ending}"));
    let text = std::fs::read_to_string(file).expect("a file of cases");
    let cases: Vec<Json> = serde_json::from_str(&text).expect("cases");
    let given = files::read(&beside("in")).expect("the inputs");
    let (mut outcomes, mut tensors) = (vec![], vec![]);
    for case in &cases {
        let id = &case["id"];
        let inputs: Vec<Tensor> = case["inputs"]
            .as_array()
            .expect("inputs")
            .iter()
            .map(|n| given.tensors[&format!("{id}.{}", n.as_str().expect("a name"))].clone())
            .collect();
        let mut outcome = json!({"id": id});
        for (mode, run) in MODES {
            std::fs::write(at, format!("{name} {id} {mode}")).expect("the folder is writable");
            match caught(|| run(case["text"].as_str().expect("a graph"), &inputs)) {
                Ok(found) => tensors.extend(
                    found
                        .into_iter()
                        .enumerate()
                        .map(|(j, t)| (format!("{id}.{mode}.{j}"), t)),
                ),
                Err(e) => outcome[mode] = json!(e),
            }
        }
        outcomes.push(outcome);
    }
    tensors.push(("none".into(), Tensor::scalar(0f32)));
    files::write(&beside("out.safetensors"), tensors.iter().map(|(n, t)| (n.as_str(), t)))
        .expect("the folder is writable");
    std::fs::write(beside("result"), Json::Array(outcomes).to_string()).expect("the folder is writable");
}

#[test]
fn samples_of_a_folder() {
    let Some(folder) = std::env::var_os("FXC_OPINFO").map(PathBuf::from) else {
        eprintln!("SKIPPED: FXC_OPINFO is not set; no sample was run");
        return;
    };
    std::panic::set_hook(Box::new(|_| {}));
    let mut found: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of FXC_OPINFO")
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    found.sort();
    for file in found {
        if file.with_extension("result").exists() {
            continue;
        }
        run_chunk(&file, &folder.join("at"));
    }
    let _ = std::fs::remove_file(folder.join("at"));
}

/// What differs between a result and torch's, beyond the tolerances.
fn differs(got: &Tensor, want: &Tensor, atol: f64, rtol: f64) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    (0..want.numel()).find_map(|i| {
        let (g, w) = (got.get(i).to_f64(), want.get(i).to_f64());
        let same = match want.dtype().is_float() {
            true => g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= atol + rtol * w.abs() && w.is_finite(),
            false => got.get(i).to_i64() == want.get(i).to_i64(),
        };
        (!same).then(|| format!("element {i} is {} instead of {}", got.get(i), want.get(i)))
    })
}

/// What is wrong with a case of the extract, if anything.
fn check(case: &Json, run: Run) -> Option<String> {
    let all = |name: &str| case[name].as_array().expect("a list");
    let inputs: Vec<Tensor> = all("inputs").iter().map(tensor).collect();
    if let Some(seed) = case["seed"].as_u64() {
        random::seed(seed);
    }
    let got = match caught(|| run(case["text"].as_str().expect("a graph"), &inputs)) {
        Ok(got) => got,
        Err(e) => return Some(e),
    };
    let want = all("out");
    if got.len() != want.len() {
        return Some(format!("{} results instead of {}", got.len(), want.len()));
    }
    let limit = |name: &str, i: usize| all(name)[i].as_f64().expect("a number");
    let mut pairs = got.iter().zip(want).enumerate();
    pairs.find_map(|(i, (g, w))| differs(g, &tensor(w), limit("atol", i), limit("rtol", i)))
}

/// The samples of OpInfo, and calls written for the ops that its small samples do not reach.
const EXTRACTS: [&str; 2] = [include_str!("data/opinfo.json"), include_str!("data/more.json")];

fn cases_of(text: &str) -> Vec<Json> {
    let data: Json = serde_json::from_str(text).expect("valid JSON");
    let cases = data["cases"].as_array().expect("cases").clone();
    assert!(!cases.is_empty(), "the extract holds no cases");
    cases
}

fn check_extract(mode: usize) {
    let cases: Vec<Json> = EXTRACTS.iter().flat_map(|text| cases_of(text)).collect();
    let (name, run) = MODES[mode];
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case, run).map(|what| format!("{}: {what}\n{}", case["op"], case["text"])))
        .collect();
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        failures.is_empty(),
        "{name}: {} of {} samples differ from torch:\n{shown}",
        failures.len(),
        cases.len()
    );
}

#[test]
fn interpreted_ops_agree_with_torch() {
    check_extract(0);
}

#[test]
fn compiled_ops_agree_with_torch() {
    check_extract(1);
}
