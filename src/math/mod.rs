//! The operations that Cranelift cannot express well: matrix products, convolution, attention and transposes.
//!
//! [`contract`] is the interface: descriptors, plans, and the [`Library`] trait that turns a descriptor into a plan.
//! [`native_library`] is fxc's own library: plain Rust with SIMD intrinsics, compiled for several instruction sets
//! ([`Isa`]), one of which is chosen at run time. The tests compare it with `reference`, which computes the same operations
//! directly from their definitions.

// Unrolled loops index arrays of registers, often several arrays with one index.
#![allow(clippy::needless_range_loop)]

mod attention;
#[cfg(test)]
mod byte_tests;
pub(crate) mod contract;
mod conv;
mod convert;
pub(crate) mod functions;
mod isa;
mod lanes;
mod matmul;
mod number;
mod pack;
mod pairs;
mod recurrent;
#[cfg(test)]
mod reference;
mod scratch;
mod simd;
mod tile;
pub(crate) mod transpose;

pub(crate) use crate::target::Isa;
pub(crate) use conv::NARROWEST_ROW;

use crate::target::Target;
use contract::*;
use pairs::PairKernels;

/// fxc's own kernels for one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    isa: Isa,
    pairs: PairKernels,
    exact: bool,
    precision: Precision,
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
            pairs: PairKernels::for_target(target),
            exact: false,
            precision: Precision::F32,
        }
    }

    /// Sets whether every convolution must be computed as a sum of products. If `true`, faster algorithms with
    /// different rounding are not used.
    pub fn exact(self, exact: bool) -> Native {
        Native { exact, ..self }
    }

    /// Sets what f32 products and convolutions multiply.
    pub fn precision(self, precision: Precision) -> Native {
        Native { precision, ..self }
    }
}

impl Library for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn plan_matmul(&self, desc: &MatMul, constants: MatMulConstants) -> Result<Box<dyn MatMulPlan>, PlanError> {
        matmul::plan(self.pairs, self.precision, desc, constants)
    }

    fn plan_grouped(&self, desc: &Grouped, b: Option<Constant>) -> Result<Box<dyn GroupedPlan>, PlanError> {
        matmul::plan_grouped(self.pairs, self.precision, desc, b)
    }

    fn plan_conv(&self, desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError> {
        conv::plan(self.pairs, self.exact, self.precision, desc, constants)
    }

    fn extra_weight_bytes(&self, desc: &Conv) -> usize {
        conv::extra_weight_bytes(self.pairs, self.exact, self.precision, desc)
    }

    fn plan_expansion(
        &self,
        desc: &Expansion,
        constants: [ConvConstants; 2],
    ) -> Result<Box<dyn ExpansionPlan>, PlanError> {
        conv::plan_expansion(self.isa, desc, constants)
    }

    fn plan_attention(&self, desc: &Attention) -> Result<Box<dyn AttentionPlan>, PlanError> {
        attention::plan(self.pairs, desc)
    }

    fn plan_recurrent(
        &self,
        desc: &Recurrent,
        constants: RecurrentConstants,
    ) -> Result<Box<dyn RecurrentPlan>, PlanError> {
        let desc = Recurrent {
            in_bf16: desc.in_bf16 || self.precision == Precision::Bf16,
            ..*desc
        };
        recurrent::plan(&self.pairs, &desc, constants)
    }
}
