//! Lowering: from an optimised graph to a [`Program`], a list of steps over planned buffers.
//!
//! ```text
//! Graph ──read──▶ tensor IR ──layout, copies──▶ tensor IR ──fuse──▶ clusters ──emit──▶ Program ──place──▶ Program
//! ```
//!
//! [`PIPELINE`] lists the steps after reading. Each has a folder or a file:
//!
//! * [`ir`] — the tensor IR: values in SSA form with all sizes known, and its text form;
//! * `read` — lowers ops to values; [`contract`] and `special` recognise the ops that have kernels of their own;
//! * `weights` — turns weights that are computed from integers into constants;
//! * `layout` — selects the values that are channels last in memory;
//! * `pools` — means over windows of channels-last values become convolutions;
//! * [`mod@fuse`] — groups pointwise values and reductions into clusters, one kernel each;
//! * `emit` — clusters become loop nests ([`schedule`]), everything else calls of `math` and of the ops' routines;
//!   views become strides;
//! * `place` — assigns buffers to offsets in one arena.

pub mod contract;
mod emit;
pub mod fuse;
mod integers;
pub mod ir;
mod layout;
mod pipeline;
mod place;
mod pools;
mod read;
mod refused;
pub mod schedule;
pub mod special;
mod weights;

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

pub use contract::expansion;
pub use ir::access;
pub use pipeline::{PIPELINE, lower_tir, lower_tir_traced};
pub use read::{Binding, SizedNodes};
pub use refused::LowerError;

use crate::graph::{Graph, GraphModule};
use crate::program::Program;
use ir::Tir;
use std::collections::HashMap;

/// Lowers a graph of canonical ops. `dims` binds its symbolic sizes.
pub fn lower(module: &GraphModule, graph: &Graph, dims: &HashMap<String, i64>) -> Result<Program, LowerError> {
    lower_traced(module, graph, &Binding::new(dims), &mut |_, _| ())
}

/// [`lower`], which also passes the tensor IR to a callback, after reading and after each step that may change it.
pub fn lower_traced(
    module: &GraphModule,
    graph: &Graph,
    binding: &Binding<'_>,
    seen: &mut dyn FnMut(&'static str, &Tir),
) -> Result<Program, LowerError> {
    let mut tir = Tir::read_bound(module, graph, binding)?;
    tir.mutations = graph.mutations.clone();
    tir.skips_report = binding.skips_report();
    let mut program = lower_tir_traced(tir, seen)?;
    program.places = binding.places_in(graph);
    let kernels = program.fusion.kernels.iter();
    let places: Vec<String> = kernels.map(|k| program.places_of(&k.nodes.join("_and_"))).collect();
    for (kernel, places) in program.fusion.kernels.iter_mut().zip(places) {
        kernel.places = places;
    }
    Ok(program)
}
