//! Compile options.

use crate::driver::{Cache, Dims, Request};
use crate::parallel::CancelToken;
use crate::pass::PassOptions;
use std::sync::Arc;

/// Options for compiling a model. The defaults are those of `fxc compile`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) threads: usize,
    pub(super) exact: bool,
    pub(super) passes: PassOptions,
    pub(super) dims: Dims,
    pub(super) cancel: CancelToken,
    pub(super) no_fallback: bool,
    pub(super) cache: Option<Arc<Cache>>,
}

impl Options {
    /// The default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// The number of threads for a call, including the caller's; 0, the default, means one per processor.
    pub fn threads(mut self, threads: usize) -> Options {
        self.threads = threads;
        self
    }

    /// Whether to compute convolutions as sums of products, without algorithms that round differently (Winograd).
    pub fn exact(mut self, exact: bool) -> Options {
        self.exact = exact;
        self
    }

    /// The options for passes: which ones run, and custom rules.
    pub fn passes(mut self, passes: PassOptions) -> Options {
        self.passes = passes;
        self
    }

    /// Sets a symbolic size: `dim("N", 8)` for `%x : f32[N, 2]`. Calls with another size fail.
    pub fn dim(mut self, name: impl Into<String>, size: i64) -> Options {
        self.dims.insert(name.into(), size);
        self
    }

    /// Whether a compiled model without usable code for the inputs, the machine or this version is recompiled (`true`, the default, with a
    /// note, L0004) or reported as an error.
    pub fn fallback(mut self, allowed: bool) -> Options {
        self.no_fallback = !allowed;
        self
    }

    /// Whether code is kept in the user's cache of compiled models, and taken from there; `false` is the default. The option counts
    /// where models are read, [`Model::open_with`](super::Model::open_with), and where they are compiled.
    ///
    /// The folder is `FXC_CACHE_DIR`, or `fxc` in the user's folder for caches. `FXC_CACHE=off` turns the cache off, and
    /// `FXC_CACHE_SIZE` limits its size (`2GiB`). The code is written by a thread of its own after the first call;
    /// [`flush_cache`](crate::flush_cache) waits for it. A cache that cannot be used makes no call fail.
    pub fn cache(mut self, enabled: bool) -> Options {
        self.cache = enabled.then(|| Cache::of_user().ok()).flatten();
        self
    }

    /// Sets a token that can cancel compilations and calls.
    pub fn cancel(mut self, token: CancelToken) -> Options {
        self.cancel = token;
        self
    }

    pub(super) fn to_request(&self) -> Request {
        Request {
            threads: self.threads,
            passes: self.passes.clone(),
            dims: self.dims.clone(),
            ..Request::default()
        }
    }
}
