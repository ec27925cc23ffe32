//! Checks a program that was read from a file: execution indexes by its numbers without further checks.

use crate::control::ControlCall;
use crate::kernel::{self, BufferRole, Kernel};
use crate::program::{
    BufferId, BufferOperand, BufferPlace, Contract, KernelTail, MAX_BETWEEN_BUFFERS, MAX_TAIL_BUFFERS, Program, Repeat,
    RoutineCall, Step, recurrent_operands,
};
use crate::tensor::byte_len;
use crate::types::{DType, Val};

type Checked<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond { return Err(format!($($message)+)); }
    };
}

/// Checks a program that has its tensors: the numbers of buffers, kernels and inputs, the sizes, and the memory
/// offsets.
pub(super) fn check_program(p: &Program) -> Checked {
    // The compiler has verified these kernels, but a file may have been damaged or written by someone else.
    p.kernels
        .iter()
        .try_for_each(|k| kernel::verify(k).map_err(|e| e.to_string()))?;
    // Pointers into the arena are computed by offsets, which Rust limits to `isize`.
    ensure!(isize::try_from(p.arena).is_ok(), "the arena has {} bytes", p.arena);
    ensure!(p.outputs <= p.buffers.len(), "{} results", p.outputs);
    let mut outputs = vec![None; p.outputs];
    for i in 0..p.buffers.len() {
        check_buffer(p, i, &mut outputs)?;
    }
    ensure!(outputs.iter().all(Option::is_some), "a result has no buffer");
    for input in &p.inputs {
        if let Some(state) = &input.state {
            let (dtype, shape) = input.ty.as_ref().ok_or("a buffer has no type")?;
            let same = *dtype == state.dtype() && shape == state.shape();
            ensure!(same, "the value of `{}` has the wrong type", input.name);
        }
    }
    check_output(p)?;
    ensure!(
        p.nodes.len() == p.steps.len(),
        "{} step names are recorded",
        p.nodes.len()
    );
    p.steps.iter().try_for_each(|s| check_step(p, s))
}

fn bytes(p: &Program, b: BufferId) -> Checked<usize> {
    let buffer = p
        .buffers
        .get(b.0)
        .ok_or_else(|| format!("buffer {} is out of range of {}", b.0, p.buffers.len()))?;
    byte_len(buffer.dtype, &buffer.shape).ok_or_else(|| format!("buffer `{}` is too large", buffer.name))
}

fn check_buffer(p: &Program, i: usize, outputs: &mut [Option<usize>]) -> Checked {
    let (b, size) = (&p.buffers[i], bytes(p, BufferId(i))?);
    let fits = match &b.place {
        BufferPlace::Input(n) => {
            let ty = p.inputs.get(*n).and_then(|i| i.ty.as_ref());
            ty.is_some_and(|(dtype, shape)| byte_len(*dtype, shape) == Some(size))
        }
        BufferPlace::Constant(t) => t.byte_count() == size,
        BufferPlace::Arena(offset) => {
            offset.checked_add(size).is_some_and(|end| end <= p.arena) && offset % b.dtype.size() == 0
        }
        BufferPlace::Output(n) => match outputs.get_mut(*n) {
            Some(known) => *known.get_or_insert(size) == size,
            None => false,
        },
        BufferPlace::Pieces => true,
    };
    ensure!(fits, "buffer `{}` does not fit in its memory", b.name);
    Ok(())
}

fn check_output(p: &Program) -> Checked {
    let output = p.output.as_ref().ok_or("the program has no result")?;
    for (b, shape) in output.leaves() {
        let size = bytes(p, *b)?;
        let buffer = &p.buffers[b.0];
        let placed = !matches!(buffer.place, BufferPlace::Arena(_) | BufferPlace::Pieces);
        let fits = placed && byte_len(buffer.dtype, shape) == Some(size);
        ensure!(fits, "`{}` is not a result of shape {shape:?}", buffer.name);
    }
    Ok(())
}

fn check_step(p: &Program, step: &Step) -> Checked {
    match step {
        Step::Kernel { kernel, buffers } => check_call(p, *kernel, buffers).map(drop),
        Step::Contract { contract, out, tail } => {
            bytes(p, *out)?;
            check_contract(p, contract)?;
            tail.iter()
                .try_for_each(|t| check_tail(p, t).and_then(|()| check_sums(p, contract, t)))
        }
        Step::Routine { call, outs } => {
            outs.iter().try_for_each(|b| bytes(p, *b).map(drop))?;
            call.args.iter().try_for_each(|a| check_value(p, a))?;
            check_overwrite(p, call, outs)
        }
        Step::Control {
            parts, graphs, outs, ..
        } => {
            outs.iter().try_for_each(|b| bytes(p, *b).map(drop))?;
            check_control(p, parts, graphs)
        }
    }
}

/// A routine may write over its first operand only if that is the whole memory of a buffer of the model, and its only result and
/// operand there.
fn check_overwrite(p: &Program, call: &RoutineCall, outs: &[BufferId]) -> Checked {
    let input_of = |b: &BufferId| match p.buffers[b.0].place {
        BufferPlace::Input(n) => Some(n),
        _ => None,
    };
    let Some(n) = outs.iter().find_map(input_of) else {
        return Ok(());
    };
    let is_same = |o: &&BufferOperand| input_of(&o.buffer) == Some(n);
    let (first, others) = call.args.split_first().ok_or("a routine without operands")?;
    let is_whole = first.as_leaf().is_some_and(|o| {
        is_same(&o)
            && o.offset == 0
            && byte_len(DType::U8, &o.shape) == byte_len(DType::U8, &p.buffers[outs[0].0].shape)
    });
    let is_alone = outs.len() == 1 && !others.iter().flat_map(Val::leaves).any(|o| is_same(&o));
    let is_state = p.inputs[n].state.is_some();
    ensure!(is_whole && is_alone && is_state, "`{}` overwrites an operand", call.op);
    Ok(())
}

/// A kernel with its buffers.
fn check_call<'a>(p: &'a Program, kernel: usize, buffers: &[BufferId]) -> Checked<&'a Kernel> {
    check_kernel_buffers(p, kernel, buffers, &[])
}

/// The kernel of a tail with its buffers.
fn check_call_of_tail<'a>(p: &'a Program, tail: &KernelTail) -> Checked<&'a Kernel> {
    let sized = tail.repeats.iter().flatten().all(|r| r.period > 0 && r.size > 0);
    let counted = tail.repeats.len() == tail.buffers.len();
    let few = tail.buffers.len() <= MAX_TAIL_BUFFERS || tail.repeats.iter().all(Option::is_none);
    ensure!(sized && counted && few, "the buffers of an epilogue repeat wrongly");
    check_kernel_buffers(p, tail.kernel, &tail.buffers, &tail.repeats)
}

/// A kernel with its buffers. Those that repeat may be shorter than the kernel's.
fn check_kernel_buffers<'a>(
    p: &'a Program,
    kernel: usize,
    buffers: &[BufferId],
    repeats: &[Option<Repeat>],
) -> Checked<&'a Kernel> {
    let k = p
        .kernels
        .get(kernel)
        .ok_or_else(|| format!("kernel {kernel} is out of range of {}", p.kernels.len()))?;
    ensure!(
        k.params().count() == buffers.len(),
        "the buffers of `{}` do not match its kernel",
        k.name
    );
    for (i, ((_, param), b)) in k.params().zip(buffers).enumerate() {
        let needed = match repeats.get(i).copied().flatten() {
            Some(r) if r.size == param.dtype.size() && param.role == BufferRole::In => r.period.checked_mul(r.size),
            Some(_) => None,
            None => byte_len(param.dtype, &param.shape),
        };
        let have = bytes(p, *b)?;
        ensure!(
            needed.is_some_and(|w| w <= have),
            "a buffer of `{}` is too small",
            k.name
        );
    }
    Ok(k)
}

/// Checks a kernel that runs on pieces of a result: it must be flat and use no scratch memory.
fn check_tail(p: &Program, tail: &KernelTail) -> Checked {
    let k = check_call_of_tail(p, tail)?;
    ensure!(
        k.scratch_layout().1 == 0,
        "the epilogue `{}` uses scratch memory",
        k.name
    );
    Ok(())
}

/// Checks the sums of a product of bytes: its tail reads them, and they are never in memory. No other tail has such a buffer.
fn check_sums(p: &Program, contract: &Contract, tail: &KernelTail) -> Checked {
    let bytes = match contract {
        Contract::MatMul(d, _) => d.bytes,
        Contract::Conv(d, _) => d.bytes,
        _ => None,
    };
    let is_sums = |b: &BufferId| matches!(p.buffers[b.0].place, BufferPlace::Pieces);
    let found: Vec<usize> = (0..tail.buffers.len()).filter(|&i| is_sums(&tail.buffers[i])).collect();
    let dtype = |i: usize| p.buffers[tail.buffers[i].0].dtype;
    let fits = match (bytes, tail.sums) {
        (None, None) => found.is_empty(),
        (Some(_), Some(i)) => found == [i] && dtype(i) == DType::I32 && tail.buffers.len() <= MAX_TAIL_BUFFERS,
        _ => false,
    };
    ensure!(fits, "the epilogue of a product of bytes reads no sums");
    Ok(())
}

fn check_operand(p: &Program, o: &BufferOperand) -> Checked {
    bytes(p, o.buffer)?;
    let b = &p.buffers[o.buffer.0];
    ensure!(
        o.shape.len() == o.strides.len(),
        "an operand of `{}` has the wrong strides",
        b.name
    );
    // The numbers of a damaged file may overflow 64 bits.
    let (mut lo, mut hi) = (o.offset as i128, o.offset as i128);
    for (&n, &stride) in o.shape.iter().zip(&o.strides) {
        let span = stride as i128 * (n as i128 - 1);
        (lo, hi) = (lo + span.min(0), hi + span.max(0));
    }
    let numel: usize = b.shape.iter().product();
    let empty = o.shape.contains(&0);
    let within = empty || matches!(b.place, BufferPlace::Pieces) || (lo >= 0 && hi < numel as i128);
    ensure!(within, "an operand is out of the bounds of `{}`", b.name);
    Ok(())
}

fn check_value(p: &Program, v: &Val<BufferOperand>) -> Checked {
    v.leaves().into_iter().try_for_each(|o| check_operand(p, o))
}

fn check_contract(p: &Program, contract: &Contract) -> Checked {
    let operands = contract.operands();
    operands.iter().try_for_each(|o| check_operand(p, o))?;
    let needed = match contract {
        Contract::MatMul(d, _) => 2 + d.addend.is_some() as usize,
        Contract::Conv(d, _) => 2 + d.bias as usize,
        Contract::Grouped(..) => 3,
        Contract::Expansion(d, ..) => 3 + d.first.bias as usize + d.second.bias as usize,
        Contract::Attention(d, _) => match (d.bias.is_some(), d.mask.is_some()) {
            (true, _) => 5,
            (_, true) => 4,
            _ => 3,
        },
        Contract::Recurrent(d, _) => {
            let operand = recurrent_operands(d);
            [Some(operand.weight), operand.projection, operand.bias]
                .into_iter()
                .flatten()
                .max()
                .unwrap_or(0)
                + 1
        }
    };
    ensure!(
        operands.len() >= needed,
        "expected {needed} operands, found {}",
        operands.len()
    );
    if let Contract::Expansion(_, _, between) = contract {
        bytes(p, between.buffer)?;
        let mut tail = between.tail.iter();
        let fits = |t: &KernelTail| t.buffers.len() <= MAX_BETWEEN_BUFFERS && check_tail(p, t).is_ok();
        ensure!(
            tail.all(fits),
            "the kernel between two convolutions does not match them"
        );
    }
    Ok(())
}

fn check_control(p: &Program, parts: &ControlCall<BufferOperand>, graphs: &[Program]) -> Checked {
    ensure!(
        parts.graphs.len() == graphs.len(),
        "the number of graph programs, {}, is wrong",
        graphs.len()
    );
    parts.values().try_for_each(|v| check_value(p, v))?;
    graphs.iter().try_for_each(check_program)
}
