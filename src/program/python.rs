//! Programs as Python: kernels, products and library calls as numpy functions, and `run`, which calls them in order.
//!
//! `run(inputs, constants)` takes the inputs by position, and the constants by the names of their buffers (`b4`), as
//! [`named_constants`] returns them. It returns the results in the structure of the model's result. `program.py`
//! beside this file contains the products and library calls.

mod grouped;

use super::{
    BufferId, BufferOperand, BufferPlace, Contract, KernelTail, Program, RoutineCall, Step, recurrent_operands,
};
use crate::kernel::Kernel;
use crate::kernel::python::{self, numpy_dtype, safe_identifier};
use crate::math::contract::{Activation, Attention, AttentionMask, Conv, ConvLayout, MatMul, Recurrent};
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Val, write_float, write_str};
use std::collections::HashSet;
use std::fmt::Write;

/// The text after the kernels.
const PROGRAM: &str = include_str!("program.py");

/// The program as a Python module.
pub(crate) fn print_module(p: &Program) -> String {
    let mut out = python::PRELUDE.to_string() + PROGRAM;
    let names = kernel_names(p);
    for (k, name) in p.kernels.iter().zip(&names) {
        out.push_str("\n\n");
        let places = p.places_of(&k.name);
        if !places.is_empty() {
            let _ = writeln!(out, "# {places}");
        }
        out.push_str(&python::print_function_as(k, name));
    }
    out.push_str("\n\n");
    out.push_str(&print_run(p, &names));
    out
}

/// The names of the kernels' functions, unique in the module.
fn kernel_names(p: &Program) -> Vec<String> {
    let defined = |text: &'static str| text.lines().filter_map(|l| l.strip_prefix("def ")?.split('(').next());
    let helpers = defined(python::PRELUDE)
        .chain(defined(PROGRAM))
        .chain(["run", "inputs", "constants", "inf", "nan"]);
    let mut taken: HashSet<String> = helpers.map(String::from).collect();
    taken.extend((0..p.buffers.len()).map(|i| format!("b{i}")));
    let unique_name = |k: &Kernel| {
        let wish = safe_identifier(&k.name);
        let mut name = wish.clone();
        let mut i = 0;
        while !taken.insert(name.clone()) {
            i += 1;
            name = format!("{wish}_{i}");
        }
        name
    };
    p.kernels.iter().map(unique_name).collect()
}

/// The constants that `run` needs, by name: weights in the program's layout, and initial values of the buffers that
/// it updates.
#[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the command line writes them"))]
pub(crate) fn named_constants(p: &Program) -> Vec<(String, &Tensor)> {
    let buffers = p.buffers.iter().enumerate().filter_map(|(i, b)| match &b.place {
        BufferPlace::Constant(t) => Some((format!("b{i}"), t)),
        _ => None,
    });
    let states = p.inputs.iter().enumerate();
    buffers
        .chain(states.filter_map(|(i, input)| Some((format!("state{i}"), input.state.as_ref()?))))
        .collect()
}

fn print_run(p: &Program, kernels: &[String]) -> String {
    let mut out = "def run(inputs, constants):\n".to_string();
    let names: Vec<String> = p
        .inputs
        .iter()
        .filter(|i| i.state.is_none())
        .map(|i| i.name.to_string())
        .collect();
    let _ = writeln!(out, "    # inputs: {}", names.join(", "));
    for (i, b) in p.buffers.iter().enumerate() {
        let dtype = numpy_dtype(b.dtype);
        let from = match &b.place {
            BufferPlace::Input(n) => format!("flat({}, {dtype})", print_input(p, *n)),
            BufferPlace::Constant(_) => format!("flat(constants[\"b{i}\"], {dtype})"),
            BufferPlace::Arena(_) | BufferPlace::Output(_) | BufferPlace::Pieces => {
                format!("np.zeros({}, {dtype})", b.shape.iter().product::<usize>())
            }
        };
        let _ = writeln!(
            out,
            "    b{i} = {from}  # {} {}",
            b.name,
            TensorType::with_fixed_shape(b.dtype, &b.shape)
        );
    }
    for s in &p.steps {
        print_step(&mut out, p, kernels, s);
    }
    let result = p.output.as_ref().map_or("None".into(), |v| {
        print_value(v, &|(b, shape)| format!("b{}.reshape({shape:?})", b.0))
    });
    let _ = writeln!(out, "    return {result}");
    out
}

/// The expression of input `n`. Buffers that the program updates are not inputs of `run`.
fn print_input(p: &Program, n: usize) -> String {
    match p.inputs.get(n) {
        Some(i) if i.state.is_some() => format!("constants[\"state{n}\"]"),
        _ => {
            let before = p.inputs[..n.min(p.inputs.len())].iter().filter(|i| i.state.is_none());
            format!("inputs[{}]", before.count())
        }
    }
}

fn print_step(out: &mut String, p: &Program, kernels: &[String], s: &Step) {
    let line = match s {
        Step::Kernel { kernel, buffers } => print_kernel_call(&kernels[*kernel], buffers),
        Step::Contract {
            contract,
            out: to,
            tail,
        } => {
            let sums = tail.as_ref().and_then(|t| t.sums.map(|i| t.buffers[i]));
            let mut text = print_contract(p, kernels, contract, sums.unwrap_or(*to));
            if let Some(tail) = tail {
                let _ = write!(text, "\n    {}", print_tail(p, &kernels[tail.kernel], tail));
            }
            text
        }
        Step::Routine { call, outs } => print_routine(call, outs),
        Step::Control { op, .. } => print_unsupported(op),
    };
    // The kernel's heading contains its location.
    let named = match s {
        Step::Kernel { .. } => None,
        Step::Contract { out: to, .. } => Some(to),
        Step::Routine { outs, .. } | Step::Control { outs, .. } => outs.first(),
    };
    let places = named.map(|b| p.places_of(&p.buffers[b.0].name)).unwrap_or_default();
    if !places.is_empty() {
        let _ = writeln!(out, "    # {places}");
    }
    let _ = writeln!(out, "    {line}");
}

fn print_kernel_call(name: &str, buffers: &[BufferId]) -> String {
    let args: Vec<String> = buffers.iter().map(|b| format!("b{}", b.0)).collect();
    format!("{name}({})", args.join(", "))
}

/// The call of a kernel on a whole result, with buffers that repeat as long as the result.
fn print_tail(p: &Program, name: &str, tail: &KernelTail) -> String {
    let lengths = p.kernels[tail.kernel].params().map(|(_, b)| b.numel());
    let args = tail.buffers.iter().zip(&tail.repeats).zip(lengths);
    let args = args.map(|((b, repeat), numel)| match repeat {
        Some(_) => format!("np.resize(b{}, {numel})", b.0),
        None => format!("b{}", b.0),
    });
    format!("{name}({})", args.collect::<Vec<_>>().join(", "))
}

fn print_unsupported(name: &str) -> String {
    format!(
        "raise NotImplementedError({})",
        write_str(&format!("no numpy code for `{name}`"))
    )
}

/// A call of an op's routine. `program.py` implements some of them.
fn print_routine(call: &RoutineCall, outs: &[BufferId]) -> String {
    let name = &call.op;
    if !PROGRAM.contains(&format!("def op_{name}(")) {
        return print_unsupported(name);
    }
    let args: Vec<String> = call.args.iter().map(|a| print_value(a, &print_operand)).collect();
    let outs: Vec<String> = outs.iter().map(|b| format!("b{}", b.0)).collect();
    format!("store([{}], op_{name}({}))", outs.join(", "), args.join(", "))
}

/// A strided window.
fn print_operand(o: &BufferOperand) -> String {
    print_strided(o.buffer, o.offset, &o.shape, &o.strides)
}

fn print_strided<S: std::fmt::Debug>(b: BufferId, offset: i64, shape: &[usize], strides: &[S]) -> String {
    format!("view(b{}, {offset}, {shape:?}, {strides:?})", b.0)
}

fn print_contract(p: &Program, kernels: &[String], contract: &Contract, out: BufferId) -> String {
    match contract {
        Contract::MatMul(d, o) => print_matmul(d, o, out),
        Contract::Conv(d, o) => print_conv(p, d, o, out),
        Contract::Expansion(d, o, between) => {
            let (first, remaining) = o.split_at(2 + d.first.bias as usize);
            let mut lines = vec![print_conv(p, &d.first, first, between.buffer)];
            let tail = between.tail.iter();
            lines.extend(tail.map(|t| print_kernel_call(&kernels[t.kernel], &t.buffers)));
            let input = BufferOperand {
                buffer: between.buffer,
                offset: 0,
                shape: vec![],
                strides: vec![],
            };
            let second: Vec<BufferOperand> = [input].into_iter().chain(remaining.iter().cloned()).collect();
            lines.push(print_conv(p, &d.second, &second, out));
            lines.join("\n    ")
        }
        Contract::Attention(d, o) => print_attention(d, o, out),
        Contract::Grouped(d, o) => grouped::print_grouped(d, o, out),
        Contract::Recurrent(d, o) => print_recurrent(d, o, out),
    }
}

fn print_recurrent(d: &Recurrent, o: &[BufferOperand], out: BufferId) -> String {
    let operands = recurrent_operands(d);
    let shaped = |i: usize, shape: &[usize]| format!("{}.reshape({shape:?})", print_operand(&o[i]));
    let maybe = |i: Option<usize>, shape: &[usize]| i.map_or("None".into(), |i| shaped(i, shape));
    let (rows, state) = (d.cell.gates() * d.hidden, d.state_size());
    format!(
        "recurrent(b{}, {}, {}, {}, {}, {}, {}, \"{}\", {})",
        out.0,
        shaped(0, &[d.time, d.batch, rows]),
        shaped(1, &[d.batch, state]),
        maybe(operands.cell, &[d.batch, d.hidden]),
        shaped(operands.weight, &[rows, state]),
        maybe(operands.projection, &[state, d.hidden]),
        maybe(operands.bias, &[rows]),
        format!("{:?}", d.cell).to_lowercase(),
        python_bool(d.reverse)
    )
}

fn python_bool(b: bool) -> &'static str {
    if b { "True" } else { "False" }
}

/// A float in Python syntax, without names from torch.
fn python_float(x: f64) -> String {
    match x.is_finite() {
        true => write_float(x),
        false => format!("float(\"{}\")", write_float(x)),
    }
}

/// The parameters that follow the operands of every product.
fn print_epilogue(dtype: DType, act: Activation) -> String {
    let (lo, hi) = match act {
        Activation::None => ("None".into(), "None".into()),
        Activation::Relu => ("0.0".into(), "None".into()),
        Activation::Clamp(lo, hi) => (python_float(lo as f64), python_float(hi as f64)),
    };
    let bf16 = if dtype == DType::BF16 { ", bf16=True" } else { "" };
    match act {
        Activation::None => bf16.to_string(),
        _ => format!(", lo={lo}, hi={hi}{bf16}"),
    }
}

fn print_matmul(d: &MatMul, o: &[BufferOperand], out: BufferId) -> String {
    let sizes: Vec<usize> = d.batch.iter().map(|b| b.size).collect();
    let part = |o: &BufferOperand,
                each: &dyn Fn(&crate::math::contract::BatchDim) -> usize,
                rows: [usize; 2],
                last: [usize; 2]| {
        let shape: Vec<usize> = sizes.iter().copied().chain(rows).collect();
        let strides: Vec<usize> = d.batch.iter().map(each).chain(last).collect();
        print_strided(o.buffer, o.offset, &shape, &strides)
    };
    let whole = BufferOperand {
        buffer: out,
        offset: 0,
        shape: vec![],
        strides: vec![],
    };
    let c = part(&whole, &|b| b.c, [d.m, d.n], [d.c_row, 1]);
    let a = part(&o[0], &|b| b.a, [d.m, d.k], d.a);
    let b = part(&o[1], &|b| b.b, [d.k, d.n], d.b);
    let addend = match (&d.addend, o.get(2)) {
        (Some(s), Some(o)) => part(o, &|b| b.addend, [d.m, d.n], [s.row, s.col]),
        _ => "None".into(),
    };
    let factors = match (d.alpha, d.beta) {
        (1.0, 1.0) => String::new(),
        (a, b) => format!(", alpha={}, beta={}", python_float(a), python_float(b)),
    };
    format!(
        "matmul({c}, {a}, {b}, {addend}{factors}{})",
        print_epilogue(d.dtype, d.activation)
    )
}

/// A tensor of channels and three spatial sizes, as `[N, C, D, H, W]`.
fn print_image(b: BufferId, offset: i64, layout: ConvLayout, n: usize, c: usize, s: [usize; 3]) -> String {
    let [d, h, w] = s;
    let strides = match layout {
        ConvLayout::ChannelsFirst => [c * d * h * w, d * h * w, h * w, w, 1],
        ConvLayout::ChannelsLast => [d * h * w * c, 1, h * w * c, w * c, c],
    };
    print_strided(b, offset, &[n, c, d, h, w], &strides)
}

fn print_conv(p: &Program, d: &Conv, o: &[BufferOperand], out: BufferId) -> String {
    let x = print_image(
        o[0].buffer,
        o[0].offset,
        d.input_layout,
        d.batch,
        d.in_channels,
        d.input,
    );
    let [outer, inner] = match d.transposed {
        true => [d.in_channels, d.out_channels / d.groups.max(1)],
        false => [d.out_channels, d.in_channels / d.groups.max(1)],
    };
    let [kd, kh, kw] = d.kernel;
    let volume = kd * kh * kw;
    let w = print_strided(
        o[1].buffer,
        o[1].offset,
        &[outer, inner, kd, kh, kw],
        &[inner * volume, volume, kh * kw, kw, 1],
    );
    let bias = match o.get(2) {
        Some(b) if d.bias => print_operand(b),
        _ => "None".into(),
    };
    let result = result_sizes(p, d, out);
    format!(
        "conv({}, {x}, {w}, {bias}, {}, {:?}, {:?}, {:?}, {}{})",
        print_image(out, 0, d.output_layout, d.batch, d.out_channels, result),
        d.groups,
        d.stride,
        d.padding,
        d.dilation,
        python_bool(d.transposed),
        print_epilogue(d.dtype, d.activation)
    )
}

/// The spatial sizes of a convolution's result.
fn result_sizes(p: &Program, d: &Conv, out: BufferId) -> [usize; 3] {
    let size = |i: usize| {
        let reach = d.dilation[i] * (d.kernel[i].max(1) - 1) + 1;
        match d.transposed {
            true => {
                let full = (d.input[i].max(1) - 1) * d.stride[i] + reach + d.output_padding[i];
                full.saturating_sub(2 * d.padding[i])
            }
            false => match (d.input[i] + 2 * d.padding[i]).checked_sub(reach) {
                Some(n) => n / d.stride[i] + 1,
                None => 0,
            },
        }
    };
    let sizes: [usize; 3] = std::array::from_fn(size);
    debug_assert_eq!(
        sizes.iter().product::<usize>() * d.batch * d.out_channels,
        p.buffers[out.0].shape.iter().product::<usize>()
    );
    sizes
}

fn print_attention(d: &Attention, o: &[BufferOperand], out: BufferId) -> String {
    let part = |b: BufferId, offset: i64, heads: usize, rows: usize, size: usize, s: [usize; 3]| {
        print_strided(b, offset, &[d.batch, heads, rows, size], &[s[0], s[1], s[2], 1])
    };
    let q = part(o[0].buffer, o[0].offset, d.heads, d.queries, d.size, d.q);
    let k = part(o[1].buffer, o[1].offset, d.kv_heads, d.keys, d.size, d.k);
    let v = part(o[2].buffer, o[2].offset, d.kv_heads, d.keys, d.value_size, d.v);
    let added = |m: &Option<AttentionMask>, o: Option<&BufferOperand>| match (m, o) {
        (Some(m), Some(o)) => print_strided(o.buffer, o.offset, &[d.batch, d.heads, d.queries, d.keys], &m.strides),
        _ => "None".into(),
    };
    let (mask, bias) = (added(&d.mask, o.get(3)), added(&d.bias, o.get(4)));
    let result = part(out, 0, d.heads, d.queries, d.value_size, d.out);
    let finish = print_epilogue(d.dtype, Activation::None);
    format!(
        "attention({result}, {q}, {k}, {v}, {bias}, {mask}, {}, {}, {}{finish})",
        python_float(d.scale),
        python_bool(d.causal),
        python_bool(d.safe)
    )
}

/// A value in Python syntax.
fn print_value<T>(v: &Val<T>, leaf: &dyn Fn(&T) -> String) -> String {
    crate::types::pyrepr::repr(v, leaf)
}

#[cfg(test)]
mod tests;
