//! What the fuzz targets do with bytes. libFuzzer calls them (`fuzz_targets/`), and `cargo test` does with the corpora. A panic is a
//! failure; everything else is a result or a diagnostic.

use fxc::diag::render::{DiagnosticFormat, render};
use fxc::internals::driver::{BoundInputs, Function, LoadedModel, Request, Session};
use fxc::internals::tensor::{Tensor, files};
use fxc::interp;
use fxc::types::Val;
use fxc::{Limits, Model, Options};
use std::time::Duration;

/// Seconds are enough for a small input.
const PATIENCE: Duration = Duration::from_secs(2);

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.nodes = Some(20_000);
    limits.time = Some(PATIENCE);
    limits
}

/// Shows the findings in every format.
pub fn show(s: &Session) {
    let list: Vec<_> = s.diagnostics.iter().collect();
    for format in [
        DiagnosticFormat::Human,
        DiagnosticFormat::Short,
        DiagnosticFormat::Json,
        DiagnosticFormat::Sarif,
    ] {
        render(&s.sources, &list, format, false);
    }
}

/// A text: FXIR with graphs and rules, or what torch prints.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut s = Session::new();
    let _ = s.run_limited(&limits(), |s| {
        let mut model = s.load_text("input.fxir", text)?;
        if let Some(tree) = &model.tree {
            s.check_rules(tree)?;
        }
        s.check(&mut model.module, &[])?;
        let _ = fxc::graph::print(&model.module);
        Ok(())
    });
    show(&s);
}

/// An archive, or whatever else a model's file may be.
pub fn archive(bytes: &[u8]) {
    let options = Options::new().threads(1).cache(false).limits(limits());
    match Model::from_bytes_with(bytes, &options).and_then(|m| m.check_with(&options)) {
        Ok(_) => {}
        Err(e) => drop(e.report(false)),
    }
}

/// A file of tensors; the first byte says of which kind.
pub fn tensors(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let ending = ["npy", "npz", "safetensors"][*kind as usize % 3];
    let file = std::env::temp_dir().join(format!("fxc-fuzz-{}.{ending}", std::process::id()));
    if std::fs::write(&file, rest).is_ok() {
        if let Ok(read) = files::read(&file) {
            drop(format!("{:?}", read.tensors.len()));
        }
        let _ = std::fs::remove_file(&file);
    }
}

/// Calls that do not round, of the value `%a` and another `%b` of its dtype and shape, and `{n}`.
const CALLS: [&str; 22] = [
    "call_function operator.add(%a, %b)",
    "call_function operator.sub(%a, %b)",
    "call_function operator.mul(%a, %b)",
    "call_function torch.maximum(%a, %b)",
    "call_function torch.minimum(%a, %b)",
    "call_function torch.bitwise_xor(%a, %b)",
    "call_function torch.where(%m, %a, %b)",
    "call_function torch.add(%a, {n})",
    "call_function torch.bitwise_and(%a, {n})",
    "call_function torch.clamp(%a, -{n}, {n})",
    "call_function torch.neg(%a)",
    "call_function torch.abs(%a)",
    "call_function torch.flip(%a, [{axis}])",
    "call_function torch.roll(%a, {n}, {axis})",
    "call_function torch.cumsum(%a, {axis}, dtype=torch.int32)",
    "call_function torch.sort(%a, {axis})[0]",
    "call_method t(%a)",
    "call_method contiguous(%a)",
    "call_function torch.amax(%a, [{axis}], True)",
    "call_function torch.sum(%a, [{axis}], True, dtype=torch.int32)",
    "call_function torch.bitwise_left_shift(%a, {n})",
    "call_function torch.gcd(%a, %b)",
];

/// The text of a graph of integers that bytes describe: four of them a call.
pub fn program_text(bytes: &[u8]) -> Option<(String, usize)> {
    let (size, rest) = bytes.split_first()?;
    let n = [1, 2, 3, 7, 16, 17, 33][*size as usize % 7];
    let mut text =
        format!("graph main {{\n    %v0 : i32[{n}, {n}] = placeholder x\n    %v1 : i32[{n}, {n}] = placeholder y\n");
    let mut count = 2;
    for call in rest.chunks_exact(4).take(24) {
        let value = |b: u8| format!("%v{}", b as usize % count);
        let (a, b) = (value(call[1]), value(call[2]));
        let pattern = CALLS[call[0] as usize % CALLS.len()];
        let pattern = pattern.replace("{n}", &(call[3] % 32).to_string());
        let line = pattern.replace("{axis}", &(call[3] % 2).to_string());
        if line.contains("%m") {
            text.push_str(&format!("    %m{count} = call_function torch.gt({a}, {b})\n"));
        }
        let line = line
            .replace("%m", &format!("%m{count}"))
            .replace("%a", &a)
            .replace("%b", &b);
        match line.strip_suffix("[0]") {
            Some(tuple) => {
                text.push_str(&format!(
                    "    %t{count} = {tuple}\n    %v{count} = call_function operator.getitem(%t{count}, 0)\n"
                ));
            }
            None => text.push_str(&format!("    %v{count} = {line}\n")),
        }
        count += 1;
    }
    text.push_str(&format!(
        "    output [%v{}, %v{}, %v{}]\n}}\n",
        count - 1,
        count / 2,
        count - 2
    ));
    Some((text, n))
}

/// A graph of integers: compiled code computes what the interpreter computes, bit for bit.
pub fn program(bytes: &[u8]) {
    let Some((text, n)) = program_text(bytes) else { return };
    let mut s = Session::new();
    let Ok(mut model) = s.load_text("program.fxir", &text) else {
        panic!("not a graph:\n{text}");
    };
    if s.check(&mut model.module, &[]).is_err() {
        return;
    }
    let elements = |seed: i32| {
        (0..n * n)
            .map(|i| (i as i32 + seed).wrapping_mul(-1_640_531_527))
            .collect::<Vec<_>>()
    };
    let inputs = [elements(1), elements(7)].map(|v| Val::Leaf(Tensor::from_slice(&[n, n], &v)));
    let want = interp::run(&model.module, inputs.to_vec());
    let bound = BoundInputs {
        types: inputs
            .iter()
            .map(|v| Val::Leaf(v.as_leaf().expect("tensors").ty()))
            .collect(),
        values: inputs.to_vec(),
        dims: Default::default(),
    };
    let request = Request {
        threads: 1,
        ..Request::default()
    };
    let got = Function::new(LoadedModel::new("program", model.module), request).call(&mut s, &bound);
    let bits = |v: &Val<Tensor>| v.flatten().iter().map(|t| format!("{t:?}")).collect::<Vec<_>>();
    match (want, got) {
        (Ok(want), Ok(got)) => assert_eq!(bits(&got.result), bits(&want), "{text}"),
        (want, got) => assert_eq!(want.is_ok(), got.is_ok(), "{text}"),
    }
}
