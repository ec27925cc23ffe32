//! The native half of the Python package `fxc`: calls of compiled models, and everything that works on graphs.
//!
//! ```text
//!   args, kwargs ──args──▶ Arguments ──inputs──▶ fxc::Compiled ──results──▶ arrays, tensors, numbers
//!                   │ ndarray, torch, dlpack: memory of Python's objects, borrowed
//! ```
//!
//! The Python half (`fxc/*.py`) exports modules, shows progress and writes HTML.

mod args;
mod array;
mod backend;
mod bisect;
mod dlpack;
mod dtype;
mod edit;
mod errors;
mod generate;
mod graph;
mod inputs;
mod literal;
mod model;
mod ndarray;
mod node;
mod process;
mod profile;
mod results;
mod scalar;
mod session;
mod settings;
mod show;
mod tools;
mod torch;
mod tree;
mod writes;

use pyo3::prelude::*;

/// Compilation allocates hundreds of thousands of small objects, for which the system's allocator takes a quarter of the time.
#[global_allocator]
static ALLOCATOR: fxc::BlockAllocator = fxc::BlockAllocator;

#[pymodule]
mod _fxc {
    #[pymodule_export]
    use crate::backend::{_check_text, PackingMemory, Part, Weights};
    #[pymodule_export]
    use crate::bisect::{bisect, interpret};
    #[pymodule_export]
    use crate::edit::{passes, rewrite_model, run_passes};
    #[pymodule_export]
    use crate::errors::{PyDiagnostic, PyLabel, PySpan, PySuggestion, explain};
    #[pymodule_export]
    use crate::generate::{PyGeneration, generate};
    #[pymodule_export]
    use crate::graph::PyGraph;
    #[pymodule_export]
    use crate::literal::PyLiteral;
    #[pymodule_export]
    use crate::model::CompiledModel;
    #[pymodule_export]
    use crate::node::PyNode;
    #[pymodule_export]
    use crate::process::{_after_fork_in_child, _flush_cache, get_num_threads, set_num_threads};
    #[pymodule_export]
    use crate::profile::{native_seconds, profile};
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::show::{check, describe, print_form, stage_text, write_file};
    #[pymodule_export]
    use crate::tools::{cache_info, clear_cache, fix, format, info, manual_seed, ops};
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(m: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::process::note_main_thread(m.py())
    }
}
