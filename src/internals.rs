//! What fxc's own program, Python package, tests and benchmarks use of the stages. It has no stability guarantees.
//!
//! Every item is listed: all others in these stages are `pub(crate)`, so that the compiler finds those without callers.

#[cfg(feature = "cli")]
pub mod cli {
    pub use crate::cli::main;
}

pub mod codegen {
    pub use crate::codegen::{CodegenOptions, compile_kernels};
}

pub mod driver {
    pub use crate::driver::{
        BoundInputs, BufferState, Cache, CallResult, Compilation, CompiledFile, Dims, Failing, Fill, Function, Given,
        LoadedModel, NoCache, Provided, Ready, Reported, Request, Session, Stage, Staged, Value, compile, input_types,
        interpret, mend_text, parse_size, reduce, run_limited,
    };

    pub mod bind {
        pub use crate::driver::bind::bind_inputs;
    }
    pub mod bisect {
        pub use crate::driver::bisect::{BisectOutcome, Blame, find_bad_node, find_bad_pass};
    }
    pub mod compare {
        pub use crate::driver::compare::Tolerance;
    }
    pub mod describe {
        pub use crate::driver::describe::{describe_cache, describe_file, describe_op};
    }
    pub mod files {
        pub use crate::driver::files::{write_bytes, write_tensors};
    }
    pub mod fill {
        pub use crate::driver::fill::filled_tensor;
    }
    pub mod form {
        pub use crate::driver::form::{PrintForm, fused_groups, write_form};
    }
    pub mod load {
        pub use crate::driver::load::parse_text;
    }
    pub mod run {
        pub use crate::driver::run::user_result;
    }
    pub mod sizes {
        pub use crate::driver::sizes::assumed_dims;
    }
    pub mod text {
        pub use crate::driver::text::Artifact;
    }
}

pub mod import {
    pub use crate::import::{bind_weights, read_exported, read_pt2, write_tensors};
}

pub mod kernel {
    pub use crate::kernel::{
        BufferRole, Cond, Index, IndexBound, Kernel, KernelBuilder, LARGE, ReduceOp, Value, verify,
    };

    pub mod python {
        pub use crate::kernel::python::print_function;
    }
}

pub mod lower {
    pub use crate::lower::lower_tir;

    pub mod ir {
        pub use crate::lower::ir::Tir;
    }
}

pub mod math {
    pub use crate::math::native_library;

    pub mod contract {
        pub use crate::math::contract::*;
    }
}

pub mod op {
    pub use crate::op::{
        Call, Effect, ExprText, Meaning, Op, OpId, ParamType, all, by_name, candidates, canonical_path, resolve,
    };

    pub mod examples {
        pub use crate::op::examples::all_examples;
    }
    pub mod random {
        pub use crate::op::random::{Generator, seed, with_stream};
    }
}

pub mod parallel {
    pub use crate::parallel::Pool;
}

pub mod runtime {
    pub use crate::runtime::{Executable, ProfileRow};
}

pub mod scalar {
    pub use crate::scalar::{Binary, Unary};
}

pub mod syntax {
    pub use crate::syntax::{format, parse};
}

pub mod target {
    pub use crate::target::{Isa, PairUnit, Target};
}

pub mod tensor {
    pub use crate::tensor::{AlignedBytes, Prefault, Scalar, SplitMix, Tensor};

    pub mod files {
        pub use crate::tensor::files::{read, write};
    }
}
