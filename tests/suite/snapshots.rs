//! Snapshots of every stage of every example as text, next to its source.

use crate::support::{examples, root, snapshot_in};
use fxc::diag::render::{DiagnosticFormat, render};
use fxc::internals::codegen::CodegenOptions;
use fxc::internals::driver::text::Artifact;
use fxc::internals::driver::{Dims, Fill, Given, Provided, Request, Session, Stage, bind, compile};
use fxc::types::{DType, TensorType};
use std::collections::BTreeMap;

/// Texts from the driver. Kernels and their CLIF come after them. Machine code depends on the machine, so it has no
/// snapshot.
const ARTIFACTS: [Artifact; 6] = [
    Artifact::Ast,
    Artifact::Graph,
    Artifact::Code,
    Artifact::Dot,
    Artifact::Typed,
    Artifact::Optimized,
];

/// Types of inputs that an example does not declare.
fn given(path: &str) -> Vec<Provided> {
    let f32s = |name: &str, shape: &[usize]| Provided {
        name: name.to_string(),
        given: Given::Fill(Fill::Zeros, Some(TensorType::with_fixed_shape(DType::F32, shape))),
        origin: "the test".to_string(),
        must_match: true,
    };
    match path {
        "examples/torch_print.txt" => vec![f32s("x", &[2, 3]), f32s("y", &[2, 4])],
        _ => vec![],
    }
}

#[test]
fn every_stage_of_every_example() {
    for path in examples() {
        let name = path.trim_start_matches("examples/").replace(['/', '.'], "-");
        let mut s = Session::new();
        let texts = stages(&mut s, &path);
        let list: Vec<_> = s.diagnostics.iter().collect();
        let found = render(&s.sources, &list, DiagnosticFormat::Human, false);
        let texts = texts.unwrap_or_else(|| panic!("{path}\n{found}"));
        assert_eq!(found, "", "{path}");
        let source = std::fs::read_to_string(root().join(&path)).unwrap();
        for (stage, text) in texts {
            snapshot_in(
                "stages",
                &format!("{name}-{stage}"),
                &format!("{source}\n=== {stage} ===\n{text}"),
            );
        }
    }
}

/// The texts of the stages, and the program with its kernels (without the Python helpers that all kernels share).
fn stages(s: &mut Session, path: &str) -> Option<Vec<(&'static str, String)>> {
    let full = root().join(path).display().to_string();
    let model = s.load(&full).ok()?;
    let given = given(path);
    let dims = Dims::from([("N".to_string(), 4)]);
    let (inputs, dims) = if given.is_empty() {
        (None, dims)
    } else {
        let (bound, found) = bind::bind_inputs(&model.module, given, Dims::new());
        s.diagnostics.extend(found);
        let bound = bound?;
        (Some(bound.types), bound.dims)
    };
    let artifacts = ARTIFACTS.to_vec();
    let request = Request {
        inputs,
        dims,
        threads: 1,
        artifacts,
        until: Some(Stage::Lower),
        ..Request::default()
    };
    let made = compile(s, model, &request).ok()?;
    let program = made.program?;
    let kernels: String = program
        .kernels
        .iter()
        .map(|k| format!("\n{}", fxc::internals::kernel::python::print_function(k)))
        .collect();
    let mut texts: Vec<(&str, String)> = made.texts.into_iter().map(|(a, t)| (a.name(), t)).collect();
    texts.push(("kernels", format!("{program}{kernels}")));
    texts.extend(clif(&program.kernels).map(|t| ("clif", t)));
    Some(texts)
}

/// An outline of the kernels in Cranelift's IR with vectors of 16 bytes. Without fused multiplication it would differ.
fn clif(kernels: &[fxc::internals::kernel::Kernel]) -> Option<String> {
    if fxc::internals::target::Target::native().isa() == fxc::internals::target::Isa::Portable {
        eprintln!("SKIPPED: this machine has no fused multiplication; the CLIF was not compared");
        return None;
    }
    let options = CodegenOptions {
        text: true,
        width: Some(16),
        ..CodegenOptions::default()
    };
    let compiled =
        fxc::internals::codegen::compile_kernels(kernels, options).expect("kernels that were compiled before");
    let one = |(i, k): (usize, &fxc::internals::kernel::Kernel)| format!("{}\n{}\n", k.name, outline(compiled.clif(i)));
    Some(kernels.iter().enumerate().map(one).collect())
}

/// The blocks of a function with the count of each instruction, which shows whether a loop is vectorized or code was
/// hoisted. (`snapshots/kernel_*_clif.snap` contain whole functions.)
fn outline(clif: &str) -> String {
    let mut out = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let finish = |counts: &mut BTreeMap<&str, usize>, out: &mut String| {
        let counted = std::mem::take(counts).into_iter();
        let list: Vec<String> = counted
            .map(|(op, n)| if n == 1 { op.into() } else { format!("{n} {op}") })
            .collect();
        out.push_str(&list.join(", "));
    };
    for line in clif.lines() {
        // Comments contain the values of constants.
        let line = line.split(';').next().unwrap_or_default().trim();
        if let Some((block, _)) = line.strip_prefix("block").and_then(|l| l.split_once(['(', ':'])) {
            finish(&mut counts, &mut out);
            out.push_str(&format!("\n  block{block}: "));
        } else if !out.is_empty() && !line.is_empty() && line != "}" {
            let inst = line.split_once(" = ").map_or(line, |(_, inst)| inst);
            *counts.entry(inst.split(' ').next().unwrap_or(inst)).or_default() += 1;
        }
    }
    finish(&mut counts, &mut out);
    out.trim_start_matches('\n').to_string() + "\n"
}
