//! Compile options.

use super::error::Error;
use crate::budget::Limits;
use crate::diag::Diagnostics;
use crate::driver::sizes::{self, SizeList};
use crate::driver::{self, Cache, Dims, Request};
use crate::graph::GraphModule;
use crate::math::contract::Precision;
use crate::parallel::CancelToken;
use crate::pass::PassOptions;
use crate::source::Sources;
use crate::target::Target;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for compiling a model. The defaults are those of `fxc compile`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) threads: usize,
    pub(super) exact: bool,
    pub(super) precision: Precision,
    pub(super) passes: PassOptions,
    pub(super) dims: Dims,
    pub(super) cancel: CancelToken,
    pub(super) no_fallback: bool,
    pub(super) cache: Option<Arc<Cache>>,
    pub(super) targets: Vec<Target>,
    pub(super) at: Vec<SizeList>,
    pub(super) code_only: bool,
    pub(super) no_code: bool,
    pub(super) limits: Limits,
    pub(super) allowed: Vec<PathBuf>,
    pub(super) weights: Option<PathBuf>,
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

    /// What f32 products and convolutions multiply: f32, the default, or operands that are rounded to bf16, with f32 sums.
    /// Convolutions for which f32 is faster, and everything else in the model, stay f32.
    pub fn precision(mut self, precision: Precision) -> Options {
        self.precision = precision;
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

    /// Sizes to compile for before the first call: `at("N", [1, 8])`. Names of the same size are separated by commas
    /// (`"N,M"`); `x[0]` is a dimension of an input. Several lists are combined. A file that
    /// [`save_compiled`](super::Model::save_compiled) writes has code for each combination; calls with other sizes
    /// compile.
    pub fn at(mut self, names: &str, sizes: impl IntoIterator<Item = i64>) -> Options {
        self.at.push(SizeList {
            names: names.split(',').map(|n| n.trim().to_string()).collect(),
            sizes: sizes.into_iter().collect(),
        });
        self
    }

    /// Adds a processor to compile for, instead of the machine's: `target(Target::parse("x86-64-v3")?)`. A file that
    /// [`save_compiled`](super::Model::save_compiled) writes has code for each processor that was added, and loading
    /// it selects the code that uses the most features of the machine. Code for calls in this process is compiled for
    /// the last processor.
    pub fn target(mut self, target: Target) -> Options {
        self.targets.push(target);
        self
    }

    /// Whether [`save_compiled`](super::Model::save_compiled) leaves the graphs and their weights out of the file. Such a file is half as
    /// large, but it only runs, and only where its code fits.
    pub fn code_only(mut self, code_only: bool) -> Options {
        self.code_only = code_only;
        self
    }

    /// Whether [`Model::open_with`](super::Model::open_with) accepts compiled models, which contain machine code;
    /// `true` is the default. Programs should not accept them if others can choose which files they open.
    pub fn allow_code(mut self, allowed: bool) -> Options {
        self.no_code = !allowed;
        self
    }

    /// Accepts weights files in this folder that the text of a model names, in [`Model::open_with`](super::Model::open_with) and
    /// [`Model::from_text_with`](super::Model::from_text_with). Otherwise they must be in the folder of the text, or in the
    /// working directory for a text that is not in a file (E0410).
    pub fn allow_path(mut self, folder: impl Into<PathBuf>) -> Options {
        self.allowed.push(folder.into());
        self
    }

    /// Reads the weights from this `.safetensors` file, instead of those that the model names or contains, in
    /// [`Model::open_with`](super::Model::open_with) and [`Model::from_text_with`](super::Model::from_text_with).
    pub fn weights(mut self, file: impl Into<PathBuf>) -> Options {
        self.weights = Some(file.into());
        self
    }

    /// Whether a compiled model without usable code for the inputs, the machine or this version is recompiled (`true`, the default, with a
    /// note, L0004) or reported as an error.
    pub fn fallback(mut self, allowed: bool) -> Options {
        self.no_fallback = !allowed;
        self
    }

    /// Whether code is read from and stored in the user's cache of compiled models; `false` is the default. The
    /// option applies to opening models, [`Model::open_with`](super::Model::open_with), and to compiling them.
    ///
    /// The folder is `FXC_CACHE_DIR`, or `fxc` in the user's cache folder. `FXC_CACHE=off` turns the cache off, and
    /// `FXC_CACHE_SIZE` limits its size (`2GiB`). A background thread writes the code after the first call;
    /// [`flush_cache`](crate::flush_cache) waits for it. Calls do not fail if the cache is unusable.
    pub fn cache(mut self, enabled: bool) -> Options {
        self.cache = enabled.then(|| Cache::of_user().ok()).flatten();
        self
    }

    /// The memory that fxc may hold in this process while it opens, compiles or calls the model, in bytes: results, intermediate values and
    /// packed weights, but not mapped files. Work that needs more fails with E0509, before it allocates. The default is what the
    /// machine has available. Programs whose allocator is [`CountingAllocator`](crate::CountingAllocator) count all of their heap.
    pub fn max_memory(mut self, bytes: usize) -> Options {
        self.limits.memory = Some(bytes);
        self
    }

    /// The number of nodes that the model's graphs may have after inlining, with the items of nested values; the default is
    /// [`Limits::NODES`]. A larger model fails with E0114.
    pub fn max_nodes(mut self, nodes: usize) -> Options {
        self.limits.nodes = Some(nodes);
        self
    }

    /// The time that opening, compiling or a call may take. It is checked between passes, nodes and steps: work that takes longer fails
    /// with E0513 at the next of them. The default is any time.
    pub fn max_time(mut self, time: Duration) -> Options {
        self.limits.time = Some(time);
        self
    }

    /// Sets a token that can cancel compilations and calls.
    pub fn cancel(mut self, token: CancelToken) -> Options {
        self.cancel = token;
        self
    }

    /// Sets all limits at once: [`Options::max_memory`], [`Options::max_nodes`] and [`Options::max_time`].
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// The sizes to compile for before the first call: one entry for each combination of [`Options::at`].
    pub(super) fn prepared_sizes(&self, module: &GraphModule) -> Result<Vec<Dims>, Diagnostics> {
        let fixed = self.dims.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let all = sizes::combine_sizes(fixed, &self.at).into_iter();
        let resolved = all.map(|given| match sizes::resolve_dims(module, &given) {
            (_, found) if found.has_errors() => Err(found),
            // This error names the unknown sizes.
            (dims, _) => sizes::assumed_dims(module, dims.clone())
                .map(|_| dims)
                .map_err(Diagnostics::from),
        });
        resolved.collect()
    }

    /// Runs work within the limits.
    pub(super) fn run_limited<R>(
        &self,
        sources: &Sources,
        work: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        driver::run_limited(&self.limits, work).unwrap_or_else(|refusal| Err(Error::new((*refusal).into(), sources)))
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
