//! Archives of `torch.export.save` run interpreted and compiled, and give what PyTorch gave.

use fxc::graph::GraphModule;
use fxc::internals::driver::{Given, LoadedModel, Provided, Request, Session, Value, bind, compile, run};
use fxc::internals::import::read_pt2;
use fxc::internals::op::random;
use fxc::internals::tensor::{Tensor, files};
use fxc::interp;
use fxc::types::Val;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Held while random numbers are drawn: the stream is the process's, and tests run side by side.
static STREAM: Mutex<()> = Mutex::new(());

fn check(name: &str) {
    check_with(name, "");
}

/// [`check`] of an archive to whose text graphs are added.
fn check_with(name: &str, graphs: &str) {
    let _alone = STREAM.lock().unwrap_or_else(PoisonError::into_inner);
    let path = |ext: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(format!("{name}.{ext}"))
    };
    let (mut module, _) = read_pt2(&path("pt2")).expect("the archive is sound");
    if !graphs.is_empty() {
        let both = format!("{graphs}\n{}", fxc::graph::print(&module));
        let Ok(model) = Session::new().load_text(name, &both) else {
            panic!("{name}: the graphs cannot be read")
        };
        let stored = std::mem::replace(&mut module, model.module).attributes;
        for (path, attribute) in stored {
            module.attributes.insert(path, attribute);
        }
    }
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
    let inputs: Vec<Value> = inputs.collect();
    random::seed(7);
    let result = interp::run(&module, inputs.clone()).unwrap_or_else(|d| panic!("{name}: {} {:?}", d.title, d.notes));
    compare(name, &result, &values);
    random::seed(7);
    compare(name, &compiled(name, module, inputs), &values);
}

fn compiled(name: &str, module: GraphModule, values: Vec<Value>) -> Value {
    let mut session = Session::new();
    let graph = module.entry().expect("an entry");
    let given = graph.placeholders().into_iter().zip(values).map(|(n, v)| Provided {
        name: graph[n].target().into(),
        given: Given::Value(v),
        origin: "the fixture".into(),
        must_match: true,
    });
    let (bound, found) = bind::bind_inputs(&module, given.collect(), Default::default());
    let bound = bound.unwrap_or_else(|| panic!("{name}: {found:?}"));
    let request = Request {
        inputs: Some(bound.types.clone()),
        dims: bound.dims.clone(),
        threads: 1,
        ..Request::default()
    };
    let Ok(mut made) = compile(&mut session, LoadedModel::new(name, module), &request) else {
        panic!("{name}: {:?}", session.diagnostics)
    };
    let result = made
        .run(&bound)
        .unwrap_or_else(|d| panic!("{name}: {} {:?}", d.title, d.notes));
    run::user_result(made.module.entry().expect("an entry"), result)
}

fn compare(name: &str, result: &Value, values: &HashMap<String, Tensor>) {
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

#[test]
fn sizes_computed_from_sizes() {
    check("branches");
}

#[test]
fn graphs_that_graphs_call() {
    check("control");
    check("control_core");
}

#[test]
fn regions_of_a_graph() {
    check("wrapped");
}

#[test]
fn regions_with_autocast_on() {
    check("autocast");
}

#[test]
fn wide_unsigned_integers() {
    check("unsigned");
}

#[test]
fn weights_of_python_classes() {
    check("subclasses");
}

/// What the custom ops of `make_pt2.py` do.
const MUTATING: &str = "
graph mylib.accum {
    %x = placeholder x
    %out = placeholder out
    %scale = placeholder scale = 2.0
    %scaled = call_function torch.ops.aten.mul.Tensor(%x, %scale)
    %written = call_function torch.ops.aten.add_.Tensor(%out, %scaled)
    output None
}

graph mylib.swap_sum {
    %a = placeholder a
    %b = placeholder b
    %kept = call_function torch.ops.aten.clone.default(%a)
    %first = call_function torch.ops.aten.copy_.default(%a, %b)
    %second = call_function torch.ops.aten.copy_.default(%b, %kept)
    %sum = call_function torch.ops.aten.add.Tensor(%a, %b)
    output %sum
}
";

#[test]
fn custom_ops_that_write_to_their_arguments() {
    check_with("mutating", MUTATING);
    check_with("mutating_core", MUTATING);
}

#[test]
fn random_numbers_in_their_order() {
    check("random");
}

#[test]
fn modules_that_drop_elements_in_training() {
    check("dropping");
}
