//! Control flow: ops whose arguments are graphs, which they call (torch's higher-order ops).
//!
//! ```text
//! cond(p, @then, @else, (x, …))                          then(x, …) if p else else(x, …)
//! while_loop(@test, @body, (c, …), (e, …))               while test(c…, e…): c… = body(c…, e…)
//! scan(@combine, [c, …], [xs, …], (e, …))                c…, y… = combine(c…, xs[i]…, e…), the y stacked
//! map_impl(@f, [xs, …], [e, …])                          f(xs[i]…, e…), stacked
//! associative_scan(@combine, [xs, …], (e, …))            running combine(a…, xs[i]…, e…), stacked
//! ```
//!
//! [`parts`] takes a call apart, the same for types, operands and tensors; [`run`] is what all of them compute, given a
//! way to call the graphs, so that the interpreter and the runtime agree.

use super::{Call, OpError, OpResult};
use crate::diag::Code;
use crate::tensor::{Tensor, byte_len, is_available};
use crate::types::Val;
use std::sync::Arc;

/// Which control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// One of two graphs, by a bool.
    Cond,
    /// A graph again and again, as long as another one says so.
    While,
    /// A graph for each row, with values carried from row to row.
    Scan,
    /// A graph for each row.
    Map,
    /// The running result of a graph of two operands.
    AssociativeScan,
}

/// A control-flow call taken apart.
#[derive(Clone, Debug)]
pub struct Parts<T> {
    /// Which.
    pub control: Control,
    /// The graphs, in the order of the arguments.
    pub graphs: Vec<Arc<str>>,
    /// What [`Control::Cond`] decides by.
    pub predicate: Option<Val<T>>,
    /// Values that go from one call to the next; for [`Control::Cond`] the operands.
    pub carried: Vec<Val<T>>,
    /// Tensors whose rows along dim 0 are walked.
    pub rows: Vec<Val<T>>,
    /// Values that every call gets.
    pub extra: Vec<Val<T>>,
}

/// Takes a call apart.
pub fn parts<T: Clone>(call: &Call<T>) -> OpResult<Parts<T>> {
    let control = call
        .op
        .control()
        .ok_or_else(|| OpError::new(Code::E0601, "no control flow"))?;
    let must_be = |name: &str, what: &str| {
        let (op, given) = (call.op.name, call.get(name).kind_name());
        OpError::arg(name, format!("argument `{name}` of `{op}` must be {what}, not {given}"))
    };
    let graph = |name: &str| match call.get(name) {
        Val::Graph(g) => Ok(g.clone()),
        v => {
            // An attribute that no line of the text declares: `print(graph)` shows what reads a graph, not the graph.
            let help = match v {
                Val::Unknown => "print(graph) leaves out the graphs within it; print_readable() holds them",
                _ => "name a graph of the file: `@name`",
            };
            Err(must_be(name, "a graph").help(help))
        }
    };
    let list = |name: &str| match call.get(name) {
        Val::None => Ok(vec![]),
        Val::List(v) | Val::Tuple(v) => Ok(v.clone()),
        _ => Err(must_be(name, "a tuple or list").help("write a tuple: `(%x,)`")),
    };
    let (mut predicate, mut carried, mut rows, mut extra) = (None, vec![], vec![], vec![]);
    let graphs = match control {
        Control::Cond => {
            predicate = Some(call.get("pred").clone());
            carried = list("operands")?;
            vec![graph("true_fn")?, graph("false_fn")?]
        }
        Control::While => {
            (carried, extra) = (list("carried_inputs")?, list("additional_inputs")?);
            vec![graph("cond_fn")?, graph("body_fn")?]
        }
        Control::Scan => {
            (carried, rows, extra) = (list("init")?, list("xs")?, list("additional_inputs")?);
            vec![graph("combine_fn")?]
        }
        Control::Map => {
            (rows, extra) = (list("xs")?, list("pos_args")?);
            vec![graph("f")?]
        }
        Control::AssociativeScan => {
            (rows, extra) = (list("xs")?, list("additional_inputs")?);
            vec![graph("combine_fn")?]
        }
    };
    if rows.is_empty() && matches!(control, Control::Scan | Control::Map | Control::AssociativeScan) {
        return Err(OpError::arg(
            "xs",
            format!("`{}` needs a tensor to walk along", call.op.name),
        ));
    }
    Ok(Parts {
        control,
        graphs,
        predicate,
        carried,
        rows,
        extra,
    })
}

/// The items of a result: those of a tuple or list, or the one value.
pub fn items<T: Clone>(v: &Val<T>) -> Vec<Val<T>> {
    match v {
        Val::List(v) | Val::Tuple(v) => v.clone(),
        v => vec![v.clone()],
    }
}

/// The truth of a tensor of one element or of a bool.
fn truth(v: &Val<Tensor>, what: &str) -> OpResult<bool> {
    match v {
        Val::Bool(b) => Ok(*b),
        Val::Leaf(t) => t
            .item()
            .map(|s| s.to_bool())
            .ok_or_else(|| OpError::value(format!("{what} must be one bool, not {}", t.ty()))),
        v => Err(OpError::value(format!("{what} must be a bool, not {}", v.kind_name()))),
    }
}

/// Row `i` along dim 0; of no rows, one of zeros.
fn row(v: &Val<Tensor>, i: usize) -> OpResult<Val<Tensor>> {
    let Val::Leaf(t) = v else {
        return Err(OpError::value(format!("rows of {} cannot be taken", v.kind_name())));
    };
    let [n, shape @ ..] = t.shape() else {
        return Err(OpError::value("rows of a 0-d tensor cannot be taken"));
    };
    if !byte_len(t.dtype(), shape).is_some_and(is_available) {
        return Err(OpError::value("a row is too large"));
    }
    let mut out = Tensor::zeros(t.dtype(), shape);
    if *n == 0 {
        return Ok(Val::Leaf(out));
    }
    if i >= *n {
        return Err(OpError::value(format!("row {i} is out of range: there are {n}")));
    }
    let size = out.bytes().len();
    out.bytes_mut().copy_from_slice(&t.bytes()[i * size..(i + 1) * size]);
    Ok(Val::Leaf(out))
}

/// Results that are stacked along a new dim 0 as they come.
struct Stack {
    rows: usize,
    /// The structure of a result, and its tensors' rows so far.
    found: Option<(Val<Tensor>, Vec<Tensor>)>,
}

impl Stack {
    /// How many rows are walked: where there are none, one of zeros, which only tells the results' types.
    fn steps(&self) -> usize {
        self.rows.max(1)
    }

    fn push(&mut self, i: usize, v: &Val<Tensor>) -> OpResult<()> {
        let n = self.rows;
        if self.found.is_none() {
            let make = |t: &&Tensor| {
                let shape = [&[n], t.shape()].concat();
                let fits = byte_len(t.dtype(), &shape).is_some();
                fits.then(|| Tensor::zeros(t.dtype(), &shape))
                    .ok_or_else(|| OpError::value("the stacked results are too large"))
            };
            let out = v.leaves().iter().map(make).collect::<OpResult<Vec<_>>>()?;
            self.found = Some((v.clone(), out));
        }
        let Some((first, out)) = self.found.as_mut().filter(|_| i < n) else {
            return Ok(());
        };
        let leaves = v.leaves();
        if leaves.len() != out.len() || first.leaves().iter().zip(&leaves).any(|(a, b)| a.ty() != b.ty()) {
            return Err(OpError::value("results of different types cannot be stacked"));
        }
        for (t, out) in leaves.into_iter().zip(out) {
            let size = t.bytes().len();
            out.bytes_mut()[i * size..(i + 1) * size].copy_from_slice(t.bytes());
        }
        Ok(())
    }

    fn finish(self) -> OpResult<Val<Tensor>> {
        let (v, out) = self
            .found
            .ok_or_else(|| OpError::value("there are no rows to walk along"))?;
        let mut out = out.into_iter();
        let mut next = |_: &Tensor| {
            out.next()
                .map(Val::Leaf)
                .ok_or_else(|| OpError::value("a row is missing"))
        };
        v.try_map(&mut next)
    }
}

/// Computes a control-flow call. `call` calls the `n`th of its graphs.
pub fn run<E: From<OpError>>(
    p: &Parts<Tensor>,
    call: &mut dyn FnMut(usize, Vec<Val<Tensor>>) -> Result<Val<Tensor>, E>,
) -> Result<Val<Tensor>, E> {
    match p.control {
        Control::Cond => {
            let predicate = p.predicate.as_ref().unwrap_or(&Val::None);
            let yes = truth(predicate, "the predicate of `cond`")?;
            call(if yes { 0 } else { 1 }, p.carried.clone())
        }
        Control::While => {
            let mut carried = p.carried.clone();
            loop {
                let inputs = [&carried[..], &p.extra].concat();
                if !truth(&call(0, inputs.clone())?, "the test of `while_loop`")? {
                    return Ok(Val::Tuple(carried));
                }
                carried = items(&call(1, inputs)?);
            }
        }
        Control::Scan => scan(p, call),
        Control::Map => {
            let mut stack = stack(p)?;
            for i in 0..stack.steps() {
                let rows = p.rows.iter().map(|x| row(x, i)).collect::<OpResult<Vec<_>>>()?;
                stack.push(i, &call(0, [&rows[..], &p.extra].concat())?)?;
            }
            Ok(stack.finish()?)
        }
        Control::AssociativeScan => {
            let mut stack = stack(p)?;
            let mut last: Option<Vec<Val<Tensor>>> = None;
            for i in 0..stack.steps() {
                let rows = p.rows.iter().map(|x| row(x, i)).collect::<OpResult<Vec<_>>>()?;
                let now = match &last {
                    None => rows,
                    Some(a) => items(&call(0, [&a[..], &rows, &p.extra].concat())?),
                };
                stack.push(i, &Val::Tuple(now.clone()))?;
                last = Some(now);
            }
            Ok(stack.finish()?)
        }
    }
}

/// An empty stack of as many results as there are rows.
fn stack(p: &Parts<Tensor>) -> OpResult<Stack> {
    let rows = p.rows.first().and_then(|v| v.as_leaf()?.shape().first().copied());
    let rows = rows.ok_or_else(|| OpError::value("rows of a 0-d tensor cannot be taken"))?;
    Ok(Stack { rows, found: None })
}

fn scan<E: From<OpError>>(
    p: &Parts<Tensor>,
    call: &mut dyn FnMut(usize, Vec<Val<Tensor>>) -> Result<Val<Tensor>, E>,
) -> Result<Val<Tensor>, E> {
    let mut stack = stack(p)?;
    let mut carried = p.carried.clone();
    for i in 0..stack.steps() {
        let rows = p.rows.iter().map(|x| row(x, i)).collect::<OpResult<Vec<_>>>()?;
        let mut out = items(&call(0, [&carried[..], &rows, &p.extra].concat())?);
        if out.len() < carried.len() {
            return Err(OpError::value("`scan` gives fewer values than it carries").into());
        }
        let stacked = out.split_off(carried.len());
        stack.push(i, &Val::Tuple(stacked))?;
        if stack.rows > 0 {
            carried = out;
        }
    }
    let stacked = stack.finish()?;
    carried.extend(items(&stacked));
    Ok(Val::Tuple(carried))
}
