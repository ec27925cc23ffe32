//! The steps of lowering, in order.

use super::fuse::{Fusion, fuse};
use super::ir::Tir;
use super::{LowerError, emit, expansion, integers, layout, place, pools, weights};
use crate::op::OpResult;
use crate::program::Program;

/// One step of lowering.
pub(crate) struct StepInfo {
    /// Its name.
    pub name: &'static str,
    /// What the step does, and why it comes at this point.
    pub doc: &'static str,
    change: StepChange,
}

/// What a step changes or produces.
enum StepChange {
    /// The tensor IR.
    Tir(fn(&mut Tir) -> OpResult<()>),
    /// Decides which values each kernel computes.
    Fuse(fn(&Tir) -> Fusion),
    /// Turns the fused tensor IR into a program.
    Emit(fn(&Tir, &Fusion) -> Result<Program, LowerError>),
    /// The program.
    Program(fn(&mut Program)),
}

const fn step_info(name: &'static str, doc: &'static str, change: StepChange) -> StepInfo {
    StepInfo { name, doc, change }
}

/// The steps after reading, in order.
pub(crate) const PIPELINE: [StepInfo; 14] = [
    // First, because later steps treat constant weights differently from computed ones.
    step_info(
        "weights",
        "turns weights that are computed from integers into constants, so that products read the integers",
        StepChange::Tir(weights::fold_quantized_weights),
    ),
    // After weights, because the scales of weights are those of constants. Before layout, which places the epilogues.
    step_info(
        "integers",
        "moves the scales of quantized operands after their products, which then multiply integers",
        StepChange::Tir(integers::move_scales),
    ),
    // Early, because it changes shapes and adds views: all later steps depend on the order of dims in memory.
    step_info(
        "layout",
        "converts groups of convolutions to channels-last layout",
        StepChange::Tir(layout::relayout),
    ),
    // After layout, which decides what is channels last.
    step_info(
        "pools",
        "computes means over windows of channels-last values as depthwise convolutions",
        StepChange::Tir(pools::convolve_means),
    ),
    // After integers, whose products read bytes. Before fusion, which decides what is stored.
    step_info(
        "read-bytes",
        "computes values of bytes, such as dequantized ones, again in each pointwise value that reads them",
        StepChange::Tir(integers::read_bytes),
    ),
    // Before fusion, because a kernel has an accumulator for each of its reductions, also for equal ones.
    step_info(
        "merge-reductions",
        "merges duplicate reductions",
        StepChange::Tir(Tir::merge_reductions),
    ),
    // After layout, which turns results into permuted views. Before fusion, because a copy is a pointwise value, which
    // fuses with the computation of its operand.
    step_info(
        "copy-results",
        "copies results that are views, inputs or constants, because a result must be a contiguous buffer of its own",
        StepChange::Tir(Tir::copy_shared_results),
    ),
    // After the steps that redefine values, whose former operands may be unused.
    step_info(
        "remove-unused",
        "removes values that no result depends on",
        StepChange::Tir(Tir::remove_unused_values),
    ),
    step_info(
        "fuse",
        "groups pointwise values and reductions into clusters, one kernel each",
        StepChange::Fuse(fuse),
    ),
    step_info(
        "emit",
        "generates a loop nest for each cluster and library steps for all other values",
        StepChange::Emit(emit::emit_program),
    ),
    // After emit, which has chosen the epilogues: only an epilogue may run between the two convolutions.
    step_info(
        "expand",
        "merges a 1x1 convolution and the depthwise convolution on its result into one step",
        StepChange::Program(expansion::join_expansions),
    ),
    // Before place: the values that it moves to the memory of buffers need no place in the arena.
    step_info(
        "update-in-place",
        "writes the new values of buffers, such as caches of keys and values, over the old ones where a step changes some elements",
        StepChange::Program(place::update_in_place),
    ),
    // After expand, whose intermediate results need no place in the arena.
    step_info(
        "place",
        "assigns arena memory; buffers with disjoint lifetimes share it",
        StepChange::Program(place::place_buffers),
    ),
    // After all steps that reorder or merge the steps of the program.
    step_info(
        "stream",
        "uses ordinary stores in place of streaming stores where the next step reads the result",
        StepChange::Program(place::keep_in_caches),
    ),
];

/// Lowers tensor IR.
pub fn lower_tir(tir: Tir) -> Result<Program, LowerError> {
    lower_tir_traced(tir, &mut |_, _| ())
}

/// [`lower_tir`], which also passes the tensor IR to a callback after each step that may change it.
pub(crate) fn lower_tir_traced(mut tir: Tir, seen: &mut dyn FnMut(&'static str, &Tir)) -> Result<Program, LowerError> {
    let (mut fusion, mut program) = (Fusion::default(), Program::default());
    seen("read", &tir);
    for step in &PIPELINE {
        match step.change {
            StepChange::Tir(run) => {
                run(&mut tir)?;
                seen(step.name, &tir);
            }
            StepChange::Fuse(run) => fusion = run(&tir),
            StepChange::Emit(run) => program = run(&tir, &fusion)?,
            StepChange::Program(run) => run(&mut program),
        }
    }
    Ok(program)
}
