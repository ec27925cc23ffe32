//! A 1x1 convolution and the depthwise one behind it as one step, so that what is between them stays in cache.

use super::Contract;
use crate::lower::{BufferId, Place, Program, Step, Tail};
use crate::math::contract::{Conv, Expansion};
use std::collections::HashMap;

/// What is between the two convolutions of an [`Expansion`].
#[derive(Clone, Debug)]
pub struct Between {
    /// The buffer of the first result; it has no place ([`Place::Pieces`]).
    pub buffer: BufferId,
    /// A kernel that reads and writes that buffer alone.
    pub tail: Option<Tail>,
}

/// Bytes between the convolutions from which on they are one step: less stays in a second-level cache anyhow.
const WORTH: usize = 512 << 10;

/// The most buffers (all of them the same) of a kernel between the convolutions.
pub const MOST: usize = 4;

/// Joins every such pair of steps.
pub(in crate::lower) fn join(program: &mut Program) {
    let mut uses: HashMap<BufferId, Vec<usize>> = HashMap::new();
    for (i, s) in program.steps.iter().enumerate() {
        for b in s.buffers() {
            let at = uses.entry(b).or_default();
            if at.last() != Some(&i) {
                at.push(i);
            }
        }
    }
    let mut gone = vec![false; program.steps.len()];
    for first in 0..program.steps.len() {
        let Some((between, conv)) = host(program, first) else {
            continue;
        };
        let Some(&[a, second]) = uses.get(&between.buffer).map(|u| &u[..]) else {
            continue;
        };
        if a != first || gone[second] {
            continue;
        }
        if let Some(step) = joined(program, first, second, between.clone(), conv) {
            program.steps[second] = step;
            program.buffers[between.buffer.0].place = Place::Pieces;
            let names = std::mem::take(&mut program.nodes[first]);
            program.nodes[second].extend(names);
            program.nodes[second].sort();
            program.nodes[second].dedup();
            gone[first] = true;
        }
    }
    let mut kept = gone.iter().map(|g| !g);
    program.steps.retain(|_| kept.next().unwrap_or(true));
    let mut kept = gone.iter().map(|g| !g);
    program.nodes.retain(|_| kept.next().unwrap_or(true));
}

/// The convolution of step `i`, and its result with what its tail does to that alone.
fn host(program: &Program, i: usize) -> Option<(Between, Conv)> {
    let Step::Contract {
        what: Contract::Conv(conv, _),
        out,
        tail,
    } = &program.steps[i]
    else {
        return None;
    };
    let alone = tail
        .iter()
        .all(|t| t.buffers.len() <= MOST && t.buffers.iter().all(|b| b == out));
    let inside = matches!(program.buffers[out.0].place, Place::Arena(_));
    (alone && inside).then(|| {
        let between = Between {
            buffer: *out,
            tail: tail.clone(),
        };
        (between, conv.clone())
    })
}

/// The step that does what `first` and `second` do, if there is one and it is worth it.
fn joined(program: &Program, first: usize, second: usize, between: Between, conv: Conv) -> Option<Step> {
    let Step::Contract {
        what: Contract::Conv(_, operands),
        ..
    } = &program.steps[first]
    else {
        return None;
    };
    let Step::Contract {
        what: Contract::Conv(depthwise, more),
        out,
        tail,
    } = &program.steps[second]
    else {
        return None;
    };
    let input = more.first()?;
    let whole = input.buffer == between.buffer && input.offset == 0;
    let only = more[1..].iter().all(|o| o.buffer != between.buffer);
    let apart = tail.iter().all(|t| !t.buffers.contains(&between.buffer));
    let desc = Expansion {
        first: conv,
        second: depthwise.clone(),
    };
    if !(whole && only && apart && desc.suits() && desc.between() >= WORTH) {
        return None;
    }
    let all = operands.iter().chain(&more[1..]).cloned().collect();
    Some(Step::Contract {
        what: Contract::Expansion(Box::new(desc), all, between),
        out: *out,
        tail: tail.clone(),
    })
}
