//! The operations that Cranelift cannot express well: matrix products, convolution, attention and transposes.
//!
//! [`contract`] is the interface: descriptors, plans, and the [`Library`] trait that turns a descriptor into a plan.
//! [`native_library`] is fxc's own library: plain Rust with SIMD intrinsics, compiled for several instruction sets
//! ([`Isa`]), one of which is chosen at run time. [`mod@reference`] computes the same operations directly from their
//! definitions, slowly.

// Unrolled loops index arrays of registers, often several arrays with one index.
#![allow(clippy::needless_range_loop)]

mod attention;
pub mod contract;
mod conv;
mod convert;
pub mod functions;
mod isa;
mod matmul;
mod number;
mod pack;
mod recurrent;
pub mod reference;
mod scratch;
mod simd;
mod tile;
pub mod transpose;

pub use crate::target::Isa;

use crate::target::Target;
use contract::*;

/// fxc's own kernels for one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    isa: Isa,
    exact: bool,
}

/// fxc's own kernels for this machine.
pub fn native_library() -> Native {
    Native::for_target(Target::native())
}

impl Native {
    /// The kernels for a target. The target must not have features that this machine lacks.
    pub fn for_target(target: Target) -> Native {
        Native {
            isa: target.isa(),
            exact: false,
        }
    }

    /// Sets whether every convolution must be computed as a sum of products. If `true`, faster algorithms with
    /// different rounding are not used.
    pub fn exact(self, exact: bool) -> Native {
        Native { exact, ..self }
    }
}

impl Library for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn plan_matmul(&self, desc: &MatMul, constants: MatMulConstants) -> Result<Box<dyn MatMulPlan>, PlanError> {
        matmul::plan(self.isa, desc, constants)
    }

    fn plan_conv(&self, desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError> {
        conv::plan(self.isa, self.exact, desc, constants)
    }

    fn extra_weight_bytes(&self, desc: &Conv) -> usize {
        conv::extra_weight_bytes(self.exact, desc)
    }

    fn plan_expansion(
        &self,
        desc: &Expansion,
        constants: [ConvConstants; 2],
    ) -> Result<Box<dyn ExpansionPlan>, PlanError> {
        conv::plan_expansion(self.isa, desc, constants)
    }

    fn plan_attention(&self, desc: &Attention) -> Result<Box<dyn AttentionPlan>, PlanError> {
        attention::plan(self.isa, desc)
    }

    fn plan_recurrent(
        &self,
        desc: &Recurrent,
        constants: RecurrentConstants,
    ) -> Result<Box<dyn RecurrentPlan>, PlanError> {
        recurrent::plan(self.isa, desc, constants)
    }
}
