//! Merges a 1x1 convolution and the depthwise convolution after it into one step, so that the intermediate result stays
//! in cache.

use crate::math::contract::{Conv, Expansion};
use crate::program::{Between, BufferId, BufferPlace, Contract, MAX_BETWEEN_BUFFERS, Program, Step};
use crate::tensor::shown_bytes;
use rustc_hash::FxHashMap;
use std::fmt;

/// The minimal size in bytes of the intermediate result. Smaller ones stay in a second-level cache anyway.
const WORTH: usize = 512 << 10;

/// Merges every such pair of steps.
pub(in crate::lower) fn join_expansions(program: &mut Program) {
    if (0..program.steps.len()).all(|i| first_conv(program, i).is_none()) {
        return;
    }
    let uses = steps_by_buffer(program);
    let mut gone = vec![false; program.steps.len()];
    for first in 0..program.steps.len() {
        let Some((between, conv)) = first_conv(program, first) else {
            continue;
        };
        let Some(&[a, second, ref others @ ..]) = uses.get(&between.buffer).map(|u| &u[..]) else {
            continue;
        };
        if a != first || gone[second] {
            continue;
        }
        let joined = match others {
            [] => join_pair(program, first, second, between.clone(), conv),
            _ => depthwise_of(program, second, &between, &conv).map(|_| Err(ExpansionRefusal::Shared)),
        };
        let Some(joined) = joined else { continue };
        note_outcome(program, between.buffer, second, joined.as_ref().err());
        if let Ok(step) = joined {
            program.steps[second] = step;
            program.buffers[between.buffer.0].place = BufferPlace::Pieces;
            let names = std::mem::take(&mut program.nodes[first]);
            program.nodes[second].extend(names);
            program.nodes[second].sort();
            program.nodes[second].dedup();
            gone[first] = true;
        }
    }
    let mut keeps = gone.iter().map(|g| !g);
    program.steps.retain(|_| keeps.next().unwrap_or(true));
    let mut keeps = gone.iter().map(|g| !g);
    program.nodes.retain(|_| keeps.next().unwrap_or(true));
}

/// The steps that use each buffer, in order.
fn steps_by_buffer(program: &Program) -> FxHashMap<BufferId, Vec<usize>> {
    let mut uses: FxHashMap<BufferId, Vec<usize>> = FxHashMap::default();
    for (i, s) in program.steps.iter().enumerate() {
        for b in s.buffers() {
            let steps = uses.entry(b).or_default();
            if steps.last() != Some(&i) {
                steps.push(i);
            }
        }
    }
    uses
}

/// Reports that step `second` is merged with the step that computes `between`, or why it is not.
fn note_outcome(program: &mut Program, between: BufferId, second: usize, refusal: Option<&ExpansionRefusal>) {
    let [a, b] = [between, contract_output(&program.steps[second])].map(|b| program.buffers[b.0].name.clone());
    if let Some(reason) = refusal {
        return program.fusion.note_apart(&a, &b, reason);
    }
    let size = shown_bytes(program.buffers[between.0].byte_count());
    let note = format!("computed in bands of rows, so that the intermediate {size} stay in cache");
    program.fusion.note_together(&a, &b, note);
}

/// The convolution of step `i`, and the result of its tail, if the tail only reads the convolution's result.
fn first_conv(program: &Program, i: usize) -> Option<(Between, Conv)> {
    let Step::Contract {
        contract: Contract::Conv(conv, _),
        out,
        tail,
    } = &program.steps[i]
    else {
        return None;
    };
    let reads_only_conv = tail
        .iter()
        .all(|t| t.buffers.len() <= MAX_BETWEEN_BUFFERS && t.buffers.iter().all(|b| b == out));
    let inside = matches!(program.buffers[out.0].place, BufferPlace::Arena(_));
    (reads_only_conv && inside).then(|| {
        let between = Between {
            buffer: *out,
            tail: tail.clone(),
        };
        (between, conv.clone())
    })
}

/// Why a pair of such convolutions is not merged.
enum ExpansionRefusal {
    /// Other steps read the intermediate result.
    Shared,
    /// The tail of the second convolution reads the intermediate result.
    Tail,
    /// There is no kernel for these sizes, strides or layouts.
    Form,
    /// The intermediate result is too small: its bytes.
    Small(usize),
}

impl fmt::Display for ExpansionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpansionRefusal::Shared => {
                f.write_str("other steps also read the intermediate result, so it must be in memory")
            }
            ExpansionRefusal::Tail => {
                f.write_str("the epilogue of the second convolution reads the intermediate result")
            }
            ExpansionRefusal::Form => {
                f.write_str("no banded kernel supports their layouts, kernel sizes, strides or padding")
            }
            ExpansionRefusal::Small(n) => write!(
                f,
                "the intermediate {} fit in the L2 cache in any case",
                shown_bytes(*n)
            ),
        }
    }
}

/// The buffer that step `i` writes, if it is a contraction.
fn contract_output(step: &Step) -> BufferId {
    match step {
        Step::Contract { out, .. } => *out,
        _ => BufferId(0),
    }
}

/// The depthwise convolution of step `second`, if it reads the whole result of the 1x1 convolution `conv`.
fn depthwise_of(program: &Program, second: usize, between: &Between, conv: &Conv) -> Option<Expansion> {
    let Step::Contract {
        contract: Contract::Conv(depthwise, operands),
        ..
    } = &program.steps[second]
    else {
        return None;
    };
    let input = operands.first()?;
    let whole = input.buffer == between.buffer && input.offset == 0;
    let only = operands[1..].iter().all(|o| o.buffer != between.buffer);
    let pointwise = conv.kernel == [1; 3] && conv.groups == 1;
    let pair = pointwise && depthwise.groups > 1 && depthwise.groups == depthwise.in_channels;
    (whole && only && pair).then(|| Expansion {
        first: conv.clone(),
        second: depthwise.clone(),
    })
}

/// The merged step for `first` and `second`, or why they are not merged; `None` if they are not such a pair.
fn join_pair(
    program: &Program,
    first: usize,
    second: usize,
    between: Between,
    conv: Conv,
) -> Option<Result<Step, ExpansionRefusal>> {
    let desc = depthwise_of(program, second, &between, &conv)?;
    let [a, b] = [first, second].map(|i| match &program.steps[i] {
        Step::Contract {
            contract: Contract::Conv(_, operands),
            out,
            tail,
        } => Some((operands, *out, tail)),
        _ => None,
    });
    let ((operands, ..), (extra_operands, out, tail)) = (a?, b?);
    if tail.iter().any(|t| t.buffers.contains(&between.buffer)) {
        return Some(Err(ExpansionRefusal::Tail));
    }
    if !desc.is_supported() {
        return Some(Err(ExpansionRefusal::Form));
    }
    if desc.between_bytes() < WORTH {
        return Some(Err(ExpansionRefusal::Small(desc.between_bytes())));
    }
    let all = operands.iter().chain(&extra_operands[1..]).cloned().collect();
    Some(Ok(Step::Contract {
        contract: Contract::Expansion(Box::new(desc), all, between),
        out,
        tail: tail.clone(),
    }))
}
