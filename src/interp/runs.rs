//! The module whose graphs run.

use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::infer;
use std::sync::Arc;

/// The module that runs: the one that was given, or a copy with its wrappers written out.
#[derive(Clone)]
pub(super) enum Runs<'m> {
    Given(&'m GraphModule),
    Written(Arc<GraphModule>),
}

impl<'m> Runs<'m> {
    /// What runs of a module, and why it cannot run.
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
