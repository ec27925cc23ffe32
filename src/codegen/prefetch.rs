//! Prefetches: a row kernel asks for the next row while it works on a row that is in the cache.
//!
//! A softmax or a norm reads a row from memory once, then once or twice more from the first cache, and writes it past the caches; after
//! that the processor does not run ahead to the next row by itself. The second reading of a row therefore asks for the next row, line by
//! line, into the second cache. By hand, over 128 MiB on one core, a layer norm takes 8.1 ms so, 12.5 ms without. The loop that writes past
//! the caches has the memory at work already (there it costs a tenth), and without one the processor does run ahead (mean and
//! variance: an eighth).

use super::analysis::{may_stream, stores_of};
use super::row_plan::{in_step, inner_loops};
use super::state::FunctionLowering;
use crate::kernel::{Buf, BufferRole, Index, Inst, Kernel, Loop, Stmt, Value};
use cranelift_codegen::ir::types::F64X2;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData};
use std::collections::HashMap;

/// The fewest bytes of a buffer that no cache of a core holds.
const LARGE: usize = 1 << 20;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Loads that are a row's second reading, with the distance of the next row in bytes.
pub(super) fn find_prefetches(k: &Kernel) -> HashMap<Value, i64> {
    let mut out = HashMap::new();
    let Some(rows) = k.parallel_loop().filter(|l| !l.vector && may_stream(k)) else {
        return out;
    };
    let Some(&row) = rows.vars.iter().rfind(|&&v| k.extent(v) > 1) else {
        return out;
    };
    let loops: Vec<&Loop> = inner_loops(rows).collect();
    let Some(last) = loops.iter().rposition(|l| has_streaming_store(k, l)) else {
        return out;
    };
    let mut passes: HashMap<Buf, usize> = HashMap::new();
    for l in &loops[..last] {
        let loads = loads_of_rows(k, l);
        let mut read: Vec<Buf> = loads.iter().map(|l| l.1).collect();
        read.dedup();
        read.into_iter().for_each(|b| *passes.entry(b).or_default() += 1);
        for (v, b, i) in loads.into_iter().filter(|_| !has_streaming_store(k, l)) {
            let next = i.affine.stride(row) * (in_step(k) * k.buffer(b).dtype.size()) as i64;
            if passes[&b] == 2 && next >= LINE as i64 && next < 1 << 20 {
                out.insert(v, next);
            }
        }
    }
    out
}

/// Whether a loop writes past the caches.
fn has_streaming_store(k: &Kernel, l: &Loop) -> bool {
    let mut stores = vec![];
    stores_of(&l.body, &mut stores);
    stores.iter().any(|(b, _)| k.buffer(*b).streams)
}

/// The loads of a vector loop that go along a large input.
fn loads_of_rows<'k>(k: &Kernel, l: &'k Loop) -> Vec<(Value, Buf, &'k Index)> {
    let of = |s: &'k Stmt| match s {
        Stmt::Let(v, Inst::Load(b, i, None)) => Some((*v, *b, i)),
        _ => None,
    };
    let along = |(_, b, i): &(Value, Buf, &Index)| {
        let buffer = k.buffer(*b);
        let large = buffer.role == BufferRole::In && buffer.numel() * buffer.dtype.size() >= LARGE;
        large && i.dynamic.is_empty() && i.affine.stride(l.vars[0]) == 1
    };
    match l.vector {
        true => l.body.iter().filter_map(of).filter(along).collect(),
        false => vec![],
    }
}

impl FunctionLowering<'_> {
    /// Asks for the lines `distance` bytes after those that a group loads: a load of two f64 that nothing uses, of which
    /// [`widen`](super::widen) makes a prefetch.
    pub(super) fn emit_prefetch(&mut self, b: Buf, i: &Index, distance: i64) {
        if self.lane.is_none() || self.e.width != LINE {
            return;
        }
        let (p, offset) = self.access_address(b, i);
        let bytes = self.e.elements * self.k.buffer(b).dtype.size();
        for at in (0..bytes).step_by(LINE) {
            let at = i64::from(offset) + distance + at as i64;
            // One that may trap is not left out.
            if let Ok(at) = i32::try_from(at) {
                self.e.b.ins().load(F64X2, MemFlagsData::new(), p, at);
            }
        }
    }
}
