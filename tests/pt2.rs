//! Archives of `torch.export.save` run in the interpreter and give what PyTorch gave.

use fxc::import::read_pt2;
use fxc::interp;
use fxc::tensor::{Tensor, files};
use fxc::types::Val;
use std::collections::HashMap;
use std::path::Path;

fn check(name: &str) {
    let path = |ext: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(format!("{name}.{ext}"))
    };
    let (module, _) = read_pt2(&path("pt2")).expect("the archive is sound");
    let values: HashMap<String, Tensor> = files::read(&path("safetensors"))
        .expect("the values are sound")
        .tensors
        .into_iter()
        .collect();
    let graph = module.entry().expect("an entry");
    let inputs = graph.placeholders().into_iter().map(|n| match graph[n].args().first() {
        Some(default) => default.map(|_| unreachable!("defaults hold no nodes")),
        None => Val::Leaf(values[graph[n].target()].clone()),
    });
    let result = interp::run(&module, inputs.collect()).unwrap_or_else(|d| panic!("{name}: {} {:?}", d.title, d.notes));
    let mut compared = 0;
    for (i, v) in result.flatten().into_iter().enumerate() {
        let Val::Leaf(got) = v else { continue };
        let want = &values[&format!("output.{i}")];
        assert_eq!(got.ty(), want.ty(), "{name}: output {i}");
        let scale = (0..want.numel())
            .map(|k| want.get(k).to_f64().abs())
            .filter(|x| x.is_finite())
            .fold(1.0, f64::max);
        for k in 0..want.numel() {
            let (a, b) = (got.get(k).to_f64(), want.get(k).to_f64());
            assert!(
                a == b || (a - b).abs() <= 1e-5 * scale,
                "{name}: output {i}[{k}]: {a} is not {b}"
            );
        }
        compared += 1;
    }
    let wanted = values.keys().filter(|k| k.starts_with("output.")).count();
    assert_eq!(compared, wanted, "{name}: outputs");
}

#[test]
fn nested_results_with_any_batch() {
    check("mlp");
}

#[test]
fn buffers_that_change() {
    check("buffers");
    check("buffers_core");
}
