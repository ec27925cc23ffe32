//! Recognises attention, rolls and slices that were decomposed op by op, as `run_decompositions` of `torch.export`
//! leaves them.
//!
//! The patterns are in `rules/recognise.fxir`: a rule for attention, with its alternatives, one for the masks of
//! windows side by side, two for the forms of attention that torch has, three for heads of keys and values that several
//! query heads share, three for softmax and its logarithm, and two for consecutive `index_select` calls at constant positions. What torch has no op for (scores with a bias and a mask,
//! and NaN in rows that are masked throughout) becomes `biased_attention`.
//!
//! Unrolled recurrent layers are found in Rust, by the pass `recurrent`: they are chains with as many steps as the
//! sequence has items, and a rule has a fixed number of nodes.
//!
#![doc = include_str!("../examples/recognise.md")]

use super::{dce, identities, simplify};
use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::pass::PassContext;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let rewrites = simplify::apply_rules(module, simplify::recognition_rules(), cx)?;
    if rewrites > 0 {
        // The rules reshape operands to four dims, which most operands have already.
        identities::run(module, cx)?;
        dce::run(module, cx)?;
    }
    Ok(rewrites)
}
