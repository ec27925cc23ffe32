//! Finds attention, rolls and slices that were written out op by op, as `run_decompositions` of `torch.export` leaves them.
//!
//! What is looked for stands in `rules/recognise.fxir`: a rule for attention, with its alternatives, one for the masks of windows
//! side by side, two for the forms of attention that torch has, three for softmax and its logarithm, and two for `index_select` at constant places that follow
//! each other. What torch has no op for (scores with a bias and a mask, and NaN in rows that are masked throughout) is
//! `biased_attention`. (Unrolled recurrent layers are found in Rust, by the pass
//! `recurrent`: they are a chain of as many steps as the sequence has items, and a rule has a fixed number of nodes.)
//!
#![doc = include_str!("../examples/recognise.md")]

use super::{dce, identities, simplify};
use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::pass::PassContext;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let found = simplify::apply_rules(module, simplify::recognition_rules(), cx)?;
    if found > 0 {
        // Operands are given in four dims, which most have already.
        identities::run(module, cx)?;
        dce::run(module, cx)?;
    }
    Ok(found)
}
