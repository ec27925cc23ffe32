//! Autocast: converts the operands of ops in a region with autocast on, by calls inserted before them ([`crate::op::autocast`]).

use super::wrappers::{CONVERSIONS, insert_call};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, Opcode};
use crate::op;
use crate::op::autocast::{Policy, einsum_steps, policy_of};
use crate::types::{DType, Val};
use std::collections::HashMap;

/// Converts the operands of a node as an autocast region does.
pub(super) fn convert_operands(
    module: &GraphModule,
    graph: &mut Graph,
    n: NodeId,
    dtype: DType,
) -> Result<(), Diagnostic> {
    let node = &graph[n];
    if node.op() == Opcode::CallModule {
        return match op::modules::is_guards(node.target()) {
            true => Ok(()),
            false => Err(unknown_conversion_error(graph, n, "a module call")),
        };
    }
    let path = op::canonical_path(node.target(), node.op() == Opcode::CallMethod);
    let policy = policy_of(&path).filter(|_| module.declared_op(&path).is_none());
    let Some(policy) = policy else { return Ok(()) };
    match policy {
        Policy::Lower => convert_all_to(graph, n, dtype),
        Policy::Single => convert_all_to(graph, n, DType::F32),
        Policy::Widest => convert_all(graph, n, |x, all| {
            (CONVERSIONS[1], vec![x, Val::List(all.to_vec()), Val::DType(dtype)])
        }),
        Policy::Einsum => return einsum(graph, n, dtype),
        Policy::Contracted => {
            let dims = contracted_dims(node, &path);
            convert_all(graph, n, |x, all| {
                let args = vec![x, Val::List(all.to_vec()), dims.clone(), Val::DType(dtype)];
                (CONVERSIONS[2], args)
            });
        }
        Policy::Power => return convert_matrix_power(graph, n, dtype),
        Policy::LstmCell => convert_lstm_cell(graph, n, dtype),
        Policy::GruCell => return gru_cell(graph, n, dtype),
        Policy::Pad if is_constant_pad(node) => {}
        Policy::Pad => convert_all_to(graph, n, DType::F32),
        Policy::Mixed => return Err(unknown_conversion_error(graph, n, "a composite op")),
    }
    Ok(())
}

/// The dims that a call of `tensordot` or `inner` contracts: a number of dims, or the dims of the first operand.
fn contracted_dims(node: &Node, path: &str) -> Arg {
    if path.ends_with("inner") || path.contains(".inner.") {
        return Val::None;
    }
    let argument = |name: &str| node.args().get(2).or_else(|| node.kwarg(name)).cloned();
    let dims = argument("dims_self")
        .or_else(|| argument("dims"))
        .unwrap_or(Val::int(2));
    // `dims=([1], [0])` gives the dims of both operands.
    match dims.items() {
        Some([first @ (Val::List(_) | Val::Tuple(_)), _]) => first.clone(),
        _ => dims,
    }
}

/// Converts all operands except the cell state.
fn convert_lstm_cell(graph: &mut Graph, n: NodeId, dtype: DType) {
    let state = graph[n].args().get(1).and_then(|hx| hx.items()?.get(1).cloned());
    convert_all_to(graph, n, dtype);
    let mut args = graph[n].args().to_vec();
    if let (Some(Val::List(hx) | Val::Tuple(hx)), Some(state)) = (args.get_mut(1), state) {
        hx[1] = state;
    }
    graph.set_args(n, args);
}

/// The call that converts `x` to a dtype.
fn to_dtype(x: Arg, dtype: DType) -> (&'static str, Vec<Arg>) {
    (CONVERSIONS[0], vec![x, Val::DType(dtype)])
}

fn convert_all_to(graph: &mut Graph, n: NodeId, dtype: DType) {
    convert_all(graph, n, |x, _| to_dtype(x, dtype));
}

/// Converts each input of a node with a call that `conversion` builds from the input and the list of all inputs.
fn convert_all(graph: &mut Graph, n: NodeId, conversion: impl Fn(Arg, &[Arg]) -> (&'static str, Vec<Arg>)) {
    let all: Vec<Arg> = graph[n].inputs().into_iter().map(Val::Leaf).collect();
    let mut converted: HashMap<NodeId, NodeId> = HashMap::new();
    for i in graph[n].inputs() {
        let (target, args) = conversion(Val::Leaf(i), &all);
        converted.insert(i, insert_call(graph, n, target, args, vec![]));
    }
    // `out` is written to, so it is not converted.
    let out = graph[n].kwarg("out").cloned();
    graph.map_args(n, |i| Val::Leaf(converted.get(&i).copied().unwrap_or(i)));
    if let Some(out) = out {
        graph.update_kwarg(n, "out", out);
    }
}

/// Splits an einsum into the einsums that torch computes it by, and converts the operands of those that are products.
fn einsum(graph: &mut Graph, n: NodeId, dtype: DType) -> Result<(), Diagnostic> {
    let unknown = |graph: &Graph| Err(unknown_conversion_error(graph, n, "an unsupported form of einsum"));
    let (equation, operands, path) = match graph[n].args() {
        [Val::Str(e), Val::List(v) | Val::Tuple(v), path @ ..] => (e.clone(), v.clone(), path.first().cloned()),
        [Val::Str(e), v @ ..] => (e.clone(), v.to_vec(), None),
        _ => return unknown(graph),
    };
    let path = path.or_else(|| graph[n].kwarg("path").cloned());
    let in_order = operands.len() < 3 || path.is_none_or(|p| p.is_none());
    if !in_order || !operands.iter().all(|v| v.as_leaf().is_some()) {
        return unknown(graph);
    }
    // The op reports an invalid equation.
    let Some(steps) = einsum_steps(&equation, operands.len()) else {
        return Ok(());
    };
    let mut values = operands;
    let last = steps.len().saturating_sub(1);
    for (i, step) in steps.into_iter().enumerate() {
        let mut operands: Vec<Arg> = step.operands.iter().map(|&i| values[i].clone()).collect();
        if step.product {
            for x in &mut operands {
                let (target, args) = to_dtype(x.clone(), dtype);
                *x = Val::Leaf(insert_call(graph, n, target, args, vec![]));
            }
        }
        let args = vec![Val::Str(step.equation.into()), Val::List(operands)];
        if i < last {
            values.push(Val::Leaf(insert_call(graph, n, "torch.einsum", args, vec![])));
        } else {
            graph.set_args(n, args);
            graph.set_kwargs(n, vec![]);
        }
    }
    Ok(())
}

/// Converts a matrix power. Powers of 2 and more are products; a negative power is a power of the inverse, which is
/// computed in f32.
fn convert_matrix_power(graph: &mut Graph, n: NodeId, dtype: DType) -> Result<(), Diagnostic> {
    let node = &graph[n];
    let exponent = node.args().get(1).or_else(|| node.kwarg("n")).and_then(Arg::as_int);
    match (exponent, node.args().first()) {
        (Some(0 | 1), _) => {}
        (Some(2..), _) => convert_all_to(graph, n, dtype),
        (Some(-1), _) => convert_all_to(graph, n, DType::F32),
        (Some(e), Some(x)) if e > i64::MIN => {
            let (target, args) = to_dtype(x.clone(), DType::F32);
            let x = insert_call(graph, n, target, args, vec![]);
            let inverse = insert_call(graph, n, "torch.linalg.inv", vec![Val::Leaf(x)], vec![]);
            graph.set_args(n, vec![Val::Leaf(inverse), Val::int(-e)]);
            convert_all_to(graph, n, dtype);
        }
        _ => return Err(unknown_conversion_error(graph, n, "a power with an unknown exponent")),
    }
    Ok(())
}

/// Expands a GRU cell: its products are converted, its state is not.
fn gru_cell(graph: &mut Graph, n: NodeId, dtype: DType) -> Result<(), Diagnostic> {
    let node = &graph[n];
    let argument = |i: usize, name: &str| node.args().get(i).or_else(|| node.kwarg(name)).cloned();
    let names = ["input", "hx", "w_ih", "w_hh", "b_ih", "b_hh"];
    let [x, h, w_ih, w_hh, b_ih, b_hh] = &std::array::from_fn(|i| argument(i, names[i]).unwrap_or(Val::None));
    let mut call = |target: &str, args: Vec<Arg>| Val::Leaf(insert_call(graph, n, target, args, vec![]));
    let mut gates = |x: &Arg, w: &Arg, b: &Arg| {
        let args = [x, w, b].map(|v| match v {
            Val::Leaf(_) => {
                let (target, args) = to_dtype(v.clone(), dtype);
                call(target, args)
            }
            v => v.clone(),
        });
        let all = call("torch.nn.functional.linear", args.to_vec());
        let all = call("torch.chunk", vec![all, Val::int(3), Val::int(-1)]);
        [0, 1, 2].map(|i| call("operator.getitem", vec![all.clone(), Val::int(i)]))
    };
    let ([ri, zi, ni], [rh, zh, nh]) = (gates(x, w_ih, b_ih), gates(h, w_hh, b_hh));
    let mut gate = |a: Arg, b: Arg| {
        let sum = call("operator.add", vec![a, b]);
        call("torch.sigmoid", vec![sum])
    };
    let (r, z) = (gate(rh, ri), gate(zh, zi));
    let reset = call("operator.mul", vec![nh, r]);
    let sum = call("operator.add", vec![ni, reset]);
    let new = call("torch.tanh", vec![sum]);
    let rest = call("operator.sub", vec![h.clone(), new.clone()]);
    let part = call("operator.mul", vec![rest, z]);
    graph.set_target(n, Opcode::CallFunction, "operator.add");
    graph.set_args(n, vec![part, new]);
    graph.set_kwargs(n, vec![]);
    Ok(())
}

fn is_constant_pad(n: &Node) -> bool {
    let mode = n.args().get(2).or_else(|| n.kwarg("mode"));
    match mode {
        None => true,
        Some(Val::Str(mode)) => matches!(&**mode, "constant" | "circular"),
        // `aten.constant_pad_nd` and similar ops have a number there instead of a mode.
        Some(_) => true,
    }
}

fn unknown_conversion_error(graph: &Graph, n: NodeId, problem: &str) -> Diagnostic {
    let title = format!("fxc does not know how autocast handles `{}`", graph[n].target());
    let d = Diagnostic::new(Code::E0201, title).at_opt(graph[n].meta.span, problem.to_string());
    d.note(format!("it is {problem} in a region with autocast enabled"))
        .note(
            "torch's `run_decompositions` keeps this op but loses its autocast region, so the results differ from the model's",
        )
        .help("rewrite the op as `torch.matmul` and pointwise ops in the model, or disable autocast around it")
}
