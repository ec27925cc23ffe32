//! Compiled functions that several sets of kernels share.
//!
//! A kernel's code depends on its structure, not on its name, and hardly on how far its parallel loop goes: the caller says which
//! part of that to run. So the kernels of a model at one batch size are mostly those at another, and are compiled once.

use super::CodegenOptions;
use super::row_plan::ROWS;
use crate::code::KernelFunction;
use crate::kernel::{Cond, Inst, Kernel, Stmt, Var, structural_key};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// What a function was compiled from: a kernel's structure and the options.
pub(super) type FunctionKey = (Vec<u64>, CodegenOptions);

/// The functions that compiled kernels hold now; they go with the last kernels that have them.
#[derive(Default)]
pub struct Cache(Mutex<HashMap<FunctionKey, Weak<KernelFunction>>>);

impl Cache {
    /// The functions that all executables of this process share.
    pub(super) fn of_process() -> Arc<Cache> {
        static CACHE: OnceLock<Arc<Cache>> = OnceLock::new();
        CACHE.get_or_init(Arc::default).clone()
    }

    pub(super) fn get(&self, key: &FunctionKey) -> Option<Arc<KernelFunction>> {
        self.0.lock().ok()?.get(key)?.upgrade()
    }

    pub(super) fn insert(&self, key: FunctionKey, function: &Arc<KernelFunction>) {
        let Ok(mut known) = self.0.lock() else { return };
        if known.len() == known.capacity() {
            known.retain(|_, f| f.strong_count() > 0);
        }
        known.insert(key, Arc::downgrade(function));
    }
}

/// What a kernel's function is found by.
pub(super) fn function_key(k: &Kernel, options: CodegenOptions) -> FunctionKey {
    (structural_key(k), options)
}

/// Iterations from which on nothing is decided by how many there are.
const MANY: usize = 1 << 20;

/// The kernel for every number of iterations of its outermost parallel loop that makes the same code: the code takes the range
/// from its caller, and only the choice of vectors ([`wide`](super::wide)), of rows in step ([`rows`](super::rows)) and the
/// length that counts as long (`analysis`) look at how many there are.
pub(super) fn generalize_extent(k: &Kernel) -> Cow<'_, Kernel> {
    let Some(l) = k.parallel_loop() else {
        return Cow::Borrowed(k);
    };
    let outer = l.vars[0];
    let class = match k.extent(outer) {
        n if l.vector && n >= 512 => MANY,
        n if !l.vector && n > 16 => MANY,
        n if !l.vector && n >= ROWS => ROWS,
        n if !l.vector && n > 0 => 1,
        n => n,
    };
    if class == k.extent(outer) || has_guard_on(&k.body, outer) {
        return Cow::Borrowed(k);
    }
    let mut k = k.clone();
    k.extents[outer.0 as usize] = class;
    Cow::Owned(k)
}

/// Whether a condition of a load depends on `var`: which of its iterations pass is decided from their number.
fn has_guard_on(body: &[Stmt], var: Var) -> bool {
    let on = |c: &Cond| c.expr.stride(var) != 0;
    body.iter().any(|s| match s {
        Stmt::Let(_, Inst::Load(_, _, Some(g))) => g.conds.iter().any(on),
        Stmt::Loop(l) => has_guard_on(&l.body, var),
        _ => false,
    })
}
