//! A cache of compiled functions, shared between sets of kernels.
//!
//! A kernel's code depends on its structure, not on its name. It hardly depends on the extent of its parallel loop
//! either, because the caller passes the range to run. So a model's kernels at one batch size are mostly the same as at
//! another, and are compiled once.

use super::CodegenOptions;
use super::row_plan::ROWS;
use crate::code::KernelFunction;
use crate::kernel::{Cond, Inst, Kernel, Stmt, Var, structural_key_with};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The key of a compiled function: the kernel's structure and the options.
pub(super) type FunctionKey = (Vec<u64>, CodegenOptions);

/// The functions that compiled kernels currently hold. A function is freed with the last kernels that use it.
#[derive(Default)]
pub(super) struct Cache(Mutex<FxHashMap<FunctionKey, Weak<KernelFunction>>>);

impl Cache {
    /// The cache that all executables of this process share.
    pub(super) fn of_process() -> Arc<Cache> {
        static CACHE: OnceLock<Arc<Cache>> = OnceLock::new();
        CACHE.get_or_init(Arc::default).clone()
    }

    pub(super) fn get(&self, key: &FunctionKey) -> Option<Arc<KernelFunction>> {
        self.0.lock().ok()?.get(key)?.upgrade()
    }

    pub(super) fn insert(&self, key: FunctionKey, function: &Arc<KernelFunction>) {
        let Ok(mut known) = self.0.lock() else { return };
        // Only when the map would grow, so that removing freed functions costs little per insertion.
        if known.len() == known.capacity() {
            known.retain(|_, f| f.strong_count() > 0);
        }
        known.insert(key, Arc::downgrade(function));
    }
}

/// The cache key of a kernel's function, with another extent of one loop variable.
pub(super) fn function_key(k: &Kernel, extent: Option<(Var, usize)>, options: CodegenOptions) -> FunctionKey {
    (structural_key_with(k, extent), options)
}

/// The number of iterations from which the extent no longer affects the code.
const MANY: usize = 1 << 20;

/// The outermost parallel loop's variable and an extent that represents all those which give the same code, if it is another. The
/// code gets its range from the caller. Only these decisions depend on the extent: the vector width
/// ([`wide`](super::wide)), running rows in lockstep ([`rows`](super::rows)), and which lengths count as long
/// (`analysis`).
pub(super) fn general_extent(k: &Kernel) -> Option<(Var, usize)> {
    let l = k.parallel_loop()?;
    let outer = l.vars[0];
    let class = match k.extent(outer) {
        n if l.vector && n >= 512 => MANY,
        n if !l.vector && n > 16 => MANY,
        n if !l.vector && n >= ROWS => ROWS,
        n if !l.vector && n > 0 => 1,
        n => n,
    };
    (class != k.extent(outer) && !has_guard_on(&k.body, outer)).then_some((outer, class))
}

/// The kernel with this extent of a loop variable.
pub(super) fn with_extent(k: &Kernel, extent: Option<(Var, usize)>) -> Cow<'_, Kernel> {
    let Some((var, extent)) = extent else {
        return Cow::Borrowed(k);
    };
    let mut k = k.clone();
    k.extents[var.0 as usize] = extent;
    Cow::Owned(k)
}

/// Whether a load condition depends on `var`. Then the extent decides which iterations satisfy it.
fn has_guard_on(body: &[Stmt], var: Var) -> bool {
    let on = |c: &Cond| c.expr.stride(var) != 0;
    body.iter().any(|s| match s {
        Stmt::Let(_, Inst::Load(_, _, Some(g))) => g.conds.iter().any(on),
        Stmt::Loop(l) => has_guard_on(&l.body, var),
        _ => false,
    })
}
