//! A model that was read or built.

use super::compiled::Compiled;
use super::error::Error;
use super::graphs::Graphs;
use super::options::Options;
use crate::budget::Limits;
use crate::diag::{Diagnostic, Diagnostics};
use crate::driver::{self, BoundInputs, SaveRequest, files};
use crate::graph::{Arg, Graph, GraphModule, print};
use crate::import;
use crate::pass::PassOptions;
use crate::source::Sources;
use crate::target::Target;
use crate::types::{Type, Val};
use std::path::Path;

/// An input or a result of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// Its type, whose sizes may be symbolic; `None` if it is unknown before a call.
    pub ty: Option<Type>,
}

/// A model: a graph, the graphs that it calls, and their weights.
#[derive(Clone)]
pub struct Model {
    pub(super) name: String,
    pub(super) graphs: Graphs,
    pub(super) sources: Sources,
    warnings: Diagnostics,
}

impl Model {
    /// Reads a file: a `.pt2` archive of `torch.export`, FXIR, a graph printed by torch, or a compiled model. The content determines the
    /// format. Weights are mapped, not read. The graphs of a compiled model are read on demand, and calls run its code: open only
    /// compiled models that you trust as you would trust a program.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open_with(path, &Options::new())
    }

    /// [`Model::open`] for a model that will be compiled with these options. With [`Options::cache`], the graphs of an archive whose code
    /// is in the cache are read on demand, as those of a compiled model.
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Model, Error> {
        // On the command line `-` is standard input; here it is a file's name.
        let path = match path.as_ref() {
            p if p == Path::new("-") => Path::new("./-"),
            p => p,
        };
        Model::load_with(options, |session| {
            session.cache = options.cache.clone();
            session.no_code = options.no_code;
            session.allowed = options.allowed.clone();
            session.weights = options.weights.clone();
            session.load_to_run(&path.to_string_lossy())
        })
    }

    /// Reads a text: FXIR, or a graph printed by torch. The path of its weights file is relative to the working directory.
    pub fn from_text(text: &str) -> Result<Model, Error> {
        Model::from_text_with(text, &Options::new())
    }

    /// [`Model::from_text`] for a model that will be compiled with these options.
    pub fn from_text_with(text: &str, options: &Options) -> Result<Model, Error> {
        Model::load_with(options, |session| {
            session.allowed = options.allowed.clone();
            session.weights = options.weights.clone();
            session.load_text("<text>", text)
        })
    }

    /// Reads a model from the content of a file: an archive, FXIR, or a graph printed by torch. An archive is copied, so the bytes are only
    /// needed during the call. Compiled models are only read from files.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, Error> {
        Model::from_bytes_with(bytes, &Options::new())
    }

    /// [`Model::from_bytes`] for a model that will be compiled with these options.
    pub fn from_bytes_with(bytes: &[u8], options: &Options) -> Result<Model, Error> {
        Model::load_with(options, |session| {
            session.allowed = options.allowed.clone();
            session.load_bytes("<bytes>", bytes)
        })
    }

    /// Reads a model within the limits of `options`: reading may refuse to allocate, which unwinds up to here.
    fn load_with(
        options: &Options,
        read: impl FnOnce(&mut driver::Session) -> driver::Staged<driver::LoadedModel>,
    ) -> Result<Model, Error> {
        options.run_limited(&Sources::new(), || {
            let mut session = driver::Session::new();
            match read(&mut session) {
                Ok(model) => Ok(Model {
                    name: model.name.clone(),
                    graphs: model.into(),
                    sources: session.sources,
                    warnings: session.diagnostics,
                }),
                Err(driver::Reported) => Err(Error::new(session.diagnostics, &session.sources)),
            }
        })
    }

    /// Writes the model as FXIR. Parameters, buffers and constants that are not part of the text are written to a safetensors file in the
    /// same directory, to which the text refers: `model.fxir` and `model.safetensors`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let saved = self.write_fxir(path);
        saved.map_err(|d| Error::new(d.into(), &self.sources))
    }

    fn write_fxir(&self, path: &Path) -> Result<(), Diagnostic> {
        let mut module = self.module().clone();
        module.weights = None;
        if module.attributes.values().any(print::is_stored) {
            let weights = path.with_extension("safetensors");
            if weights == path {
                let d = files::unwritable_file(path, "its weights file would have the same name");
                return Err(d.help("a model is saved as text: use another extension, such as `.fxir`"));
            }
            import::write_weights(&module, &weights, |_, a| print::is_stored(a))?;
            let name = weights.file_name().unwrap_or_default();
            module.weights = Some((name.to_string_lossy().into_owned(), None));
        }
        files::write(path, print::print(&module).as_bytes())
    }

    /// Writes the model to a file with its code, for inputs of the declared types; [`Options::dim`](super::Options::dim) sets symbolic
    /// sizes, [`Options::at`](super::Options::at) several in turn, and [`Options::target`](super::Options::target) processors. [`Model::open`] reads such a file (its name ends in `.fxc`), and calls then run without compilation. Calls with other sizes
    /// compile the graphs, which the file also contains.
    pub fn save_compiled(&self, path: impl AsRef<Path>, options: &Options) -> Result<(), Error> {
        let mut session = driver::Session::new();
        session.sources = self.sources.clone();
        session.exact = options.exact;
        session.precision = options.precision;
        session.cancel = options.cancel.clone();
        let inputs = self.inputs_to_prepare(options)?;
        let targets = match &options.targets[..] {
            [] => &[Target::native()],
            given => given,
        };
        let save = SaveRequest {
            request: &options.to_request(),
            targets,
            inputs: &inputs,
            code_only: options.code_only,
        };
        let model = driver::LoadedModel::new(self.name.clone(), self.module().clone());
        options.run_limited(&self.sources, || {
            let saved = driver::save_compiled(&mut session, model, &save, path.as_ref());
            saved
                .map(drop)
                .map_err(|driver::Reported| Error::new(std::mem::take(&mut session.diagnostics), &self.sources))
        })
    }

    /// The types to compile for before the first call.
    pub(super) fn inputs_to_prepare(&self, options: &Options) -> Result<Vec<BoundInputs>, Error> {
        let module = self.graphs.inputs();
        let all = options.prepared_sizes(module);
        let all = all.map_err(|found| Error::new(found, &self.sources))?.into_iter();
        let bound = all.map(|dims| BoundInputs {
            values: vec![],
            types: driver::input_types(module, &dims),
            dims,
        });
        Ok(bound.collect())
    }

    /// The graphs with everything they refer to. Those of a compiled model are read now. If this version cannot read them, the result has
    /// only the inputs.
    pub fn module(&self) -> &GraphModule {
        self.graphs.whole()
    }

    /// A module with the model's inputs, the name and the calling convention. It has the computation only if that was read already.
    #[doc(hidden)]
    pub fn signature(&self) -> &GraphModule {
        self.graphs.inputs()
    }

    /// The graphs for editing. The code of a compiled model is dropped.
    pub fn module_mut(&mut self) -> &mut GraphModule {
        self.graphs.whole_mut()
    }

    /// The graphs with everything they refer to.
    pub fn into_module(self) -> GraphModule {
        self.graphs.into_whole()
    }

    /// The source texts of the model, to which diagnostics refer.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The inputs, in order, with the types that the model declares.
    pub fn inputs(&self) -> Vec<ValueInfo> {
        let Some(graph) = self.graphs.inputs().entry() else {
            return vec![];
        };
        let placeholders = graph.placeholders().into_iter();
        let info = placeholders.map(|n| ValueInfo {
            name: graph[n].target().to_string(),
            ty: graph[n].meta.ty.clone().filter(|t| *t != Val::Unknown),
        });
        info.collect()
    }

    /// The tensors, numbers and strings of the result in flattened order, with the types that can be inferred. Their names are `output.0`,
    /// `output.1`, ….
    pub fn outputs(&self) -> Result<Vec<ValueInfo>, Error> {
        let mut module = self.module().clone();
        let mut session = driver::Session::new();
        let checked = session.run_limited(&Limits::default(), |s| s.check(&mut module, &[]));
        if checked.is_err() {
            return Err(Error::new(session.diagnostics, &self.sources));
        }
        let types = module.entry().map(result_types).unwrap_or_default();
        let info = types.into_iter().enumerate().map(|(i, ty)| ValueInfo {
            name: format!("output.{i}"),
            ty: Some(ty).filter(|t| *t != Val::Unknown),
        });
        Ok(info.collect())
    }

    /// The warnings of reading.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.warnings.iter()
    }

    /// Checks the model with its declared types, without compiling it. Returns the warnings.
    pub fn check(&self) -> Result<Vec<Diagnostic>, Error> {
        self.check_with(&Options::new())
    }

    /// [`Model::check`] within the limits of `options`.
    pub fn check_with(&self, options: &Options) -> Result<Vec<Diagnostic>, Error> {
        let mut session = driver::Session::new();
        let mut module = self.module().clone();
        match session.run_limited(&options.limits, |s| s.check(&mut module, &[])) {
            Ok(()) => Ok(session.diagnostics.into_iter().collect()),
            Err(driver::Reported) => Err(Error::new(session.diagnostics, &self.sources)),
        }
    }

    /// Runs the default passes on the model's graphs, as `fxc opt` does. `compile` runs them too; use this to inspect or save the
    /// optimised graph.
    pub fn optimize(&mut self) -> Result<(), Error> {
        let mut session = driver::Session::new();
        let mut module = self.module().clone();
        let done = session.run_limited(&Limits::default(), |s| {
            s.check(&mut module, &[])?;
            s.optimize(&mut module, &PassOptions::default())
        });
        match done {
            Ok(_) => {
                *self.module_mut() = module;
                Ok(())
            }
            Err(driver::Reported) => Err(Error::new(session.diagnostics, &self.sources)),
        }
    }

    /// Compiles the model. If all sizes are known, the code is generated now; code for other sizes is generated by the first call with
    /// them.
    pub fn compile(&self, options: &Options) -> Result<Compiled, Error> {
        options.run_limited(&self.sources, || Compiled::new(self.clone(), options.clone()))
    }
}

/// The types of a checked graph's results, flattened.
fn result_types(graph: &Graph) -> Vec<Type> {
    let output = graph.output().and_then(|o| graph[o].args().first());
    let type_of = |arg: &Arg| match arg {
        Val::Leaf(n) => graph[*n].meta.ty.clone().unwrap_or(Val::Unknown),
        other => other.try_map(&mut |_| Err(())).unwrap_or(Val::Unknown),
    };
    let types = output.map(Val::flatten).unwrap_or_default().into_iter().map(type_of);
    types
        .flat_map(|t| t.flatten().into_iter().cloned().collect::<Vec<_>>())
        .collect()
}

impl From<GraphModule> for Model {
    fn from(module: GraphModule) -> Model {
        Model {
            name: module.name.to_string(),
            graphs: module.into(),
            sources: Sources::new(),
            warnings: Diagnostics::new(),
        }
    }
}

/// A model with one graph and no weights.
impl From<Graph> for Model {
    fn from(graph: Graph) -> Model {
        GraphModule::new("main", graph).into()
    }
}
