//! Turns fused tensor IR into a program: clusters become loop nests; contractions and calls become steps.

mod epilogue;

use super::access::resolve_access;
use super::contract;
use super::fuse::cluster::Cluster;
use super::fuse::{Fusion, Unit, UnitId, tail};
use super::ir::{self, Def, Tir, ValueId};
use super::schedule::{self, KnownKernels, Scheduled, Stored};
use super::{LowerError, lower_tir, special};
use crate::diag::{Code, Diagnostic};
use crate::math::contract::Activation;
use crate::op::control::control_parts;
use crate::op::{Call, OpError};
use crate::program::{
    Buffer, BufferId, BufferOperand, BufferPlace, Contract, Program, ProgramInput, RoutineCall, Step, whole_buffer,
};
use crate::types::{DType, Val};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Emits the program of the tensor IR. Its buffers have no offsets in the arena yet.
pub(super) fn emit_program(tir: &Tir, fusion: &Fusion) -> Result<Program, LowerError> {
    let hosts = tail::find_hosts(tir, fusion);
    let mut l = ProgramBuilder {
        tir,
        fusion,
        program: Program::default(),
        buffer_of: vec![None; tir.values.len()],
        parts_of: FxHashMap::default(),
        kernels: FxHashMap::default(),
        known: KnownKernels::default(),
        hosting: hosts.values().map(|h| h.contraction).collect(),
        hosts,
    };
    let inputs = tir.inputs.iter().enumerate();
    l.program.inputs = inputs.map(|(i, (name, v))| l.program_input(i, name, v)).collect();
    for &u in &fusion.order {
        let unit = fusion.units[u.as_u32() as usize].as_ref().expect("ordered units exist");
        l.emit_unit(u, unit)?;
        let names = l.node_names(u, unit);
        l.program.nodes.resize(l.program.steps.len(), names);
    }
    l.explain();
    l.emit_outputs()?;
    l.program.mutations = tir.mutations.clone();
    Ok(l.program)
}

struct ProgramBuilder<'a> {
    tir: &'a Tir,
    fusion: &'a Fusion,
    program: Program,
    buffer_of: Vec<Option<BufferId>>,
    /// The buffers that hold the partial results of split reductions.
    parts_of: FxHashMap<ValueId, BufferId>,
    /// The indices of clusters in [`Program::fusion`].
    kernels: FxHashMap<UnitId, usize>,
    /// The kernels of clusters so far.
    known: KnownKernels,
    /// Clusters that may be fused with a contraction as its tail.
    hosts: FxHashMap<UnitId, tail::Host>,
    /// The contractions of those clusters; each is emitted together with its cluster.
    hosting: FxHashSet<ValueId>,
}

impl ProgramBuilder<'_> {
    fn program_input(&self, i: usize, name: &Arc<str>, v: &Val<ValueId>) -> ProgramInput {
        let ty = v
            .as_leaf()
            .map(|&v| (self.tir.value(v).dtype, self.tir.value(v).shape.clone()));
        ProgramInput {
            name: name.clone(),
            ty,
            state: self.tir.state.get(&i).cloned(),
        }
    }

    /// The buffer of a stored value, created on first use.
    fn buffer(&mut self, v: ValueId) -> BufferId {
        if let Some(b) = self.buffer_of[v.0 as usize] {
            return b;
        }
        let def = self.tir.value(v);
        let place = match &def.def {
            Def::Input(n) => BufferPlace::Input(*n),
            Def::Constant(t) => BufferPlace::Constant(t.clone()),
            _ => BufferPlace::Arena(0),
        };
        let id = BufferId(self.program.buffers.len());
        let buffer = Buffer {
            name: def.name.clone(),
            dtype: def.dtype,
            shape: def.shape.clone(),
            place,
        };
        self.program.buffers.push(buffer);
        self.buffer_of[v.0 as usize] = Some(id);
        id
    }

    /// The buffer of a kernel parameter.
    fn stored_buffer(&mut self, s: Stored) -> BufferId {
        let (value, shape) = match s {
            Stored::Value(v) => return self.buffer(v),
            Stored::Parts { of: value, parts, rows } => (value, vec![parts, rows]),
        };
        if let Some(&b) = self.parts_of.get(&value) {
            return b;
        }
        let def = self.tir.value(value);
        let dtype = match &def.def {
            Def::Reduce { reduction, .. } => reduction.acc,
            _ => def.dtype,
        };
        let id = BufferId(self.program.buffers.len());
        self.program.buffers.push(Buffer {
            name: format!("{}_parts", def.name).into(),
            dtype,
            shape,
            place: BufferPlace::Arena(0),
        });
        self.parts_of.insert(value, id);
        id
    }

    fn operand(&mut self, v: ValueId) -> BufferOperand {
        let stored = |v: ValueId| self.fusion.stored[v.0 as usize];
        let a = resolve_access(self.tir, v, &stored).expect("views have strides, see Tir::view");
        let buffer = self.buffer(a.base);
        BufferOperand {
            buffer,
            offset: a.offset,
            shape: self.tir.value(v).shape.clone(),
            strides: a.strides,
        }
    }

    fn emit_unit(&mut self, id: UnitId, unit: &Unit) -> Result<(), LowerError> {
        let stored = |v: ValueId| self.fusion.stored[v.0 as usize];
        match unit {
            Unit::Cluster(c) => self.emit_cluster(id, c),
            // Emitted together with its tail.
            Unit::Value(v) if self.hosting.contains(v) => Ok(()),
            &Unit::Value(v) => match &self.tir.value(v).def {
                _ if self.tir.value(v).numel() == 0 => {
                    self.buffer(v);
                    Ok(())
                }
                def @ (Def::Contract { args, .. }
                | Def::Special {
                    args,
                    special: ir::Special::Attention(_) | ir::Special::Recurrent { .. } | ir::Special::Grouped(_),
                }) => self.emit_contract(v, def, args),
                _ => {
                    let s = special::kernels::write_kernel(self.tir, v, &stored);
                    self.emit_kernel(s.map_err(|e| internal_error(&self.tir.value(v).name, &e.to_string()))?)
                }
            },
            &Unit::Call(i) => {
                let c = &self.tir.calls[i];
                let call = c.call.map(|&v| self.operand(v));
                let outs = c.results.iter().map(|&v| self.buffer(v)).collect();
                let step = call_step(call, &c.graphs, outs)?;
                self.program.steps.push(step);
                Ok(())
            }
        }
    }

    /// Emits the kernels of a cluster. One that can follow a contraction becomes its tail.
    fn emit_cluster(&mut self, id: UnitId, c: &Cluster) -> Result<(), LowerError> {
        let stored = |v: ValueId| self.fusion.stored[v.0 as usize];
        let unneeded = |v: ValueId| !stored(v) || self.tir.value(v).numel() == 0;
        if c.members.iter().all(|m| unneeded(m.value)) {
            // Dead, or empty results.
            for m in c.members.iter().filter(|m| stored(m.value)) {
                self.buffer(m.value);
            }
            return Ok(());
        }
        let name = self.kernel_name(c.members.iter().map(|m| m.value));
        // Products of bf16 convert their results by the same instruction.
        let flushes = |h: &tail::Host| self.tir.value(h.contraction).dtype == DType::BF16;
        let flushes = self.hosts.get(&id).is_some_and(flushes);
        let s = schedule::schedule(self.tir, self.fusion, c, &name, flushes, &mut self.known);
        let mut s = s.map_err(|e| internal_error(&name, &e.to_string()))?;
        self.kernels.insert(id, self.program.fusion.kernels.len());
        if !self.tir.skips_report {
            self.program.fusion.add_kernel(self.tir, self.fusion, c, &name, &s);
        }
        match self.hosts.get(&id) {
            Some(&host) if s.len() == 1 => self.after_contraction(host, s.remove(0)),
            _ => s.into_iter().try_for_each(|s| self.emit_kernel(s)),
        }
    }

    /// Reports which values fusion did not join, and why.
    fn explain(&mut self) {
        if self.tir.skips_report {
            return;
        }
        let report = &mut self.program.fusion;
        report.add_notes(self.tir, self.fusion, &self.kernels);
        for (contraction, kernel, reason) in tail::refused_tails(self.tir, self.fusion, &self.hosts) {
            let [a, b] = [contraction, kernel].map(|v| &*self.tir.value(v).name);
            report.note_apart(a, b, reason);
        }
    }

    /// The names of the nodes that a unit computes.
    fn node_names(&self, id: UnitId, unit: &Unit) -> Vec<Arc<str>> {
        let mut values: Vec<ValueId> = match unit {
            Unit::Cluster(c) => c.members.iter().map(|m| m.value).collect(),
            Unit::Value(v) => vec![*v],
            &Unit::Call(i) => self.tir.calls[i].results.clone(),
        };
        values.extend(self.hosts.get(&id).map(|h| h.contraction));
        let activated = values.iter().filter_map(|v| self.fusion.activated.get(v).copied());
        values.extend(activated.collect::<Vec<_>>());
        let mut names: Vec<Arc<str>> = values.into_iter().map(|v| self.tir.value(v).name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn emit_contract(&mut self, v: ValueId, def: &Def, args: &[ValueId]) -> Result<(), LowerError> {
        let operands: Vec<BufferOperand> = args.iter().map(|&a| self.operand(a)).collect();
        let (dtype, shape) = (self.tir.value(v).dtype, self.tir.value(v).shape.clone());
        let last = self.tir.channels_last.get(&v).copied().unwrap_or_default();
        let (result, act) = match self.fusion.activated.get(&v) {
            Some(&r) => {
                let [a, b] = [v, r].map(|v| &*self.tir.value(v).name);
                self.program
                    .fusion
                    .note_together(a, b, "epilogue in registers, before the result is stored");
                (r, self.tir.activations[&r])
            }
            None => (v, Activation::None),
        };
        let mut contract = contract::contraction_step(def, &operands, dtype, &shape, act, last)?;
        contract::set_byte_input(&mut contract, contract::byte_input(self.tir, v));
        if let Contract::MatMul(desc, o) = &mut contract
            && let Some(b) = whole_buffer(&o[1])
            && let BufferPlace::Constant(t) = &self.program.buffers[b.0].place
        {
            desc.quantized = contract::quantized_group(desc, t);
        }
        contract::mark_exact_factors(self.tir, def, args, &mut contract);
        let out = self.buffer(result);
        self.program.steps.push(Step::Contract {
            contract,
            out,
            tail: None,
        });
        Ok(())
    }

    /// The name of a kernel, made of the node names of its stored values.
    fn kernel_name(&self, values: impl Iterator<Item = ValueId>) -> String {
        let mut names: Vec<&str> = vec![];
        for v in values.filter(|v| self.fusion.stored[v.0 as usize]) {
            let n = &*self.tir.value(v).name;
            if !names.contains(&n) {
                names.push(n);
            }
        }
        names.truncate(4);
        names.join("_and_")
    }

    fn emit_kernel(&mut self, s: Scheduled) -> Result<(), LowerError> {
        let buffers = s.buffers.iter().map(|&v| self.stored_buffer(v)).collect();
        self.program.kernels.push(s.kernel);
        let kernel = self.program.kernels.len() - 1;
        self.program.steps.push(Step::Kernel { kernel, buffers });
        Ok(())
    }
}

/// The step of a call that has no kernel: a control-flow step if it calls graphs.
fn call_step(call: Call<BufferOperand>, graphs: &[Tir], outs: Vec<BufferId>) -> Result<Step, LowerError> {
    let op: Arc<str> = call.op.name.into();
    if graphs.is_empty() {
        let call = RoutineCall {
            op,
            updates: call.op.facts.updates,
            args: call.args,
        };
        return Ok(Step::Routine { call, outs });
    }
    let graphs = graphs.iter().cloned().map(lower_tir).collect::<Result<_, _>>()?;
    let parts = control_parts(&call)?;
    Ok(Step::Control {
        op,
        parts,
        graphs,
        outs,
    })
}

fn internal_error(name: &str, problem: &str) -> LowerError {
    let d = Diagnostic::new(
        Code::E0602,
        format!("the kernel of `{name}` failed verification: {problem}"),
    );
    d.help("this is a bug in fxc; please report it with the graph, and run the graph with --interpret meanwhile")
        .into()
}

impl ProgramBuilder<'_> {
    fn emit_outputs(&mut self) -> Result<(), LowerError> {
        let Some(output) = &self.tir.output else {
            return Err(OpError::refused("the graph has no output").into());
        };
        let stored = |v: ValueId| self.fusion.stored[v.0 as usize];
        let result = output.map(|&v| {
            let a = resolve_access(self.tir, v, &stored).expect("results have buffers");
            (v, a.base)
        });
        let bases: Vec<ValueId> = result.leaves().iter().map(|(_, b)| *b).collect();
        let mut n = 0;
        for b in bases {
            let id = self.buffer(b);
            let place = &mut self.program.buffers[id.0].place;
            // Results that are inputs or constants have memory already.
            if matches!(place, BufferPlace::Arena(_)) {
                *place = BufferPlace::Output(n);
                n += 1;
            }
        }
        self.program.outputs = n;
        self.program.output = Some(result.map(|&(v, b)| (self.buffer(b), self.tir.value(v).shape.clone())));
        Ok(())
    }
}
