//! Control flow: each graph that is called becomes tensor IR of its own, for the types it is called with.

use super::GraphReader;
use crate::control::{Control, ControlCall, result_items};
use crate::diag::Code;
use crate::graph::{NodeId, Opcode};
use crate::lower::LowerError;
use crate::lower::ir::{Def, Tir, TirRoutineCall, ValueId};
use crate::op::control::control_parts;
use crate::op::{Call, OpError, OpResult, Traced};
use crate::types::{TensorType, Type, Val};

/// The maximal nesting depth of graphs that call graphs.
const MAX_DEPTH: usize = 64;

impl GraphReader<'_> {
    /// Adds to an error in a graph that node `n` calls it.
    pub(in crate::lower) fn note_caller(&self, n: NodeId, e: LowerError) -> LowerError {
        let node = &self.graph[n];
        e.with_place(|d| match d.labels.first() {
            Some(_) => d.note(format!("called by `%{}`", node.name())),
            None => d.at_opt(node.meta.span, "while compiling this"),
        })
    }

    /// Lowers a control-flow call: creates tensor IR for its graphs, and values for the tensors of its result.
    pub(in crate::lower) fn read_control(&mut self, call: &Call<Traced>) -> Result<Val<ValueId>, LowerError> {
        if self.depth >= MAX_DEPTH {
            let title = format!("graph calls are nested more than {MAX_DEPTH} deep");
            return Err(OpError::refused(title).into());
        }
        let types = call.map(|t| t.ty.clone());
        let p = control_parts(&types)?;
        let mut graphs = vec![];
        for (i, name) in p.graphs.iter().enumerate() {
            let inputs = graph_inputs(&p, i)?;
            let Some(graph) = self.module.graphs.get(name) else {
                return Err(OpError::new(Code::E0110, format!("unknown graph `{name}`")).into());
            };
            if !graph.mutations.is_empty() {
                let title =
                    format!("`{name}` writes to its inputs or to buffers, which is not allowed in a called graph");
                return Err(OpError::refused(title).help("return the new values instead").into());
            }
            let written = |n: NodeId| {
                let entry = self.module.entry();
                graph[n].op() == Opcode::GetAttr && entry.is_some_and(|e| e.writes_buffer(graph[n].target()))
            };
            if let Some(n) = graph.iter().find(|&n| written(n)) {
                let title = format!(
                    "`{name}` reads the buffer `{}`, which its caller modifies",
                    graph[n].target()
                );
                let help = "pass the buffer's value as an operand";
                return Err(OpError::refused(title).help(help).into());
            }
            graphs.push(Tir::read_for(
                self.module,
                graph,
                self.binding,
                &inputs,
                self.depth + 1,
            )?);
        }
        let ty = control_result_type(&p, &graphs)?;
        Ok(self.tir.push_control(call, graphs, &ty)?)
    }
}

impl Tir {
    fn push_control(&mut self, call: &Call<Traced>, graphs: Vec<Tir>, ty: &Type) -> OpResult<Val<ValueId>> {
        let index = self.calls.len();
        let mut results = vec![];
        let out = ty.try_map(&mut |t: &TensorType| {
            let shape = t
                .fixed_shape()
                .ok_or_else(|| OpError::shape(format!("the size of {t} is unknown")))?;
            let def = Def::Routine {
                call: index,
                result: results.len(),
            };
            let v = self.push(t.dtype, &shape, def)?;
            results.push(v);
            Ok(Val::Leaf(v))
        })?;
        self.add_call(TirRoutineCall {
            call: call.map(|t| ValueId(t.id)),
            results,
            graphs,
        })?;
        Ok(out)
    }
}

/// The types that graph `i` is called with.
fn graph_inputs(p: &ControlCall<TensorType>, i: usize) -> OpResult<Vec<Type>> {
    let rows = p.rows.iter().map(row_type).collect::<OpResult<Vec<_>>>()?;
    let number = |v: &Type| !matches!(v, Val::Leaf(_) | Val::None);
    if matches!(p.control, Control::While | Control::Scan) && p.carried.iter().any(number) {
        let title = "the value of a carried number is only known at run time";
        let e = OpError::refused(title);
        return Err(e.help("carry a 0-d tensor instead, or run it with --interpret"));
    }
    Ok(match p.control {
        Control::Cond => p.carried.clone(),
        Control::While => [&p.carried[..], &p.extra].concat(),
        Control::Scan => [&p.carried[..], &rows, &p.extra].concat(),
        Control::Map => [&rows[..], &p.extra].concat(),
        Control::AssociativeScan => [&rows[..], &rows, &p.extra].concat(),
    })
    .inspect(|v: &Vec<Type>| debug_assert!(i < p.graphs.len() && v.len() >= p.rows.len()))
}

fn row_type(v: &Type) -> OpResult<Type> {
    match v.as_leaf().and_then(|t| Some((t.dtype, t.fixed_shape()?))) {
        Some((dtype, shape)) if !shape.is_empty() => Ok(Val::Leaf(TensorType::with_fixed_shape(dtype, &shape[1..]))),
        _ => Err(OpError::shape(format!("cannot iterate over {v}"))),
    }
}

/// The type of a graph's result.
fn result_of(tir: &Tir) -> Type {
    let Some(out) = &tir.output else { return Val::None };
    out.map(|&v| TensorType::with_fixed_shape(tir.value(v).dtype, &tir.value(v).shape))
}

/// The type of the call's result, from the results of its graphs.
fn control_result_type(p: &ControlCall<TensorType>, graphs: &[Tir]) -> OpResult<Type> {
    let first = result_of(&graphs[0]);
    let differ = |a: &Type, b: &Type| {
        let graph = &p.graphs[graphs.len() - 1];
        OpError::new(Code::E0302, format!("`{graph}` returns {b}, but {a} is expected"))
    };
    let carried = |results: &[Type]| match results == p.carried {
        true => Ok(()),
        false => Err(differ(&Val::Tuple(p.carried.clone()), &Val::Tuple(results.to_vec()))),
    };
    let rows = p.rows.first().and_then(|t| t.as_leaf()?.fixed_shape());
    let count = rows.and_then(|shape| shape.first().copied()).unwrap_or(0);
    let stacked = |v: &Type| {
        v.map(|t| TensorType::with_fixed_shape(t.dtype, &[&[count], &t.fixed_shape().unwrap_or_default()[..]].concat()))
    };
    Ok(match p.control {
        Control::Cond => {
            let second = result_of(&graphs[1]);
            if result_items(&first) != result_items(&second) {
                return Err(differ(&first, &second));
            }
            first
        }
        Control::While => {
            carried(&result_items(&result_of(&graphs[1])))?;
            Val::Tuple(p.carried.clone())
        }
        Control::Scan => {
            let mut out = result_items(&first);
            let rest = out.split_off(p.carried.len().min(out.len()));
            carried(&out)?;
            out.extend(rest.iter().map(stacked));
            Val::Tuple(out)
        }
        Control::Map => stacked(&first),
        Control::AssociativeScan => Val::Tuple(p.rows.clone()),
    })
}
