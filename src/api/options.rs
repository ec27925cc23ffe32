//! How a model is compiled.

use crate::driver::{Dims, Request};
use crate::parallel::CancelToken;
use crate::pass::PassOptions;

/// How a model is compiled. The default is what `fxc compile` does without flags.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) threads: usize,
    pub(super) exact: bool,
    pub(super) passes: PassOptions,
    pub(super) dims: Dims,
    pub(super) cancel: CancelToken,
    pub(super) no_fallback: bool,
}

impl Options {
    /// The default options.
    pub fn new() -> Options {
        Options::default()
    }

    /// How many threads a call runs on, the caller's included; 0, the default, is one per processor.
    pub fn threads(mut self, threads: usize) -> Options {
        self.threads = threads;
        self
    }

    /// Whether convolutions are the sums of their products, and no algorithm that rounds differently (Winograd) takes their place.
    pub fn exact(mut self, exact: bool) -> Options {
        self.exact = exact;
        self
    }

    /// How the graph is optimised: which passes run, and rules of your own.
    pub fn passes(mut self, passes: PassOptions) -> Options {
        self.passes = passes;
        self
    }

    /// Fixes a symbolic size: `dim("N", 8)` for `%x : f32[N, 2]`. Calls with another size fail.
    pub fn dim(mut self, name: impl Into<String>, size: i64) -> Options {
        self.dims.insert(name.into(), size);
        self
    }

    /// Whether a compiled model whose code does not fit the inputs, the machine or this version is compiled anew (`true`, the default, with a
    /// note, L0004), or is an error.
    pub fn fallback(mut self, allowed: bool) -> Options {
        self.no_fallback = !allowed;
        self
    }

    /// Lets whoever holds the token stop compiling and calls.
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
