//! Prints tensor IR as text.

use crate::lower::ir::{Def, Groups, ScanOp, SpatialWindow, Special, Tir, ValueId};
use crate::math::contract::{Activation, Grouping};
use crate::op::{AffineIndex, Combine, Contraction, IndexMap, Reduction, SoftmaxPart};
use crate::scalar::text::print_constant;
use crate::types::{TensorType, pyrepr, write_float};
use std::collections::HashMap;
use std::fmt::{self, Write};

impl fmt::Display for Tir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = value_names(self);
        let name = |v: &ValueId| names[v.0 as usize].clone();
        for (i, value) in self.values.iter().enumerate() {
            let v = ValueId(i as u32);
            let ty = TensorType::with_fixed_shape(value.dtype, &value.shape);
            write!(f, "{}: {ty} = {}", name(&v), print_definition(self, v, &name))?;
            writeln!(f, "{}", side_tables(self, v))?;
        }
        for (i, call) in self.calls.iter().enumerate() {
            let args: Vec<String> = call.call.args.iter().map(|a| pyrepr::repr(a, &name)).collect();
            writeln!(f, "call {i}: {}({})", call.call.op.name, args.join(", "))?;
            for graph in &call.graphs {
                let text = graph.to_string();
                text.lines().try_for_each(|line| writeln!(f, "    {line}"))?;
            }
        }
        match &self.output {
            Some(output) => writeln!(f, "return {}", pyrepr::repr(output, &name)),
            None => Ok(()),
        }
    }
}

/// The names of all values: those of their nodes, with a number from a node's second value on.
fn value_names(tir: &Tir) -> Vec<String> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    let name = |node: &'_ str, n: usize| match n {
        0 => format!("%{node}"),
        n => format!("%{node}#{n}"),
    };
    let mut out = vec![];
    for value in &tir.values {
        let n = count.entry(&value.name).or_default();
        out.push(name(&value.name, *n));
        *n += 1;
    }
    out
}

fn print_definition(tir: &Tir, v: ValueId, name: &dyn Fn(&ValueId) -> String) -> String {
    let call = |head: &str, args: &[ValueId]| {
        let args: Vec<String> = args.iter().map(name).collect();
        format!("{head}({})", args.join(", "))
    };
    match &tir.value(v).def {
        Def::Input(n) => format!("input {n}"),
        Def::Constant(_) => "constant".into(),
        Def::Pointwise { expr, args } => format!("{} {{ {expr} }}", call("map", args)),
        Def::Reduce { arg, dims, reduction } => {
            format!(
                "{} dims={dims:?}{}",
                call(combine_name(reduction.combine), &[*arg]),
                print_pre_and_post(reduction)
            )
        }
        Def::View { arg, map } => match map {
            IndexMap::Reshape => call("reshape", &[*arg]),
            IndexMap::Affine(affines) => {
                let affines: Vec<String> = affines.iter().map(print_affine).collect();
                format!("{} at=[{}]", call("affine", &[*arg]), affines.join(", "))
            }
            IndexMap::Strided { offset, strides } => {
                let offset = offset.map_or(String::new(), |o| format!(" offset={o}"));
                format!("{}{offset} strides={strides:?}", call("strided", &[*arg]))
            }
        },
        Def::Contract { args, contraction } => print_contraction(contraction, args, &call),
        Def::Special { args, special } => {
            let (head, attributes) = print_special(special);
            format!("{}{attributes}", call(head, args))
        }
        Def::Routine { call, result } => format!("routine {call} result={result}"),
    }
}

/// A value's entries in the side tables.
fn side_tables(tir: &Tir, v: ValueId) -> String {
    let mut out = match tir.activations.get(&v) {
        None | Some(Activation::None) => String::new(),
        Some(Activation::Relu) => " activation=relu".into(),
        Some(Activation::Clamp(lo, hi)) => format!(" activation=[{lo:?}, {hi:?}]"),
    };
    match tir.softmax.get(&v) {
        None => {}
        Some(SoftmaxPart::Exponential) => out.push_str(" softmax=exponential"),
        Some(SoftmaxPart::Share) => out.push_str(" softmax=share"),
    }
    if let Some(last) = tir.channels_last.get(&v) {
        let _ = write!(out, " channels_last={:?}", last.map(u8::from));
    }
    out
}

pub(super) fn combine_name(c: Combine) -> &'static str {
    match c {
        Combine::Sum => "sum",
        Combine::Prod => "prod",
        Combine::Max => "max",
        Combine::Min => "min",
        Combine::Any => "any",
        Combine::All => "all",
    }
}

/// The expressions of a reduction before and after combining, and the dtype in which it combines.
fn print_pre_and_post(reduction: &Reduction) -> String {
    let mut out = format!(" in={}", reduction.acc);
    for (key, expr) in [("before", &reduction.pre), ("after", &reduction.post)] {
        if !expr.is_copy() {
            let _ = write!(out, " {key} {{ {expr} }}");
        }
    }
    out
}

fn print_affine(i: &AffineIndex) -> String {
    let term = |&(d, c): &(usize, i64)| match c {
        1 => format!("d{d}"),
        c => format!("{c}*d{d}"),
    };
    let mut parts: Vec<String> = i.terms.iter().map(term).collect();
    if i.offset != 0 || parts.is_empty() {
        parts.insert(0, i.offset.to_string());
    }
    parts.join("+")
}

fn print_contraction(contraction: &Contraction, args: &[ValueId], call: &dyn Fn(&str, &[ValueId]) -> String) -> String {
    match contraction {
        Contraction::MatMul(p) => {
            let mut out = call("matmul", args);
            for (key, set) in [("transpose_a", p.a_transposed), ("transpose_b", p.b_transposed)] {
                if set {
                    let _ = write!(out, " {key}=1");
                }
            }
            for (key, factor) in [("alpha", p.alpha), ("beta", p.beta)] {
                if factor != 1.0 {
                    let _ = write!(out, " {key}={}", write_float(factor));
                }
            }
            out
        }
        Contraction::Conv(c) => {
            let mut out = call("conv", args);
            let _ = write!(
                out,
                " stride={:?} padding={:?} dilation={:?} groups={}",
                c.stride, c.padding, c.dilation, c.groups
            );
            if c.transposed {
                let _ = write!(out, " transposed=1 output_padding={:?}", c.output_padding);
            }
            out
        }
    }
}

fn print_window(w: &SpatialWindow) -> String {
    format!(
        " first={} kernel={:?} stride={:?} padding={:?} dilation={:?}",
        w.first, w.kernel, w.stride, w.padding, w.dilation
    )
}

fn print_groups(g: &Groups) -> String {
    let names = match g.grouping {
        Grouping::Ends => String::new(),
        Grouping::Names { wrap } => format!(" names=1 wrap={}", u8::from(wrap)),
    };
    let transposed = u8::from(g.transposed);
    format!(" integers={}{names} transposed={transposed}", g.integers)
}

fn print_special(special: &Special) -> (&'static str, String) {
    match special {
        Special::Concat { dim } => ("concat", format!(" dim={dim}")),
        Special::Rows { wrap } => ("rows", if *wrap { " wrap=1".into() } else { String::new() }),
        Special::Gather { dim } => ("gather", format!(" dim={dim}")),
        Special::Pad { before, value } => ("pad", format!(" before={before:?} value={}", print_constant(*value))),
        Special::MaxPool(w) => ("max_pool", print_window(w)),
        Special::AvgPool {
            window: w,
            count_include_pad,
            divisor,
        } => {
            let divisor = divisor.map_or(String::new(), |d| format!(" divisor={d}"));
            let counts = if *count_include_pad { " count_include_pad=1" } else { "" };
            ("avg_pool", format!("{}{counts}{divisor}", print_window(w)))
        }
        Special::Scan { dim, op: ScanOp::Sum } => ("cumsum", format!(" dim={dim}")),
        Special::Scan { dim, .. } => ("cumprod", format!(" dim={dim}")),
        Special::Recurrent {
            cell,
            reverse,
            projected,
            in_bf16,
        } => {
            let cell = format!("{cell:?}").to_lowercase();
            let [reverse, projected] = [*reverse, *projected].map(u8::from);
            let bf16 = if *in_bf16 { " bf16=1" } else { "" };
            let flags = format!("reverse={reverse} projected={projected}{bf16}");
            ("recurrent", format!(" cell={cell} {flags}"))
        }
        Special::Grouped(groups) => ("grouped", print_groups(groups)),
        Special::Attention(a) => {
            let [mask, bias] = a.masks.map(|m| m.map_or("none".to_string(), |d| d.to_string()));
            let [causal, safe, rows_first] = [a.causal, a.safe, a.rows_first].map(u8::from);
            let flags = format!("causal={causal} safe={safe} rows_first={rows_first}");
            let scale = write_float(a.scale);
            ("attention", format!(" mask={mask} bias={bias} scale={scale} {flags}"))
        }
    }
}
