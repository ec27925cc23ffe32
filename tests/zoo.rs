//! Whole models against PyTorch's answers, interpreted, before and after optimisation.
//!
//! The models are not in the repository. `FXC_ZOO` names a folder with one folder a model, each with `export.pt2` and
//! `core.pt2` (`torch.export.save` before and after `run_decompositions()`), `inputs.safetensors` (named after the
//! placeholders) and `expected.safetensors` (`output.0`, `output.1`, …). Without it the test says that it checks nothing.
//! `FXC_ZOO_MODEL` runs the models whose names hold it.

use fxc::diag::Diagnostics;
use fxc::graph::{GraphModule, lint};
use fxc::infer::{InferOptions, infer_sizes, is_value};
use fxc::internals::import::read_pt2;
use fxc::internals::tensor::{Tensor, files};
use fxc::interp::{Interpreter, RuntimeValue};
use fxc::pass::{PassOptions, optimize};
use fxc::types::Val;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The difference that a float result may have, relative to its greatest magnitude.
const TOLERANCE: f64 = 1e-5;

#[test]
fn models_agree_with_pytorch() {
    let Some(zoo) = std::env::var_os("FXC_ZOO").map(PathBuf::from) else {
        eprintln!("SKIPPED: FXC_ZOO is not set; no model was compared");
        return;
    };
    let only = std::env::var("FXC_ZOO_MODEL").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&zoo)
        .unwrap_or_else(|e| panic!("{}: {e}", zoo.display()))
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.to_string_lossy().contains(&only))
        .collect();
    folders.sort();
    let mut failed = 0;
    for folder in folders {
        for archive in ["export.pt2", "core.pt2"] {
            let path = folder.join(archive);
            if !path.exists() {
                continue;
            }
            let name = format!("{} {archive}", folder.file_name().unwrap_or_default().to_string_lossy());
            match check(&folder, &path) {
                Ok(line) => eprintln!("{name:36} {line}"),
                Err(e) => {
                    failed += 1;
                    eprintln!("{name:36} FAILED {e}");
                }
            }
        }
    }
    assert_eq!(failed, 0, "{failed} archives do not agree");
}

fn errors(d: &Diagnostics) -> Result<(), String> {
    let lines: Vec<String> = d
        .iter()
        .filter(|d| d.is_error())
        .take(5)
        .map(|d| format!("{} {} {:?}", d.code, d.title, d.notes))
        .collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(lines.join("; "))
    }
}

fn check(folder: &Path, archive: &Path) -> Result<String, String> {
    let (mut module, d) = read_pt2(archive).map_err(|d| errors(&d).unwrap_err())?;
    errors(&d)?;
    errors(&lint(&module))?;
    let given = files::read(&folder.join("inputs.safetensors")).map_err(|e| e.to_string())?;
    let graph = module.entry().ok_or("no graph")?;
    let inputs: Vec<RuntimeValue> = graph
        .placeholders()
        .iter()
        .map(|&p| {
            let name = graph[p].target();
            let found = given.tensors.get(name).or(given.tensors.get(graph[p].name()));
            // Python values that were inputs when the model was exported are part of its types.
            let constant = || {
                let ty = graph[p].meta.ty.as_ref().filter(|t| is_value(t))?;
                Some(ty.map(|_| unreachable!("a value holds no tensors")))
            };
            found
                .cloned()
                .map(Val::Leaf)
                .or_else(constant)
                .ok_or(format!("no input {name}"))
        })
        .collect::<Result<_, _>>()?;
    let types = inputs.iter().map(|v: &RuntimeValue| v.map(Tensor::ty)).collect();
    errors(&infer_sizes(&mut module, &InferOptions::for_inputs(types)).diagnostics)?;
    let (plain, plain_ms) = compare(&module, &inputs, folder)?;
    let before = module.entry().map_or(0, |g| g.len());
    let mut options = PassOptions::default();
    options.verify_each = true;
    let start = Instant::now();
    optimize(&mut module, &options).map_err(|d| errors(&d).unwrap_err())?;
    let pass_ms = start.elapsed().as_secs_f64() * 1e3;
    let after = module.entry().map_or(0, |g| g.len());
    let (optimized, optimized_ms) = compare(&module, &inputs, folder).map_err(|e| format!("optimised: {e}"))?;
    Ok(format!(
        "{plain:.1e} in {plain_ms:.0} ms; optimised {optimized:.1e} in {optimized_ms:.0} ms; {before} -> {after} nodes in \
         {pass_ms:.0} ms"
    ))
}

/// The greatest difference from what is expected, and the milliseconds that the run took.
fn compare(module: &GraphModule, inputs: &[RuntimeValue], folder: &Path) -> Result<(f64, f64), String> {
    let expected = files::read(&folder.join("expected.safetensors")).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let result = Interpreter::new(module)
        .run(inputs.to_vec())
        .map_err(|d| format!("{} {} {:?}", d.code, d.title, d.notes))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let lead = module.entry().map_or(0, |g| g.mutations.len());
    let results: Vec<&RuntimeValue> = result.flatten().into_iter().skip(lead).collect();
    let tensors: Vec<&Tensor> = results.iter().filter_map(|v| v.as_leaf()).collect();
    if tensors.len() != expected.tensors.len() {
        return Err(format!(
            "{} results instead of {}",
            tensors.len(),
            expected.tensors.len()
        ));
    }
    let mut worst = 0.0f64;
    for (i, got) in tensors.iter().enumerate() {
        let name = format!("output.{i}");
        let want = expected.tensors.get(&name).ok_or(format!("{name} is not expected"))?;
        worst = worst.max(difference(got, want).ok_or(format!("{name} is {} instead of {}", got.ty(), want.ty()))?);
    }
    if worst > TOLERANCE {
        return Err(format!("differs by {worst:.1e} of the greatest magnitude"));
    }
    Ok((worst, ms))
}

/// The greatest difference of two tensors of one type, relative to the greatest magnitude; infinite for integers that differ.
fn difference(got: &Tensor, want: &Tensor) -> Option<f64> {
    if got.ty() != want.ty() {
        return None;
    }
    let (mut most, mut scale) = (0.0f64, 1e-30f64);
    for i in 0..want.numel() {
        let (g, w) = (got.get(i), want.get(i));
        if !want.dtype().is_float() {
            most = if g == w { most } else { f64::INFINITY };
            continue;
        }
        let (g, w) = (g.to_f64(), w.to_f64());
        if w.is_finite() {
            scale = scale.max(w.abs());
        }
        if g != w && !(g.is_nan() && w.is_nan()) {
            most = most.max(if (g - w).is_nan() { f64::INFINITY } else { (g - w).abs() });
        }
    }
    Some(most / scale)
}
