//! A compilation: the stages in order, their findings, and observers.

use super::cache::{Cache, PendingEntry};
use super::load::{self, LoadedModel};
use super::routines::OpTable;
use super::stage::{Observer, Stage, StageProduct};
use crate::codegen;
use crate::diag::{Code, Diagnostic, Diagnostics, limits};
use crate::graph::{self, Gaps, GraphModule};
use crate::infer::{self, InferOptions, Inference};
use crate::math::{self, contract::Precision};
use crate::parallel::{CancelToken, Pool};
use crate::pass;
use crate::program::Program;
use crate::rewrite::{self, Rule};
use crate::runtime::{self, Executable};
use crate::source::Sources;
use crate::syntax::ast;
use crate::target::Target;
use crate::types::Type;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Findings that stop the work have been reported to the session's [`Diagnostics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported;

/// A stage's result.
pub type Staged<T> = Result<T, Reported>;

/// One run of the compiler: its sources, findings and observers.
#[derive(Default)]
pub struct Session {
    /// All texts that were read.
    pub sources: Sources,
    /// The findings, each once, in the order of the stages.
    pub diagnostics: Diagnostics,
    /// Whether convolutions must be the sums of their products rather than use algorithms that round differently: see
    /// [`math::Native::exact`].
    pub exact: bool,
    /// What f32 products and convolutions multiply: see [`math::Native::precision`].
    pub precision: Precision,
    /// Whether exported programs keep their exported form, for printing: see [`load::load_model`].
    pub lifted: bool,
    /// Whether to report unused nodes also in traced graphs, whose nodes nobody wrote by hand.
    pub lints: bool,
    /// The processor features to compile for; `None` for those of the machine.
    pub target: Option<Target>,
    /// The weights file to read instead of the one that a model names, or for a model that names none.
    pub weights: Option<PathBuf>,
    /// The folders, besides that of a model, in which a weights file may be that the model names.
    pub allowed: Vec<PathBuf>,
    /// Whether compiled models are refused, because they contain machine code.
    pub no_code: bool,
    /// Whether it is an error if the code of a compiled model does not fit. Otherwise the model is compiled again.
    pub no_fallback: bool,
    /// The cache that code is read from and stored in.
    pub cache: Option<Arc<Cache>>,
    /// Code that will be written to the cache when there is time.
    pub pending: Vec<PendingEntry>,
    /// Whether to keep code in the form that can be written to a file.
    pub(super) keep_images: bool,
    /// Cancels the work before its next stage, pass or step.
    pub cancel: CancelToken,
    /// Whether the session compiles a region of a graph (`split`), which is not divided again.
    in_region: bool,
    observers: Vec<Box<dyn Observer + Send>>,
    /// The threads of the last executable, for reuse by the next one with the same number.
    pool: Option<Arc<Pool>>,
    /// The tensor IR after each step of the last lowering, if requested.
    pub(super) tensor_ir: Option<Vec<(&'static str, String)>>,
}

impl Session {
    /// An empty session.
    pub fn new() -> Session {
        Session::default()
    }

    /// A session that compiles regions of a graph while it runs, in the way of this one.
    pub(super) fn for_regions(&self) -> Session {
        Session {
            exact: self.exact,
            precision: self.precision,
            target: self.target,
            cancel: self.cancel.clone(),
            pool: self.pool.clone(),
            in_region: true,
            ..Session::default()
        }
    }

    /// Whether what follows data-dependent sizes is divided into regions.
    pub(super) fn has_regions(&self) -> bool {
        !self.in_region
    }

    /// Adds an observer of all further stages.
    pub fn observe(&mut self, observer: impl Observer + Send + 'static) {
        self.observers.push(Box::new(observer));
    }

    /// Reports a finding.
    pub fn report(&mut self, d: Diagnostic) {
        self.diagnostics.push(d);
    }

    /// Returns an error if the work was cancelled.
    pub(super) fn check_cancelled(&mut self) -> Staged<()> {
        if self.cancel.is_cancelled() {
            self.report(runtime::cancelled());
            return Err(Reported);
        }
        limits::check_time().map_err(|d| {
            self.report(d);
            Reported
        })
    }

    pub(super) fn took_since(&mut self, stage: Stage, product: StageProduct, start: Instant) {
        self.took_time(stage, product, start.elapsed());
    }

    pub(super) fn took_time(&mut self, stage: Stage, product: StageProduct, time: Duration) {
        self.observers
            .iter_mut()
            .for_each(|o| o.after_stage(stage, product, time));
    }

    /// Takes over a stage's findings. Returns an error if one of them is an error.
    pub(super) fn take_findings(&mut self, findings: Diagnostics) -> Staged<()> {
        let failed = findings.has_errors();
        self.diagnostics.extend(findings);
        if failed { Err(Reported) } else { Ok(()) }
    }

    /// Runs `work` and drops its warnings, because they have been reported before. Errors and the reason for
    /// interpretation are reported every time.
    pub(super) fn without_warnings<T>(&mut self, work: impl FnOnce(&mut Session) -> Staged<T>) -> Staged<T> {
        let before = std::mem::take(&mut self.diagnostics);
        let done = work(self);
        let findings = std::mem::replace(&mut self.diagnostics, before);
        let said = |d: &Diagnostic| d.is_error() || d.code == Code::L0003;
        self.diagnostics.extend(findings.into_iter().filter(said));
        done
    }

    /// Runs `work`. If it fails, returns its findings instead of reporting them.
    pub(super) fn catch_findings<T>(&mut self, work: impl FnOnce(&mut Session) -> Staged<T>) -> Result<T, Diagnostics> {
        let before = std::mem::take(&mut self.diagnostics);
        let done = work(self);
        let findings = std::mem::replace(&mut self.diagnostics, before);
        match done {
            Ok(v) => {
                self.diagnostics.extend(findings);
                Ok(v)
            }
            Err(Reported) => Err(findings),
        }
    }

    /// Runs `work`. Does not report failures.
    pub(super) fn try_work<T>(&mut self, work: impl FnOnce(&mut Session) -> Staged<T>) -> Option<T> {
        self.catch_findings(work).ok()
    }

    /// Reads a model: an FXIR or torch text, a .pt2 archive, or `-` for standard input. The content determines the
    /// kind.
    pub fn load(&mut self, path: &str) -> Staged<LoadedModel> {
        let model = self.load_any(path)?;
        if model.module.graphs.is_empty() {
            let d = Diagnostic::new(Code::E0113, format!("`{path}` contains rules but no graph"));
            self.report(d.help("pass the model, and its rules with --rules: `fxc rewrite MODEL --rules FILE`"));
            return Err(Reported);
        }
        Ok(model)
    }

    /// The rules of a file.
    pub fn load_rules(&mut self, path: &str) -> Staged<Vec<Rule>> {
        let model = self.load_any(path)?;
        let rules = match &model.tree {
            Some(tree) => self.check_rules(tree)?,
            None => vec![],
        };
        if rules.is_empty() {
            self.report(Diagnostic::new(Code::E0806, format!("`{path}` contains no rules")));
            return Err(Reported);
        }
        Ok(rules)
    }

    /// Compiles and checks the rules of a syntax tree.
    pub fn check_rules(&mut self, tree: &ast::File) -> Staged<Vec<Rule>> {
        let (rules, findings) = rewrite::compile(tree);
        self.take_findings(findings)?;
        Ok(rules)
    }

    /// [`Session::load`] for a file that may hold rules but no graph.
    pub fn load_any(&mut self, path: &str) -> Staged<LoadedModel> {
        let start = Instant::now();
        let options = self.load_options();
        let (model, findings) = load::load_model(&mut self.sources, path, &options);
        self.take_findings(findings)?;
        let model = model.ok_or(Reported)?;
        self.took_since(Stage::Load, StageProduct::Module(&model.module), start);
        Ok(model)
    }

    fn load_options(&self) -> load::LoadOptions {
        load::LoadOptions {
            lifted: self.lifted,
            weights: self.weights.clone(),
            allowed: self.allowed.clone(),
        }
    }

    /// [`Session::load`] for a text that is not in a file. Diagnostics refer to it as `name`.
    pub fn load_text(&mut self, name: &str, text: &str) -> Staged<LoadedModel> {
        self.load_text_in(name, text, None)
    }

    /// [`Session::load_text`] with a directory that is searched for the weights file.
    pub fn load_text_in(&mut self, name: &str, text: &str, directory: Option<PathBuf>) -> Staged<LoadedModel> {
        let start = Instant::now();
        let options = self.load_options();
        let (model, findings) = load::load_text(&mut self.sources, name, text, directory, &options);
        self.take_findings(findings)?;
        let model = model.ok_or(Reported)?;
        self.took_since(Stage::Load, StageProduct::Module(&model.module), start);
        Ok(model)
    }

    /// Lints the module and infers the type of every node. `inputs` are the types of the entry graph's inputs, which
    /// may be more specific than the declared types.
    pub fn check(&mut self, module: &mut GraphModule, inputs: &[Type]) -> Staged<()> {
        self.check_sizes(module, inputs).map(drop)
    }

    /// [`Session::check`] that also returns the sizes and equations that the types rely on.
    pub(super) fn check_sizes(&mut self, module: &mut GraphModule, inputs: &[Type]) -> Staged<Inference> {
        self.check_cancelled()?;
        let start = Instant::now();
        let linted = graph::lint(module);
        let sound = !linted.has_errors();
        // Nodes with lint findings get no further findings; the other nodes get types.
        let mut gaps = Gaps::default();
        gaps.add_findings(&linted);
        let inconsistent = linted.iter().any(|d| matches!(d.code, Code::E0107 | Code::E0109));
        let for_author = !self.lints && module.is_traced();
        let said = |d: &Diagnostic| !(for_author && d.code == Code::L0001);
        self.diagnostics.extend(linted.into_iter().filter(said));
        // Inference relies on valid names and users.
        if inconsistent {
            return Err(Reported);
        }
        let options = InferOptions {
            inputs: inputs.to_vec(),
        };
        let mut inference = infer::infer_around(module, &options, &gaps);
        self.take_findings(std::mem::take(&mut inference.diagnostics))?;
        if !sound {
            return Err(Reported);
        }
        self.took_since(Stage::Check, StageProduct::Module(module), start);
        Ok(inference)
    }

    /// Runs the passes over a checked module.
    pub fn optimize(&mut self, module: &mut GraphModule, options: &pass::PassOptions) -> Staged<pass::PassReport> {
        self.check_cancelled()?;
        let start = Instant::now();
        let observers = &mut self.observers;
        let mut observe =
            |run: &pass::PassRun, m: &GraphModule| observers.iter_mut().for_each(|o| o.after_pass(run, m));
        let report = pass::optimize_with(module, options, &mut observe);
        self.finish_optimize(module, report, start)
    }

    fn finish_optimize(
        &mut self,
        module: &GraphModule,
        report: Result<pass::PassReport, Diagnostics>,
        start: Instant,
    ) -> Staged<pass::PassReport> {
        let report = report.map_err(|findings| {
            self.diagnostics.extend(findings);
            Reported
        })?;
        self.took_since(Stage::Optimize, StageProduct::Module(module), start);
        Ok(report)
    }

    /// Runs a list of passes over a checked module.
    pub fn run_passes(
        &mut self,
        module: &mut GraphModule,
        manager: &mut pass::PassManager<'_>,
        options: &pass::PassOptions,
    ) -> Staged<pass::PassReport> {
        let start = Instant::now();
        let observers = &mut self.observers;
        let mut observe =
            |run: &pass::PassRun, m: &GraphModule| observers.iter_mut().for_each(|o| o.after_pass(run, m));
        let report = manager.run(module, options, &mut observe);
        self.finish_optimize(module, report, start)
    }

    /// Whether to keep the tensor IR of later lowerings as text.
    pub fn keep_tensor_ir(&mut self, keep: bool) {
        self.tensor_ir = keep.then(Vec::new);
    }

    /// The tensor IR as the last lowering read it, and after each of its steps, if requested.
    pub fn tensor_ir(&self) -> &[(&'static str, String)] {
        self.tensor_ir.as_deref().unwrap_or_default()
    }

    pub(super) fn thread_pool(&mut self, threads: usize) -> Arc<Pool> {
        match &self.pool {
            Some(p) if p.threads() == threads => p.clone(),
            _ => self.pool.insert(Pool::shared(threads)).clone(),
        }
    }

    /// Makes a program ready to run on `threads` threads (0 means one per processor). `text` keeps the text of its
    /// kernels' code.
    pub fn compile(&mut self, program: Program, threads: usize, text: bool) -> Staged<Executable> {
        self.check_cancelled()?;
        let library = self.target.map_or_else(math::native_library, math::Native::for_target);
        let options = runtime::ExecutableOptions {
            pool: self.thread_pool(thread_count(threads)),
            library: Arc::new(library.exact(self.exact).precision(self.precision)),
            compiler: Arc::new(codegen::Jit::new(self.codegen_options(text))),
            routines: Arc::new(OpTable),
            shared: runtime::Shared::of_process(),
            cancel: self.cancel.clone(),
            target: self.target.unwrap_or_else(Target::native),
        };
        match Executable::new(program, &options) {
            Ok(executable) => {
                let [code, packing] = executable.build_times();
                self.took_time(Stage::Compile, StageProduct::Executable(&executable), code);
                self.took_time(Stage::Pack, StageProduct::Executable(&executable), packing);
                Ok(executable)
            }
            Err(d) => {
                self.diagnostics.push(*d);
                Err(Reported)
            }
        }
    }
}

impl Session {
    fn codegen_options(&self, text: bool) -> codegen::CodegenOptions {
        codegen::CodegenOptions {
            text,
            target: self.target,
            image: self.keep_images || self.cache.is_some(),
            ..codegen::CodegenOptions::default()
        }
    }

    /// Compiles the kernels of a program to the bytes of an object file: see [`codegen::emit_object()`].
    pub fn compile_object(&mut self, program: &Program) -> Staged<Vec<u8>> {
        let object = codegen::emit_object(&program.kernels, self.codegen_options(false));
        object.map_err(|e| {
            let d = Diagnostic::new(Code::E0603, format!("the kernels failed to compile: {e}"));
            self.diagnostics
                .push(d.help("this is a bug in fxc; please report it with the graph"));
            Reported
        })
    }
}

/// The maximal number of threads of a pool. No machine has as many processors, and each thread takes memory.
pub(crate) const MAX_THREADS: usize = 1024;

/// The number of threads for a request of `threads`: 0 means one per processor, and more than [`MAX_THREADS`] that many.
pub(crate) fn thread_count(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n.min(MAX_THREADS),
    }
}
