//! The module that an interpreter runs.

use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::infer;
use std::sync::Arc;

/// The module to run: the given one, or a copy with its wrappers expanded.
#[derive(Clone)]
pub(super) enum RunnableModule<'m> {
    Given(&'m GraphModule),
    Written(Arc<GraphModule>),
}

impl<'m> RunnableModule<'m> {
    /// Returns the module to run, and why it cannot run, if it cannot.
    pub(super) fn for_module(module: &'m GraphModule) -> (RunnableModule<'m>, Option<Diagnostic>) {
        match infer::expand_wrappers(module) {
            Ok(Some(written)) => (RunnableModule::Written(Arc::new(written)), None),
            Ok(None) => (RunnableModule::Given(module), None),
            Err(d) => (RunnableModule::Given(module), Some(d)),
        }
    }
}

impl std::ops::Deref for RunnableModule<'_> {
    type Target = GraphModule;

    fn deref(&self) -> &GraphModule {
        match self {
            RunnableModule::Given(m) => m,
            RunnableModule::Written(m) => m,
        }
    }
}
