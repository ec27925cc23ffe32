//! Control flow: ops that take graphs as arguments and call them (torch's higher-order ops).
//!
//! ```text
//! cond(p, @then, @else, (x, …))                          then(x, …) if p else else(x, …)
//! while_loop(@test, @body, (c, …), (e, …))               while test(c…, e…): c… = body(c…, e…)
//! scan(@combine, [c, …], [xs, …], (e, …))                c…, y… = combine(c…, xs[i]…, e…), the y stacked
//! map_impl(@f, [xs, …], [e, …])                          f(xs[i]…, e…), stacked
//! associative_scan(@combine, [xs, …], (e, …))            running combine(a…, xs[i]…, e…), stacked
//! ```
//!
//! [`ControlCall`] is the common form of these calls, for types, operands and tensors. [`run_control`] defines what
//! each of them computes, given a function that calls the graphs. The interpreter and the runtime both use it, so they
//! agree.

use crate::tensor::{Tensor, byte_len, is_available};
use crate::types::Val;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The kinds of control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Calls one of two graphs, selected by a bool.
    Cond,
    /// Calls a graph repeatedly while another graph returns true.
    While,
    /// Calls a graph for each row, with values carried from row to row.
    Scan,
    /// Calls a graph for each row.
    Map,
    /// Computes the running results of a binary graph.
    AssociativeScan,
}

/// A control-flow call, with its arguments separated by role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlCall<T> {
    /// The kind.
    pub control: Control,
    /// The graphs, in the order of the arguments.
    pub graphs: Vec<Arc<str>>,
    /// The predicate of [`Control::Cond`].
    pub predicate: Option<Val<T>>,
    /// Values carried from one call to the next; for [`Control::Cond`], the operands.
    pub carried: Vec<Val<T>>,
    /// Tensors to iterate over, along dim 0.
    pub rows: Vec<Val<T>>,
    /// Values passed to every call.
    pub extra: Vec<Val<T>>,
}

impl<T> ControlCall<T> {
    /// All values of the call, in the order of its arguments.
    pub fn values(&self) -> impl Iterator<Item = &Val<T>> {
        self.predicate
            .iter()
            .chain(&self.carried)
            .chain(&self.rows)
            .chain(&self.extra)
    }

    /// The same call with every leaf mapped.
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> ControlCall<U> {
        let mut all = |values: &[Val<T>]| values.iter().map(|v| v.map(&mut f)).collect();
        ControlCall {
            carried: all(&self.carried),
            rows: all(&self.rows),
            extra: all(&self.extra),
            control: self.control,
            graphs: self.graphs.clone(),
            predicate: self.predicate.as_ref().map(|v| v.map(&mut f)),
        }
    }
}

/// An invalid value that is found when control flow runs. torch reports such errors at run time, too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlError(pub String);

impl ControlError {
    fn new(text: impl Into<String>) -> ControlError {
        ControlError(text.into())
    }
}

type ControlResult<T> = Result<T, ControlError>;

/// The items of a result: those of a tuple or list, or the single value.
pub(crate) fn result_items<T: Clone>(v: &Val<T>) -> Vec<Val<T>> {
    match v {
        Val::List(v) | Val::Tuple(v) => v.clone(),
        v => vec![v.clone()],
    }
}

/// The truth value of a bool or of a tensor with one element.
fn truth_value(v: &Val<Tensor>, what: &str) -> ControlResult<bool> {
    match v {
        Val::Bool(b) => Ok(*b),
        Val::Leaf(t) => t
            .item()
            .map(|s| s.to_bool())
            .ok_or_else(|| ControlError::new(format!("{what} must be a single bool, not {}", t.ty()))),
        v => Err(ControlError::new(format!(
            "{what} must be a bool, not {}",
            v.kind_name()
        ))),
    }
}

/// Returns row `i` along dim 0, or a row of zeros if dim 0 has size 0.
fn copy_row(v: &Val<Tensor>, i: usize) -> ControlResult<Val<Tensor>> {
    let Val::Leaf(t) = v else {
        return Err(ControlError::new(format!("cannot iterate over {}", v.kind_name())));
    };
    let [n, shape @ ..] = t.shape() else {
        return Err(ControlError::new("cannot iterate over a 0-d tensor"));
    };
    if !byte_len(t.dtype(), shape).is_some_and(is_available) {
        return Err(ControlError::new("a row is too large"));
    }
    let mut out = Tensor::zeros(t.dtype(), shape);
    if *n == 0 {
        return Ok(Val::Leaf(out));
    }
    if i >= *n {
        return Err(ControlError::new(format!("row {i} is out of range for {n} rows")));
    }
    let size = out.bytes().len();
    out.bytes_mut().copy_from_slice(&t.bytes()[i * size..(i + 1) * size]);
    Ok(Val::Leaf(out))
}

/// Results that are stacked along a new dim 0 as they are produced.
struct Stack {
    rows: usize,
    /// The structure of a result, and the rows of its tensors so far.
    found: Option<(Val<Tensor>, Vec<Tensor>)>,
}

impl Stack {
    /// The number of iterations. Without rows, one iteration on zeros determines the types of the results.
    fn step_count(&self) -> usize {
        self.rows.max(1)
    }

    fn push(&mut self, i: usize, v: &Val<Tensor>) -> ControlResult<()> {
        let n = self.rows;
        if self.found.is_none() {
            let make = |t: &&Tensor| {
                let shape = [&[n], t.shape()].concat();
                let fits = byte_len(t.dtype(), &shape).is_some();
                fits.then(|| Tensor::zeros(t.dtype(), &shape))
                    .ok_or_else(|| ControlError::new("the stacked results are too large"))
            };
            let out = v.leaves().iter().map(make).collect::<ControlResult<Vec<_>>>()?;
            self.found = Some((v.clone(), out));
        }
        let Some((first, out)) = self.found.as_mut().filter(|_| i < n) else {
            return Ok(());
        };
        let leaves = v.leaves();
        if leaves.len() != out.len() || first.leaves().iter().zip(&leaves).any(|(a, b)| a.ty() != b.ty()) {
            return Err(ControlError::new("results of different types cannot be stacked"));
        }
        for (t, out) in leaves.into_iter().zip(out) {
            let size = t.bytes().len();
            out.bytes_mut()[i * size..(i + 1) * size].copy_from_slice(t.bytes());
        }
        Ok(())
    }

    fn finish(self) -> ControlResult<Val<Tensor>> {
        let (v, out) = self
            .found
            .ok_or_else(|| ControlError::new("there are no tensors to iterate over"))?;
        let mut out = out.into_iter();
        let mut next = |_: &Tensor| {
            out.next()
                .map(Val::Leaf)
                .ok_or_else(|| ControlError::new("a result is missing"))
        };
        v.try_map(&mut next)
    }
}

/// Row `i` of each value iterated over.
fn copy_rows(p: &ControlCall<Tensor>, i: usize) -> ControlResult<Vec<Val<Tensor>>> {
    p.rows.iter().map(|x| copy_row(x, i)).collect()
}

/// Computes a control-flow call. `call` calls the graph with index `n`.
pub(crate) fn run_control<E: From<ControlError>>(
    p: &ControlCall<Tensor>,
    call: &mut dyn FnMut(usize, Vec<Val<Tensor>>) -> Result<Val<Tensor>, E>,
) -> Result<Val<Tensor>, E> {
    match p.control {
        Control::Cond => {
            let predicate = p.predicate.as_ref().unwrap_or(&Val::None);
            let yes = truth_value(predicate, "the predicate of `cond`")?;
            call(if yes { 0 } else { 1 }, p.carried.clone())
        }
        Control::While => {
            let mut carried = p.carried.clone();
            loop {
                let inputs = [&carried[..], &p.extra].concat();
                if !truth_value(&call(0, inputs.clone())?, "the test of `while_loop`")? {
                    return Ok(Val::Tuple(carried));
                }
                // The body may write to values that only it has.
                carried.clear();
                carried = result_items(&call(1, inputs)?);
            }
        }
        Control::Scan => run_scan(p, call),
        Control::Map => {
            let mut stack = empty_stack(p)?;
            for i in 0..stack.step_count() {
                let rows = copy_rows(p, i)?;
                stack.push(i, &call(0, [&rows[..], &p.extra].concat())?)?;
            }
            Ok(stack.finish()?)
        }
        Control::AssociativeScan => run_associative_scan(p, call),
    }
}

fn run_associative_scan<E: From<ControlError>>(
    p: &ControlCall<Tensor>,
    call: &mut dyn FnMut(usize, Vec<Val<Tensor>>) -> Result<Val<Tensor>, E>,
) -> Result<Val<Tensor>, E> {
    let mut stack = empty_stack(p)?;
    let mut last: Option<Vec<Val<Tensor>>> = None;
    for i in 0..stack.step_count() {
        let rows = copy_rows(p, i)?;
        let now = match &last {
            None => rows,
            Some(a) => result_items(&call(0, [&a[..], &rows, &p.extra].concat())?),
        };
        stack.push(i, &Val::Tuple(now.clone()))?;
        last = Some(now);
    }
    Ok(stack.finish()?)
}

/// An empty stack for as many results as there are rows.
fn empty_stack(p: &ControlCall<Tensor>) -> ControlResult<Stack> {
    let rows = p.rows.first().and_then(|v| v.as_leaf()?.shape().first().copied());
    let rows = rows.ok_or_else(|| ControlError::new("cannot iterate over a 0-d tensor"))?;
    Ok(Stack { rows, found: None })
}

fn run_scan<E: From<ControlError>>(
    p: &ControlCall<Tensor>,
    call: &mut dyn FnMut(usize, Vec<Val<Tensor>>) -> Result<Val<Tensor>, E>,
) -> Result<Val<Tensor>, E> {
    let mut stack = empty_stack(p)?;
    let mut carried = p.carried.clone();
    for i in 0..stack.step_count() {
        let rows = copy_rows(p, i)?;
        let inputs = [&carried[..], &rows, &p.extra].concat();
        // The graph may write to values that only it has.
        carried.clear();
        let mut out = result_items(&call(0, inputs)?);
        if out.len() < p.carried.len() {
            return Err(ControlError::new("`scan`'s graph returns fewer values than it carries").into());
        }
        let stacked = out.split_off(p.carried.len());
        stack.push(i, &Val::Tuple(stacked))?;
        carried = match stack.rows {
            0 => p.carried.clone(),
            _ => out,
        };
    }
    let stacked = stack.finish()?;
    carried.extend(result_items(&stacked));
    Ok(Val::Tuple(carried))
}
