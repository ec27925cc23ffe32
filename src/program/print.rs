//! Programs as text.
//!
//! ```text
//! program: 3 steps, 2 kernels, arena 8.0 KiB (12.0 KiB without sharing)
//!   input   b0 x            f32[32, 64]
//!   const   b1 fc.weight    f32[10, 64]
//!   arena   b2 linear       f32[32, 10]   at 0
//!   output  b3 softmax      f32[32, 10]
//! steps:
//!   0  matmul   b2 = b0 · b1[1, 64]    m=32 n=10 k=64
//!   1  kernel   softmax(b2, b3)
//! ```

use super::{Buffer, BufferId, BufferOperand, BufferPlace, Contract, Program, Step};
use crate::control::ControlCall;
use crate::math::contract::{Conv, ConvLayout};
use crate::source::Loc;
use crate::tensor::shown_bytes;
use crate::types::TensorType;
use std::fmt;
use std::sync::Arc;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "program: {} steps, {} kernels, arena {} ({} without sharing)",
            self.steps.len(),
            self.kernels.len(),
            shown_bytes(self.arena),
            shown_bytes(self.naive_arena)
        )?;
        for (i, b) in self.buffers.iter().enumerate() {
            write_buffer(f, i, b)?;
        }
        writeln!(f, "steps:")?;
        for (i, s) in self.steps.iter().enumerate() {
            write!(f, "  {i:<3} ")?;
            self.write_step(f, s)?;
        }
        if let Some(out) = &self.output {
            let names: Vec<String> = out
                .leaves()
                .iter()
                .map(|(b, shape)| format!("b{}{shape:?}", b.0))
                .collect();
            writeln!(f, "results: {}", names.join(", "))?;
        }
        Ok(())
    }
}

fn write_buffer(f: &mut fmt::Formatter<'_>, i: usize, b: &Buffer) -> fmt::Result {
    let ty = TensorType::with_fixed_shape(b.dtype, &b.shape);
    match &b.place {
        BufferPlace::Input(n) => writeln!(f, "  input   b{i} {} {ty}   number {n}", b.name),
        BufferPlace::Constant(_) => writeln!(f, "  const   b{i} {} {ty}", b.name),
        BufferPlace::Arena(offset) => writeln!(f, "  arena   b{i} {} {ty}   at {offset}", b.name),
        BufferPlace::Pieces => writeln!(f, "  pieces  b{i} {} {ty}", b.name),
        BufferPlace::Output(n) => writeln!(f, "  output  b{i} {} {ty}   number {n}", b.name),
    }
}

/// `zoo/nets.py:24 in forward`
fn print_loc(l: &Loc) -> String {
    match &*l.function {
        "" => format!("{}:{}", l.file, l.line),
        f => format!("{}:{} in {f}", l.file, l.line),
    }
}

impl Program {
    /// The Python source locations of the nodes that the step or kernel `name` computes: `zoo/nets.py:24 in forward`.
    /// At most four, separated by commas; empty if none is known.
    pub fn places_of(&self, name: &str) -> String {
        const SHOWN: usize = 4;
        let name = name.split(" [").next().unwrap_or(name);
        if let Some(nodes) = self.nodes_of_kernel(name) {
            let mut locs: Vec<&Loc> = nodes.iter().filter_map(|n| self.places.get(n)).collect();
            locs.sort_by_key(|l| (&l.file, l.line));
            let mut places: Vec<String> = locs.into_iter().map(print_loc).collect();
            places.dedup();
            if let Some(hidden) = places.len().checked_sub(SHOWN).filter(|m| *m > 0) {
                places.truncate(SHOWN);
                places.push(format!("and {hidden} more"));
            }
            if !places.is_empty() {
                return places.join(", ");
            }
        }
        let node_places = self.places_of_nodes(name);
        // A cluster that was split into several kernels gives them suffixes.
        let endings = ["_parts", "_rest", "_total"];
        match endings.iter().find_map(|e| name.strip_suffix(e)) {
            Some(base) if node_places.is_empty() => {
                self.places_of_nodes(base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_'))
            }
            _ => node_places,
        }
    }

    /// The Python source location of one node; empty if it is unknown.
    pub fn place_of_node(&self, node: &str) -> String {
        self.places.get(node).map(print_loc).unwrap_or_default()
    }

    /// The nodes that the kernel of this name computes, including fused ones.
    fn nodes_of_kernel(&self, name: &str) -> Option<&[Arc<str>]> {
        let runs = |s: &Step| matches!(s, Step::Kernel { kernel, .. } if self.kernels.get(*kernel).is_some_and(|k| k.name == name));
        let step = self.steps.iter().position(runs)?;
        self.nodes.get(step).map(Vec::as_slice)
    }

    fn places_of_nodes(&self, name: &str) -> String {
        let mut rest = name;
        let mut out: Vec<String> = vec![];
        // Kernels are named after their nodes: `a_and_b`. The name of a node may contain `_and_` too.
        while !rest.is_empty() {
            let ends = rest.match_indices("_and_").map(|(i, _)| i).chain([rest.len()]);
            let ends: Vec<usize> = ends.collect();
            let known = |end: &&usize| self.places.contains_key(&rest[..**end]);
            let end = ends
                .iter()
                .rev()
                .find(known)
                .or(ends.first())
                .copied()
                .unwrap_or(rest.len());
            if let Some(l) = self.places.get(&rest[..end]) {
                let text = print_loc(l);
                if !out.contains(&text) {
                    out.push(text);
                }
            }
            rest = rest[end..].strip_prefix("_and_").unwrap_or_default();
        }
        out.join(", ")
    }

    fn write_step(&self, f: &mut fmt::Formatter<'_>, s: &Step) -> fmt::Result {
        match s {
            Step::Kernel { kernel, buffers } => {
                let args: Vec<String> = buffers.iter().map(|b| format!("b{}", b.0)).collect();
                writeln!(f, "kernel    {}({})", self.kernels[*kernel].name, args.join(", "))
            }
            Step::Contract { contract, out, tail } => {
                let args: Vec<String> = contract.operands().iter().map(|o| self.print_operand(o)).collect();
                let (name, sizes) = describe_contract(contract);
                let then = tail.as_ref().map_or(String::new(), |t| {
                    let args: Vec<String> = t.buffers.iter().map(|b| format!("b{}", b.0)).collect();
                    format!("   then {}({})", self.kernels[t.kernel].name, args.join(", "))
                });
                writeln!(f, "{name:<9} b{} = ({})   {sizes}{then}", out.0, args.join(", "))
            }
            Step::Routine { call, outs } => {
                let outs: Vec<String> = outs.iter().map(|b| format!("b{}", b.0)).collect();
                let args: Vec<String> = call
                    .args
                    .iter()
                    .flat_map(|a| {
                        a.leaves()
                            .into_iter()
                            .map(|o| self.print_operand(o))
                            .collect::<Vec<_>>()
                    })
                    .collect();
                writeln!(f, "library   {} = {}({})", outs.join(", "), call.op, args.join(", "))
            }
            Step::Control {
                op,
                parts,
                graphs,
                outs,
            } => self.write_control(f, op, parts, graphs, outs),
        }
    }

    /// Prints the programs of a control-flow step below it.
    fn write_control(
        &self,
        f: &mut fmt::Formatter<'_>,
        op: &str,
        parts: &ControlCall<BufferOperand>,
        graphs: &[Program],
        outs: &[BufferId],
    ) -> fmt::Result {
        let outs: Vec<String> = outs.iter().map(|b| format!("b{}", b.0)).collect();
        let args = parts.values().flat_map(|a| a.leaves());
        let args: Vec<String> = args.map(|o| self.print_operand(o)).collect();
        writeln!(f, "control   {} = {}({})", outs.join(", "), op, args.join(", "))?;
        for (g, name) in graphs.iter().zip(&parts.graphs) {
            writeln!(f, "      @{name}")?;
            for line in g.to_string().lines() {
                writeln!(f, "        {line}")?;
            }
        }
        Ok(())
    }

    /// An operand: only the buffer if it is the whole buffer, else with offset and strides.
    fn print_operand(&self, o: &BufferOperand) -> String {
        let whole = crate::tensor::contiguous_strides(&self.buffers[o.buffer.0].shape);
        let same = o.offset == 0
            && o.shape == self.buffers[o.buffer.0].shape
            && whole.iter().zip(&o.strides).all(|(&a, &b)| a as i64 == b);
        if same {
            return format!("b{}", o.buffer.0);
        }
        format!("b{}[{}; {:?} by {:?}]", o.buffer.0, o.offset, o.shape, o.strides)
    }
}

fn describe_contract(contract: &Contract) -> (&'static str, String) {
    match contract {
        Contract::MatMul(d, _) => {
            let (batch, sizes) = (d.batch_size(), format!("m={} n={} k={}", d.m, d.n, d.k));
            ("matmul", format!("batch={batch} {sizes} {:?}", d.activation))
        }
        Contract::Conv(d, _) => ("conv", describe_conv(d)),
        Contract::Expansion(d, _, between) => {
            let [first, second] = [&d.first, &d.second].map(describe_conv);
            ("expansion", format!("{first}, b{}, {second}", between.buffer.0))
        }
        Contract::Recurrent(d, _) => {
            let projected = d.projected.map_or(String::new(), |p| format!(" projected={p}"));
            let sizes = format!("time={} batch={} hidden={}{projected}", d.time, d.batch, d.hidden);
            ("recurrent", format!("{:?} {sizes} reverse={}", d.cell, d.reverse))
        }
        Contract::Grouped(d, _) => {
            let sizes = format!("groups={} rows={} n={} k={}", d.groups, d.rows, d.n, d.k);
            ("grouped", sizes)
        }
        Contract::Attention(d, _) => {
            let batch = format!("batch={} heads={}", d.batch, d.heads);
            let sizes = format!("queries={} keys={} size={}", d.queries, d.keys, d.size);
            let bias = if d.bias.is_some() { " bias" } else { "" };
            let mask = if d.mask.is_some() { " mask" } else { "" };
            ("attention", format!("{batch} {sizes} causal={}{bias}{mask}", d.causal))
        }
    }
}

fn describe_conv(d: &Conv) -> String {
    format!(
        "batch={} channels={}->{} groups={} input={:?} kernel={:?} stride={:?} {:?}{}",
        d.batch,
        d.in_channels,
        d.out_channels,
        d.groups,
        d.input,
        d.kernel,
        d.stride,
        d.activation,
        layout_suffix(d)
    )
}

/// The sides of a convolution that are channels-last.
fn layout_suffix(d: &Conv) -> &'static str {
    let last = |l: ConvLayout| l == ConvLayout::ChannelsLast;
    match (last(d.input_layout), last(d.output_layout)) {
        (false, false) => "",
        (true, true) => " channels last",
        (true, false) => " input channels last",
        (false, true) => " output channels last",
    }
}
