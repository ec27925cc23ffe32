//! Generates machine code for kernels with Cranelift.
//!
//! Each kernel becomes one function. Vector loops run in groups of lanes (`lanes`): first several F32X4, F64X2, I32X4
//! or I64X2 vectors of iterations, then one vector, then scalars or, with AVX-512, a vector with masks (`tails`). Every
//! operation has a vector form, if necessary lane by lane. Kernels of narrow elements alone have lanes of 8 or 16 bits (`packed`). Cranelift's optimisation level is `none`,
//! which leaves constants beside their uses; `speed` would hoist and
//! spill them. This crate does the necessary hoisting itself: values in
//! [`kernel::hoist`](crate::kernel::hoist_invariants()), addresses in `memory`.
//!
//! One code path (`function`) lowers a kernel through Cranelift's `Module` trait, with two back ends: this process's
//! memory ([`Jit`]) and the bytes of an object file ([`emit_object()`]). The code calls
//! [`code::host_functions`](crate::code::host_functions) by name.
//!
//! Results do not depend on how the parallel loop is split. Reductions run within one iteration, in an order that
//! depends only on the kernel, and lanes compute exactly what scalars compute.

mod analysis;
mod asm;
mod cache;
mod calls;
mod conditions;
mod convert;
mod elements;
mod exp;
mod f16c;
mod folds;
mod forms;
mod formulas;
mod func;
mod function;
mod halves;
mod inline;
mod inside;
mod inst;
mod integers;
mod jit;
mod lanes;
mod loops;
mod masking;
mod memory;
mod natives;
mod object;
mod ops;
mod packed;
mod poly;
mod prefetch;
mod reduce;
mod remainder;
mod row_plan;
mod rows;
mod splits;
mod state;
mod table;
mod tails;
#[cfg(test)]
mod tests;
mod transposes;
mod vector;
mod vector_loops;
#[cfg_attr(
    not(all(target_arch = "x86_64", unix)),
    allow(dead_code, reason = "only x86-64 widens")
)]
mod wide;
mod widen;

pub(crate) use jit::Jit;
pub use jit::compile_kernels;
pub(crate) use object::emit_object;

use crate::target::{Feature, Target};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};

/// Options of code generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodegenOptions {
    /// Whether to keep each kernel's CLIF and assembly text.
    pub text: bool,
    /// The widest vectors to use, in bytes: 16, 32 or 64. `None` for the widest of the machine.
    pub width: Option<usize>,
    /// The target whose features to use; `None` for this machine.
    pub target: Option<Target>,
    /// Keep each kernel's code as it can be written to a file.
    pub image: bool,
}

/// Cranelift's description of this machine, or of a target with fewer features.
fn host_isa(target: Option<Target>) -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    // Cranelift's verifier takes a fifth to a half of the time of compilation.
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        // `speed` moves every vector constant to the function's entry. More than ten of them overflow the sixteen
        // registers, and gelu spills in each iteration. It also takes 1.5 to 3 times as long.
        ("opt_level", "none"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let flags = settings::Flags::new(flags);
    let mut builder = cranelift_native::builder_with_options(target.is_none())?;
    let features = target.iter().flat_map(|t| t.features());
    for name in features.filter_map(Feature::cranelift) {
        builder.enable(name).map_err(|e| e.to_string())?;
    }
    builder.finish(flags).map_err(|e| e.to_string())
}
