//! The examples of docs/ops.md: each is a call of its op, and runs.

use fxc::diag::Code;
use fxc::internals::driver::Session;
use fxc::internals::op::{self, examples};
use fxc::internals::tensor::Tensor;
use fxc::interp;
use fxc::types::{Type, Val};
use std::collections::BTreeSet;

/// A tensor of ones of a type.
fn ones(ty: &Type) -> Option<Val<Tensor>> {
    let t = ty.as_leaf()?;
    let one = Tensor::scalar(1f32).to(t.dtype).get(0);
    Some(Val::Leaf(Tensor::from_fn(t.dtype, &t.fixed_shape()?, |_| one)))
}

/// What is wrong with an example, if anything. Ones are not inputs of every op: an error of values is none of the example's.
fn wrong(name: &str, text: &str) -> Option<String> {
    let mut session = Session::new();
    let Ok(mut model) = session.load_text("example", text) else {
        return Some("it does not read".into());
    };
    let mut called = BTreeSet::new();
    super::covered::add_text(text, &mut called);
    if !called.contains(name) {
        return Some(format!("it calls {called:?}"));
    }
    if session.check(&mut model.module, &[]).is_err() {
        return Some("it does not check".into());
    }
    let graph = model.module.entry()?;
    let types = graph
        .placeholders()
        .into_iter()
        .map(|n| graph[n].meta.ty.clone().unwrap_or(Val::Unknown));
    let Some(inputs) = types.map(|t| ones(&t)).collect::<Option<Vec<_>>>() else {
        return Some("its inputs have no type".into());
    };
    match interp::run(&model.module, inputs) {
        Err(e) if e.code != Code::E0502 => Some(e.title),
        _ => None,
    }
}

#[test]
fn every_example_calls_its_op_and_runs() {
    let found: Vec<(&str, String)> = examples::all_examples().collect();
    assert!(found.len() > 600, "{} examples", found.len());
    let bad: Vec<String> = found
        .iter()
        .filter_map(|(name, text)| wrong(name, text).map(|what| format!("{name}: {what}\n{text}")))
        .collect();
    assert!(bad.is_empty(), "{} examples:\n{}", bad.len(), bad.join("\n"));
    for (name, _) in &found {
        assert!(op::by_name(name).is_some(), "an example of no op: {name}");
    }
}
