//! What inference finds besides types.

use super::Guard;
use crate::diag::Diagnostics;
use crate::types::Dim;
use std::sync::Arc;

/// The results of inference except the types, which are stored in the nodes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inference {
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
    /// Sizes that equations determined, for example `N` = 784.
    pub sizes: Vec<(Arc<str>, Dim)>,
    /// Equations between sizes that hold only for some inputs; they must be checked when the sizes are known.
    pub guards: Vec<Guard>,
}

impl Inference {
    /// Whether sizes satisfy all equations that the types rely on. Rules take two symbolic sizes for equal if they must be equal unless one of
    /// them is 1, so the types do not hold for sizes that broadcast.
    pub fn holds_for(&self, size: &dyn Fn(&str) -> Option<i64>) -> bool {
        let is_equal = |a: &Dim, b: &Dim| a.eval(size).is_some_and(|a| b.eval(size) == Some(a));
        self.sizes.iter().all(|(name, d)| is_equal(&Dim::var(name), d))
            && self.guards.iter().all(|g| is_equal(&g.left, &g.right))
    }
}
