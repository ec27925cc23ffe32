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

pub(crate) mod contract;
mod emit;
pub(crate) mod fuse;
mod integers;
pub(crate) mod ir;
mod layout;
mod pipeline;
mod place;
mod pools;
mod read;
mod refused;
pub(crate) mod schedule;
pub(crate) mod special;
mod weights;

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

pub(crate) use contract::expansion;
pub(crate) use ir::access;
pub use pipeline::lower_tir;
pub(crate) use pipeline::{PIPELINE, lower_tir_traced};
pub(crate) use read::{Binding, SizedNodes};
pub(crate) use refused::LowerError;

use crate::graph::{Graph, GraphModule};
use crate::program::Program;
use ir::Tir;

/// Lowers a graph of canonical ops. `binding` gives its symbolic sizes. `seen` receives the tensor IR after reading
/// and after each step that may change it.
pub(crate) fn lower(
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
