//! Sources of code that was compiled earlier.

use super::cache::CachedModel;
use super::compiled_file::CompiledFile;
use super::ready::Ready;
use super::session::{Session, Staged};
use crate::diag::Diagnostics;
use crate::graph::GraphModule;
use crate::pass::PassOptions;
use crate::runtime::Executable;
use crate::source::Sources;
use crate::types::Type;
use std::sync::Arc;

/// A source of code for a model.
pub enum CodeSource {
    /// A compiled model that the user loaded.
    File(Arc<CompiledFile>),
    /// The cache. It affects only the duration of calls.
    Cache(Box<CachedModel>),
}

impl CodeSource {
    /// Reads the graphs of a model of which only the inputs have been read.
    pub fn read_module(&self, sources: &mut Sources) -> Result<GraphModule, Diagnostics> {
        match self {
            CodeSource::File(file) => file.read_module(sources),
            CodeSource::Cache(model) => model.read_module(),
        }
    }

    /// The executable for these input types, and the module that determines how inputs and results are converted.
    /// `None` if the model must be compiled.
    pub(super) fn load_ready(
        &self,
        session: &mut Session,
        inputs: &GraphModule,
        types: &[Type],
        options: (&PassOptions, usize),
    ) -> Staged<Option<(GraphModule, Ready)>> {
        match self {
            CodeSource::File(file) => file.load_ready(session, inputs, types, options),
            CodeSource::Cache(model) => model.load_ready(session, inputs, types, options),
        }
    }

    /// Stores code that was compiled for these input types in the cache.
    pub(super) fn keep(&self, session: &mut Session, executable: Option<&Executable>, key: (&[Type], &PassOptions)) {
        if let (CodeSource::Cache(model), Some(executable)) = (self, executable) {
            model.keep(session, executable, key);
        }
    }
}
