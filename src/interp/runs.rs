//! The module that an interpreter runs.

use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::infer;
use std::sync::Arc;

/// The module to run: the given one, or a copy with its wrappers expanded.
#[derive(Clone)]
pub(super) enum Runs<'m> {
    Given(&'m GraphModule),
    Written(Arc<GraphModule>),
}

impl<'m> Runs<'m> {
    /// Returns the module to run, and why it cannot run, if it cannot.
    pub(super) fn for_module(module: &'m GraphModule) -> (Runs<'m>, Option<Diagnostic>) {
        match infer::expand_wrappers(module) {
            Ok(Some(written)) => (Runs::Written(Arc::new(written)), None),
            Ok(None) => (Runs::Given(module), None),
            Err(d) => (Runs::Given(module), Some(d)),
        }
    }
}

impl std::ops::Deref for Runs<'_> {
    type Target = GraphModule;

    fn deref(&self) -> &GraphModule {
        match self {
            Runs::Given(m) => m,
            Runs::Written(m) => m,
        }
    }
}
