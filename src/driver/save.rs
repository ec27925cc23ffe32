//! Writes compiled models to files.

use super::compile::Request;
use super::compiled_file::{code_options, show_type};
use super::files::{plain_io_error, unwritable_file};
use super::function::Function;
use super::inputs::bind::BoundInputs;
use super::load::LoadedModel;
use super::session::{Reported, Session, Staged};
use crate::artifact::{
    BUILD, CallRecord, CodeOptions, ContainerWriter, Manifest, NativeEntry, NativeWriter, PartSource, SectionKind,
    WriteError, has_compiled_ending,
};
use crate::diag::{Code, Diagnostic};
use crate::graph::print::is_stored;
use crate::graph::{Arg, AttributeKind, Graph, GraphModule, print};
use crate::program::{Program, Step};
use crate::runtime::Executable;
use crate::target::Target;
use crate::types::{Type, Val};
use std::io;
use std::path::Path;

/// The contents of a file besides the model.
pub(crate) struct SaveRequest<'a> {
    /// How to compile it.
    pub request: &'a Request,
    /// The processors to compile for.
    pub targets: &'a [Target],
    /// The types of the inputs, with the sizes that they bind. Values are ignored.
    pub inputs: &'a [BoundInputs],
    /// Whether to leave out the graphs and their weights.
    pub code_only: bool,
}

/// A summary of the written file.
pub(crate) struct Saved {
    /// The number of native parts.
    pub parts: usize,
    /// The file's length in bytes.
    pub bytes: u64,
}

/// Compiles a model and writes it to a file with its code. A graph that is partly interpreted cannot be stored as code:
/// this is reported, and readers of the file compile the model again.
pub(crate) fn save_compiled(
    session: &mut Session,
    model: LoadedModel,
    save: &SaveRequest,
    path: &Path,
) -> Staged<Saved> {
    if !has_compiled_ending(path) {
        let d = unwritable_file(path, "a compiled model's name must end in .fxc");
        session.report(d);
        return Err(Reported);
    }
    let Some(options) = code_options(&save.request.passes, session) else {
        session.report(unwritable_file(
            path,
            "a compiled model cannot record these pass options",
        ));
        return Err(Reported);
    };
    let mut writer = SaveWriter {
        path,
        options,
        native: NativeWriter::default(),
        entries: vec![],
    };
    // Code in the form that files need costs memory, so executables for calls alone do not keep it.
    let before = (session.target, std::mem::replace(&mut session.keep_images, true));
    let saved = writer.write(session, &model, save);
    (session.target, session.keep_images) = before;
    saved
}

struct SaveWriter<'a> {
    path: &'a Path,
    options: CodeOptions,
    native: NativeWriter,
    entries: Vec<NativeEntry>,
}

impl SaveWriter<'_> {
    fn write(&mut self, session: &mut Session, model: &LoadedModel, save: &SaveRequest) -> Staged<Saved> {
        let failed = |session: &mut Session, path: &Path, e: &io::Error| {
            session.report(unwritable_file(path, &plain_io_error(e)));
            Reported
        };
        let file = ContainerWriter::create(self.path);
        let mut file = file.map_err(|e| failed(session, self.path, &e))?;
        let portable = file.add(SectionKind::Signature, 0, signature_text(&model.module).as_bytes());
        let portable = portable.and_then(|()| match save.code_only {
            true => Ok(()),
            false => self.write_graphs(&mut file, &model.module),
        });
        portable.map_err(|e| failed(session, self.path, &e))?;
        for &target in save.targets {
            session.target = Some(target);
            self.write_for_target(session, &mut file, model, save)?;
        }
        if save.code_only && self.entries.is_empty() {
            session.report(unwritable_file(self.path, "it would contain neither code nor graphs"));
            return Err(Reported);
        }
        let finished = self
            .write_manifest(&mut file, &model.module)
            .and_then(|()| file.finish());
        let bytes = finished.map_err(|e| failed(session, self.path, &e))?;
        let parts = self.entries.len();
        Ok(Saved { parts, bytes })
    }

    fn write_graphs(&mut self, file: &mut ContainerWriter, module: &GraphModule) -> io::Result<()> {
        let mut graph = module.clone();
        graph.weights = None;
        file.add(SectionKind::Graph, 0, print::print(&graph).as_bytes())?;
        let stored = module.attributes.iter().filter(|(_, a)| is_stored(a));
        let weights = stored.filter_map(|(n, a)| Some((&**n, a.value.as_ref()?)));
        let mut records = self.native.write_weights(file, weights)?;
        for r in &mut records {
            let kind = module.attributes.get(&*r.name).map(|a| a.kind);
            r.kind = match kind {
                Some(AttributeKind::Buffer) => "buffer",
                Some(AttributeKind::Constant) => "constant",
                _ => "parameter",
            }
            .into();
        }
        file.add(SectionKind::WeightIndex, 0, &to_json(&records)?)
    }

    fn write_manifest(&mut self, file: &mut ContainerWriter, module: &GraphModule) -> io::Result<()> {
        let manifest = manifest(module, std::mem::take(&mut self.entries));
        let written = to_json(&manifest).and_then(|json| file.add(SectionKind::Manifest, 0, &json));
        self.entries = manifest.native;
        written
    }

    /// Writes the parts for one processor. Parts for several sizes share common data.
    fn write_for_target(
        &mut self,
        session: &mut Session,
        file: &mut ContainerWriter,
        model: &LoadedModel,
        save: &SaveRequest,
    ) -> Staged<()> {
        let model = LoadedModel::new(model.name.clone(), model.module.clone());
        let mut function = Function::new(model, save.request.clone());
        for inputs in save.inputs {
            function.prepare(session, inputs)?;
            let Some(executable) = function.whole_executable() else {
                let d = Diagnostic::new(Code::L0004, format!("`{}` will contain no code", self.path.display()));
                session.report(
                    d.note("part of the graph is interpreted, so the model is recompiled when the file is loaded"),
                );
                continue;
            };
            let source = PartSource::of_executable(executable);
            match source.and_then(|source| self.native.write_part(file, &source, &inputs.types)) {
                Ok(()) => self
                    .entries
                    .push(native_entry(session, &self.options, executable, inputs)),
                Err(WriteError::NoForm(part)) => {
                    let d = Diagnostic::new(Code::L0004, format!("`{}` will contain no code", self.path.display()));
                    session.report(d.note(format!("{part} cannot be stored in a file")));
                }
                Err(WriteError::Io(e)) => {
                    session.report(unwritable_file(self.path, &plain_io_error(&e)));
                    return Err(Reported);
                }
            }
        }
        Ok(())
    }
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::other)
}

/// The manifest for a module and its native parts.
pub(super) fn manifest(module: &GraphModule, native: Vec<NativeEntry>) -> Manifest {
    let call = module.call_spec.as_ref().map(|c| CallRecord {
        inputs: c.inputs.to_string(),
        results: c.results.to_string(),
        names: c.names.clone(),
    });
    Manifest {
        fxc: BUILD.into(),
        name: module.name.clone(),
        exported: module.exported.is_some(),
        call,
        native,
    }
}

fn native_entry(
    session: &Session,
    options: &CodeOptions,
    executable: &Executable,
    inputs: &BoundInputs,
) -> NativeEntry {
    let target = session.target.unwrap_or_else(Target::native);
    let entry = NativeEntry {
        sizes: inputs.dims.iter().map(|(k, v)| (k.clone(), *v)).collect(),
        ..NativeEntry::new(target, options.clone())
    };
    describe_part(entry, executable.program(), &inputs.types)
}

/// The manifest entry of a native part, with a summary for users.
pub(super) fn describe_part(entry: NativeEntry, program: &Program, inputs: &[Type]) -> NativeEntry {
    let count = |is: fn(&Step) -> bool| program.steps.iter().filter(|s| is(s)).count();
    NativeEntry {
        inputs: inputs.iter().map(show_type).collect(),
        steps: [
            count(|s| matches!(s, Step::Kernel { .. })),
            count(|s| matches!(s, Step::Contract { .. })),
        ],
        arena: program.arena,
        ..entry
    }
}

/// [`signature_module`] as text.
pub(super) fn signature_text(module: &GraphModule) -> String {
    print::print(&signature_module(module))
}

/// The inputs of a module without the computation, for checking calls. The result only tells whether the module returns
/// a tuple.
pub(super) fn signature_module(module: &GraphModule) -> GraphModule {
    let mut inputs = Graph::new();
    if let Some(graph) = module.entry() {
        for n in graph.placeholders() {
            inputs.node_copy(graph, n, Val::Leaf);
        }
        let result = graph.output().and_then(|o| graph[o].args().first());
        let tuple = matches!(result, Some(Val::Tuple(_)));
        inputs.set_output(if tuple { Arg::Tuple(vec![]) } else { Arg::None });
    }
    GraphModule {
        dims: module.dims.clone(),
        guards: module.guards.clone(),
        ..GraphModule::new("main", inputs)
    }
}
