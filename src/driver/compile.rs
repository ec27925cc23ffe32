//! Runs all stages on a model, or the first ones, and collects their texts.

use super::code_source::CodeSource;
use super::declared::input_types;
use super::inputs::bind::{BoundInputs, Dims, Value};
use super::load::LoadedModel;
use super::ready::{self, Ready};
use super::session::{Reported, Session, Staged};
use super::show::text::{self, Artifact};
use super::stage::Stage;
use crate::diag::{Code, Diagnostic};
use crate::graph::GraphModule;
use crate::pass;
use crate::program::Program;
use crate::types::Type;
use std::sync::Arc;

/// What to compile, and how.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The input types, if inputs are given; else the declared types with the sizes of `dims`.
    pub inputs: Option<Vec<Type>>,
    /// Values of the symbolic sizes.
    pub dims: Dims,
    /// The number of threads; 0 means one per processor.
    pub threads: usize,
    /// The options of the passes.
    pub passes: pass::PassOptions,
    /// The texts to collect.
    pub artifacts: Vec<Artifact>,
    /// The last stage to run. Later stages run only if requested artifacts need them.
    pub until: Option<Stage>,
}

impl Request {
    /// The last stage whose text is requested.
    fn last_wanted_stage(&self) -> Option<Stage> {
        self.artifacts.iter().map(|a| a.stage()).max()
    }

    /// The last stage to run.
    fn last_stage(&self) -> Stage {
        let last_text = self.last_wanted_stage();
        let until = self.until.or(last_text).unwrap_or(Stage::Compile);
        until.max(last_text.unwrap_or(Stage::Load))
    }
}

/// The result of a compilation.
pub struct Compilation {
    /// The module after the last stage that changes graphs.
    pub module: GraphModule,
    /// The number of nodes of the entry graph before and after the passes.
    pub nodes: (usize, usize),
    /// The report of the passes, if they ran.
    pub report: Option<pass::PassReport>,
    /// The program, if lowering was the last stage and the graph can be compiled.
    pub program: Option<Program>,
    /// The runnable model, if it was requested. Models with data-dependent sizes have one too.
    pub ready: Option<Ready>,
    /// The requested texts, in the order of the request.
    pub texts: Vec<(Artifact, String)>,
}

/// The error for a request of compiled code for a graph that cannot be compiled.
pub(crate) fn nothing_compiled() -> Diagnostic {
    Diagnostic::new(Code::E0601, "no part of the graph can be compiled")
        .note("operations with data-dependent sizes run in the interpreter")
}

impl Compilation {
    /// A module before its first stage.
    fn new(module: GraphModule) -> Compilation {
        let nodes = module.entry().map_or(0, |g| g.len());
        Compilation {
            module,
            nodes: (nodes, nodes),
            report: None,
            program: None,
            ready: None,
            texts: vec![],
        }
    }

    /// Runs the compiled model. The new values of buffers and inputs are the leading results: see
    /// [`user_result`](super::run::user_result).
    pub fn run(&mut self, bound: &BoundInputs) -> Result<Value, Diagnostic> {
        match &mut self.ready {
            Some(ready) => ready.run_alone(&self.module, bound),
            None => Err(nothing_compiled()),
        }
    }
}

/// Runs the stages on a loaded model. The result can always run: if sizes depend on values, the operations before the
/// first such size are compiled and the others are interpreted, with the warning [`Code::L0003`].
pub fn compile(session: &mut Session, model: LoadedModel, request: &Request) -> Staged<Compilation> {
    let last_text = request.last_wanted_stage();
    let until = request.last_stage();
    let mut model = model;
    let code = model.code.take();
    if let Some(code) = &code {
        match compiled_before(session, code, &model.module, request, until)? {
            Some(compilation) => return Ok(compilation),
            None if model.partial => model.module = session.read_module(code)?,
            None => {}
        }
    }
    let mut texts = ArtifactTexts {
        wanted: &request.artifacts,
        made: vec![],
    };
    texts.add_tree(session, &model)?;
    let mut run = StageRun {
        reported: session.diagnostics.len(),
        session,
        request,
        wanted: last_text,
        texts,
        code,
        c: Compilation::new(model.module),
    };
    run.run_graph_stages(until)?;
    if until >= Stage::Lower {
        run.lower(until)?;
    }
    run.c.texts = run.texts.in_order();
    Ok(run.c)
}

/// The stages of one compilation.
struct StageRun<'a> {
    session: &'a mut Session,
    request: &'a Request,
    /// The last stage whose text is requested.
    wanted: Option<Stage>,
    texts: ArtifactTexts<'a>,
    /// The cache for compiled code.
    code: Option<Arc<CodeSource>>,
    /// The number of diagnostics before the first stage.
    reported: usize,
    c: Compilation,
}

impl StageRun<'_> {
    /// Checks and optimises the module.
    fn run_graph_stages(&mut self, until: Stage) -> Staged<()> {
        let (c, request) = (&mut self.c, self.request);
        self.texts.add_module(&c.module, Stage::Load);
        if until >= Stage::Check {
            let declared = || input_types(&c.module, &request.dims);
            let inputs = request.inputs.clone().unwrap_or_else(declared);
            self.session.check(&mut c.module, &inputs)?;
            self.texts.add_module(&c.module, Stage::Check);
        }
        if until >= Stage::Optimize {
            c.report = Some(self.session.optimize(&mut c.module, &request.passes)?);
            c.nodes.1 = c.module.entry().map_or(0, |g| g.len());
            self.texts.add_module(&c.module, Stage::Optimize);
        }
        Ok(())
    }

    /// Lowers the module, and compiles the program unless lowering is the last stage.
    fn lower(&mut self, until: Stage) -> Staged<()> {
        self.session
            .keep_tensor_ir(self.request.artifacts.contains(&Artifact::Tir));
        let mut lowered = ready::lower_module(self.session, &self.c.module, &self.request.dims)?;
        match &lowered.program {
            Some(program) => self.texts.add_texts(Stage::Lower, |a| match a {
                Artifact::Tir => text::tensor_ir(self.session.tensor_ir()),
                a => text::write_program(program, a),
            }),
            None if self.wanted >= Some(Stage::Lower) => {
                self.session
                    .report(lowered.nothing.take().unwrap_or_else(nothing_compiled));
                return Err(Reported);
            }
            None => {}
        }
        lowered.warning.take().into_iter().for_each(|w| self.session.report(w));
        if until == Stage::Lower {
            self.c.program = lowered.program;
            return Ok(());
        }
        let ready = lowered.compile(
            self.session,
            &self.c.module,
            self.request,
            self.wanted == Some(Stage::Compile),
        )?;
        if let Some(executable) = ready.executable() {
            self.texts
                .add_texts(Stage::Compile, |a| text::write_executable(executable, a));
        }
        if let (Some(code), Some(types)) = (&self.code, &self.request.inputs)
            // Code with warnings is not kept: a process that loads it would not report them.
            && self.session.diagnostics.len() == self.reported
        {
            code.keep(self.session, ready.whole_executable(), (types, &self.request.passes));
        }
        self.c.ready = Some(ready);
        Ok(())
    }
}

/// Answers the request from code that was compiled earlier, if possible.
fn compiled_before(
    session: &mut Session,
    code: &CodeSource,
    inputs: &GraphModule,
    request: &Request,
    until: Stage,
) -> Staged<Option<Compilation>> {
    if until < Stage::Compile || !request.artifacts.is_empty() {
        return Ok(None);
    }
    let declared = || input_types(inputs, &request.dims);
    let types = request.inputs.clone().unwrap_or_else(declared);
    let loaded = code.load_ready(session, inputs, &types, (&request.passes, request.threads))?;
    Ok(loaded.map(|(module, ready)| Compilation {
        nodes: (0, 0),
        module,
        report: None,
        program: None,
        ready: Some(ready),
        texts: vec![],
    }))
}

struct ArtifactTexts<'a> {
    wanted: &'a [Artifact],
    made: Vec<(Artifact, String)>,
}

impl ArtifactTexts<'_> {
    fn add_texts(&mut self, stage: Stage, text: impl Fn(Artifact) -> String) {
        for &a in self
            .wanted
            .iter()
            .filter(|a| a.stage() == stage && **a != Artifact::Ast)
        {
            self.made.push((a, text(a)));
        }
    }

    fn add_module(&mut self, m: &GraphModule, stage: Stage) {
        self.add_texts(stage, |a| text::write_module(m, a));
    }

    fn add_tree(&mut self, session: &mut Session, model: &LoadedModel) -> Staged<()> {
        if !self.wanted.contains(&Artifact::Ast) {
            return Ok(());
        }
        match &model.tree {
            Some(tree) => {
                self.made.push((
                    Artifact::Ast,
                    text::write_tree(tree, &session.sources.get(tree.span.file).text),
                ));
                Ok(())
            }
            None => {
                let title = format!("`{}` is an archive, which has no syntax tree", model.name);
                session.report(Diagnostic::new(Code::E0703, title).help("use `--emit graph` to print its graph"));
                Err(Reported)
            }
        }
    }

    fn in_order(self) -> Vec<(Artifact, String)> {
        let find = |a: &Artifact| self.made.iter().find(|(b, _)| a == b).cloned();
        self.wanted.iter().filter_map(find).collect()
    }
}
