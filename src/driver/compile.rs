//! A model all the way, or as far as is wanted, with the texts of the stages on the way.

use super::code_source::CodeSource;
use super::declared::input_types;
use super::inputs::bind::{BoundInputs, Dims, Value};
use super::load::LoadedModel;
use super::ready::{self, BufferState, Ready};
use super::session::{Reported, Session, Staged};
use super::show::text::{self, Artifact};
use super::stage::Stage;
use crate::diag::{Code, Diagnostic};
use crate::graph::GraphModule;
use crate::pass;
use crate::program::Program;
use crate::types::Type;

/// What to make of a model.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The types of the inputs, if inputs are given; else the declared types with `dims` put in.
    pub inputs: Option<Vec<Type>>,
    /// Values of the symbolic sizes.
    pub dims: Dims,
    /// Threads to compile for; 0 is one per processor.
    pub threads: usize,
    /// How to optimise.
    pub passes: pass::PassOptions,
    /// Texts to keep.
    pub artifacts: Vec<Artifact>,
    /// The last stage to run; later ones run only as far as the artifacts need them.
    pub until: Option<Stage>,
}

/// What was made.
pub struct Compilation {
    /// The module as the last graph stage left it.
    pub module: GraphModule,
    /// How many nodes the entry graph had at first, and has now.
    pub nodes: (usize, usize),
    /// What the passes did, if they ran.
    pub report: Option<pass::PassReport>,
    /// What was lowered, if that was the last stage and there was something to lower.
    pub program: Option<Program>,
    /// What runs, if it was asked for: always, also where sizes depend on values.
    pub ready: Option<Ready>,
    /// The texts asked for, in the order asked.
    pub texts: Vec<(Artifact, String)>,
}

/// What is said where compiled code is wanted of a graph that has none.
pub fn nothing_compiled() -> Diagnostic {
    Diagnostic::new(Code::E0601, "no part of the graph can be compiled")
        .note("operations with data-dependent sizes run in the interpreter")
}

impl Compilation {
    /// Runs what was compiled. New values of buffers and inputs lead the result, see
    /// [`user_result`](super::run::user_result).
    pub fn run(&mut self, bound: &BoundInputs) -> Result<Value, Diagnostic> {
        match &mut self.ready {
            Some(ready) => ready.run(&self.module, bound, &BufferState::new()),
            None => Err(nothing_compiled()),
        }
    }
}

/// Runs the stages on a loaded model. The result can always run: where sizes depend on values, the operations before these are
/// compiled and the others are interpreted, with the warning [`Code::L0003`].
pub fn compile(session: &mut Session, model: LoadedModel, request: &Request) -> Staged<Compilation> {
    let wanted = request.artifacts.iter().map(|a| a.stage()).max();
    let until = request
        .until
        .or(wanted)
        .unwrap_or(Stage::Compile)
        .max(wanted.unwrap_or(Stage::Load));
    let mut model = model;
    let code = model.code.take();
    if let Some(code) = &code {
        match compiled_before(session, code, &model.module, request, until)? {
            Some(made) => return Ok(made),
            None if model.partial => model.module = session.read_module(code)?,
            None => {}
        }
    }
    let reported = session.diagnostics.len();
    let nodes = model.module.entry().map_or(0, |g| g.len());
    let mut texts = ArtifactTexts {
        wanted: &request.artifacts,
        made: vec![],
    };
    texts.add_tree(session, &model)?;
    let mut c = Compilation {
        module: model.module,
        nodes: (nodes, nodes),
        report: None,
        program: None,
        ready: None,
        texts: vec![],
    };
    texts.add_module(&c.module, Stage::Load);
    if until >= Stage::Check {
        let inputs = request
            .inputs
            .clone()
            .unwrap_or_else(|| input_types(&c.module, &request.dims));
        session.check(&mut c.module, &inputs)?;
        texts.add_module(&c.module, Stage::Check);
    }
    if until >= Stage::Optimize {
        c.report = Some(session.optimize(&mut c.module, &request.passes)?);
        c.nodes.1 = c.module.entry().map_or(0, |g| g.len());
        texts.add_module(&c.module, Stage::Optimize);
    }
    if until >= Stage::Lower {
        session.keep_tensor_ir(request.artifacts.contains(&Artifact::Tir));
        let mut lowered = ready::lower_module(session, &c.module, &request.dims)?;
        match &lowered.program {
            Some(program) => texts.add_texts(Stage::Lower, |a| match a {
                Artifact::Tir => text::tensor_ir(session.tensor_ir()),
                a => text::write_program(program, a),
            }),
            None if wanted >= Some(Stage::Lower) => {
                session.report(lowered.nothing.take().unwrap_or_else(nothing_compiled));
                return Err(Reported);
            }
            None => {}
        }
        lowered.warning.take().into_iter().for_each(|w| session.report(w));
        if until == Stage::Lower {
            c.program = lowered.program;
        } else {
            let ready = lowered.compile(session, request.threads, wanted == Some(Stage::Compile))?;
            if let Some(executable) = ready.executable() {
                texts.add_texts(Stage::Compile, |a| text::write_executable(executable, a));
            }
            if let (Some(code), Some(types)) = (&code, &request.inputs)
                && session.diagnostics.len() == reported
            {
                code.keep(session, ready.whole_executable(), (types, &request.passes));
            }
            c.ready = Some(ready);
        }
    }
    c.texts = texts.in_order();
    Ok(c)
}

/// What a compiled model holds already of what is asked for.
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
