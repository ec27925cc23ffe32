//! Compiled files: inputs are read when a file is opened, code when a call needs it, and graphs only if necessary.

use super::code_source::CodeSource;
use super::load::{self, LoadOptions, LoadedModel};
use super::ready::Ready;
use super::routines::OpTable;
use super::session::{Reported, Session, Staged, thread_count};
use super::stage::{Stage, StageProduct};
use crate::artifact::{
    BUILD, CodeOptions, Container, Manifest, NativeEntry, Section, SectionKind, WeightRecord, check_native, damaged,
    load_native, mapped_tensor, open_compiled, read_key,
};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{self, Attribute, AttributeKind, CallSpec, GraphModule, Signature};
use crate::math;
use crate::pass::PassOptions;
use crate::program::Program;
use crate::runtime::{self, Executable};
use crate::source::Sources;
use crate::target::Target;
use crate::types::Type;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A compiled model's file. Its header, table and manifest have been read.
pub struct CompiledFile {
    container: Container,
    manifest: Manifest,
}

/// A section of a file.
pub struct SectionInfo {
    /// The name of its kind.
    pub name: &'static str,
    /// Whether it belongs to a native part.
    pub of_part: bool,
    /// The native part, or 0 if it belongs to none.
    pub part: u32,
    /// The length in bytes.
    pub bytes: usize,
}

/// The description of a native part.
pub struct PartInfo {
    /// Why it cannot run in this process, or `None` if it can.
    pub unfit: Option<String>,
    /// The build of fxc that compiled it.
    pub build: String,
    /// The architecture and system.
    pub platform: String,
    /// The features that the processor must support.
    pub features: Vec<String>,
    /// The types of the inputs.
    pub inputs: Vec<String>,
    /// The values of symbolic sizes.
    pub sizes: Vec<(String, i64)>,
    /// The number of steps that are kernels.
    pub kernels: usize,
    /// The number of steps that are contractions.
    pub contractions: usize,
    /// The size of intermediate values in bytes.
    pub arena: usize,
}

impl CompiledFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Arc<CompiledFile>, Diagnostic> {
        let (container, manifest) = open_compiled(path)?;
        Ok(Arc::new(CompiledFile { container, manifest }))
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// The build of fxc that wrote it.
    pub fn build(&self) -> &str {
        &self.manifest.fxc
    }

    /// The native parts.
    pub fn parts(&self) -> Vec<PartInfo> {
        let host = Target::native();
        let info = |e: &NativeEntry| PartInfo {
            unfit: e.why_unfit(host),
            build: e.build.clone(),
            platform: e.platform.clone(),
            features: e.features.clone(),
            inputs: e.inputs.clone(),
            sizes: e.sizes.clone(),
            kernels: e.steps[0],
            contractions: e.steps[1],
            arena: e.arena,
        };
        self.manifest.native.iter().map(info).collect()
    }

    /// The file's sections.
    pub fn sections(&self) -> Vec<SectionInfo> {
        let info = |s: &Section| SectionInfo {
            name: s.kind.name(),
            of_part: s.kind.is_of_part(),
            part: s.part,
            bytes: s.bytes.len(),
        };
        self.container.sections().iter().map(info).collect()
    }

    /// Verifies the checksums of all sections, including the weights', which reads the whole file. Also checks the
    /// programs that this build can read.
    pub fn verify(&self) -> Result<(), Diagnostic> {
        let mut sections = self.container.sections().iter();
        sections.try_for_each(|s| self.container.check(s).map(drop))?;
        for (i, entry) in self.manifest.native.iter().enumerate() {
            if entry.is_of_this_build() {
                read_key(&self.container, i as u32)?;
                check_native(&self.container, i as u32)?;
            }
        }
        Ok(())
    }

    /// The model with only its inputs: see [`LoadedModel::code`].
    pub(super) fn to_model(self: &Arc<CompiledFile>, sources: &mut Sources) -> Result<LoadedModel, Diagnostics> {
        Ok(LoadedModel {
            code: Some(Arc::new(CodeSource::File(self.clone()))),
            partial: true,
            ..LoadedModel::new(self.container.name(), self.read_inputs(sources)?)
        })
    }

    /// The model's inputs, as a module without the computation.
    pub(super) fn read_inputs(&self, sources: &mut Sources) -> Result<GraphModule, Diagnostics> {
        let text = self.container.read_text(SectionKind::Signature)?;
        let (tree, _, mut findings) = load::parse_text(sources, self.container.name(), text);
        let (mut module, built) = graph::build(&tree, &self.manifest.name);
        findings.extend(built);
        if findings.has_errors() || module.entry().is_none() {
            return Err(damaged(self.container.name(), "its list of inputs cannot be read").into());
        }
        module.exported = self.manifest.exported.then(Signature::default);
        self.describe_module(&mut module);
        Ok(module)
    }

    /// Adds what the manifest records to a module.
    fn describe_module(&self, module: &mut GraphModule) {
        module.name.clone_from(&self.manifest.name);
        module.call_spec = self.manifest.call.as_ref().map(|c| CallSpec {
            inputs: c.inputs.as_str().into(),
            results: c.results.as_str().into(),
            names: c.names.clone(),
        });
    }

    /// Reads the graphs with their weights.
    pub(super) fn read_graph(
        &self,
        sources: &mut Sources,
        options: &LoadOptions,
    ) -> (Option<LoadedModel>, Diagnostics) {
        if !self.has_graph() {
            let d = Diagnostic::new(
                Code::E0604,
                format!("`{}` has code only, and no graphs", self.container.name()),
            );
            return (None, d.help("use the model that it was compiled from").into());
        }
        let text = match self.container.read_text(SectionKind::Graph) {
            Ok(text) => text,
            Err(d) => return (None, d.into()),
        };
        let (model, mut findings) = load::load_text(sources, self.container.name(), text, None, options);
        let Some(mut model) = model else {
            return (None, findings);
        };
        self.describe_module(&mut model.module);
        match options.weights.is_some() {
            true => {}
            false => findings.extend(self.fill_weights(&mut model.module).err()),
        }
        (Some(model), findings)
    }

    /// [`CompiledFile::read_graph`] for a model of which only the inputs have been read.
    pub fn read_module(&self, sources: &mut Sources) -> Result<GraphModule, Diagnostics> {
        match self.read_graph(sources, &LoadOptions::default()) {
            (Some(model), findings) if !findings.has_errors() => Ok(model.module),
            (_, findings) => Err(findings),
        }
    }

    fn fill_weights(&self, module: &mut GraphModule) -> Result<(), Diagnostic> {
        let records: Vec<WeightRecord> = read_json(&self.container, SectionKind::WeightIndex)?;
        for r in records {
            let value = mapped_tensor(&self.container, r.dtype, &r.shape, r.at)?;
            let kind = match &*r.kind {
                "buffer" => AttributeKind::Buffer,
                "constant" => AttributeKind::Constant,
                _ => AttributeKind::Parameter,
            };
            let attribute = module.attributes.entry(r.name.into()).or_insert(Attribute {
                kind,
                ty: None,
                value: None,
                span: None,
            });
            attribute.value = Some(value);
        }
        Ok(())
    }

    /// Returns the executable for these input types, and the module that determines how inputs and results are
    /// converted. If no code in the file fits, reports that and returns `None`; the model must then be compiled
    /// again.
    pub(super) fn load_ready(
        &self,
        session: &mut Session,
        inputs: &GraphModule,
        types: &[Type],
        options: (&PassOptions, usize),
    ) -> Staged<Option<(GraphModule, Ready)>> {
        match self.load_fitting(session, inputs, types, options)? {
            Ok(ready) => Ok(Some(ready)),
            Err(reason) => self.refuse_or_note(session, reason).map(|()| None),
        }
    }

    /// [`CompiledFile::load_ready`] that returns the reason why no code fits.
    pub(super) fn load_fitting(
        &self,
        session: &mut Session,
        inputs: &GraphModule,
        types: &[Type],
        options: (&PassOptions, usize),
    ) -> Staged<Result<(GraphModule, Ready), String>> {
        let (passes, threads) = options;
        let part_or_reason = self.find_part(types, passes, session).map_err(|d| {
            session.report(d);
            Reported
        })?;
        let part = match part_or_reason {
            Ok(part) => part,
            Err(reason) => return Ok(Err(reason)),
        };
        let executable = self.load_part(session, part, threads)?;
        let module = with_state(inputs.clone(), executable.program());
        Ok(Ok((module, Ready::from_executable(executable))))
    }

    fn has_graph(&self) -> bool {
        self.container.find(SectionKind::Graph, 0).is_some()
    }

    /// Reports why the file's code is not used: as an error if the session must not compile or the file has no
    /// graphs, else as a note.
    fn refuse_or_note(&self, session: &mut Session, reason: String) -> Staged<()> {
        let name = self.container.name();
        if session.no_fallback || !self.has_graph() {
            let d = Diagnostic::new(Code::E0604, format!("no code in `{name}` can be used: {reason}"));
            session.report(d.help(
                "compile the model for this case with `fxc compile MODEL -o FILE.fxc`; use --at for further sizes",
            ));
            return Err(Reported);
        }
        let d = Diagnostic::new(Code::L0004, format!("`{name}` is recompiled: {reason}"));
        session.report(d.help("use --no-fallback to make this an error"));
        Ok(())
    }

    /// The part for these input types that uses the most processor features, or the reason why there is none.
    fn find_part(
        &self,
        types: &[Type],
        passes: &PassOptions,
        session: &Session,
    ) -> Result<Result<u32, String>, Diagnostic> {
        let required = code_options(passes, session);
        let Some(required) = required else {
            return Ok(Err("its code was compiled with different options".into()));
        };
        let host = session.target.unwrap_or_else(Target::native);
        let mut best: Option<(usize, u32)> = None;
        let mut reason = None;
        // This build may be unable to read the keys of parts that another build wrote.
        for (i, entry) in self.manifest.native.iter().enumerate() {
            if let Some(unfit) = entry.why_unfit(host) {
                reason.get_or_insert(unfit);
                continue;
            }
            if entry.options != required {
                reason = Some("its code was compiled with different options".to_string());
                continue;
            }
            if read_key(&self.container, i as u32)? != types {
                reason = Some(self.other_types(types));
                continue;
            }
            if best.is_none_or(|(features, _)| entry.features.len() > features) {
                best = Some((entry.features.len(), i as u32));
            }
        }
        let none = || reason.unwrap_or_else(|| "it contains no code".into());
        Ok(best.map(|(_, part)| part).ok_or_else(none))
    }

    fn other_types(&self, types: &[Type]) -> String {
        let required: Vec<String> = types.iter().map(show_type).collect();
        let mut have: Vec<String> = self.manifest.native.iter().map(|e| e.inputs.join(", ")).collect();
        have.dedup();
        format!(
            "it contains code for ({}), but the inputs are ({})",
            have.join("), ("),
            required.join(", ")
        )
    }

    fn load_part(&self, session: &mut Session, part: u32, threads: usize) -> Staged<Executable> {
        session.check_cancelled()?;
        let start = Instant::now();
        let entry = self.manifest.native.get(part as usize);
        let target = entry.and_then(NativeEntry::target).unwrap_or_default();
        let library = math::Native::for_target(target).exact(session.exact);
        let options = runtime::ExecutableOptions {
            pool: session.thread_pool(thread_count(threads)),
            library: Arc::new(library.precision(session.precision)),
            // The code in the file replaces this.
            compiler: Arc::new(crate::codegen::Jit::default()),
            routines: Arc::new(OpTable),
            shared: runtime::Shared::of_process(),
            cancel: session.cancel.clone(),
            target,
        };
        match load_native(&self.container, part, &options) {
            Ok(executable) => {
                session.took_time(Stage::Compile, StageProduct::Executable(&executable), start.elapsed());
                Ok(executable)
            }
            Err(d) => {
                session.report(d);
                Err(Reported)
            }
        }
    }
}

/// The name of this build of fxc, as files record it.
pub(crate) fn build_name() -> &'static str {
    BUILD
}

/// The module for a loaded executable: it has the buffers that runs update.
fn with_state(mut module: GraphModule, program: &Program) -> GraphModule {
    for input in &program.inputs {
        if let Some(state) = &input.state {
            let attribute = Attribute {
                kind: AttributeKind::Buffer,
                ty: None,
                value: Some(state.clone()),
                span: None,
            };
            module.attributes.insert(input.name.clone(), attribute);
        }
    }
    if let Some(graph) = module.entry_mut() {
        graph.mutations.clone_from(&program.mutations);
    }
    module
}

/// The options that affect the code; `None` if files cannot represent them.
pub(super) fn code_options(passes: &PassOptions, session: &Session) -> Option<CodeOptions> {
    let plain = PassOptions::default();
    let nameable = passes.limit.is_none() && passes.fold_limit == plain.fold_limit;
    nameable.then(|| CodeOptions {
        exact: session.exact,
        precision: session.precision,
        fast_math: passes.fast_math,
        skipped: passes.skip.clone(),
    })
}

/// An input's type as text.
pub(super) fn show_type(ty: &Type) -> String {
    ty.to_string()
}

fn read_json<T: DeserializeOwned>(container: &Container, kind: SectionKind) -> Result<T, Diagnostic> {
    let bytes = container.read(kind, 0)?;
    let read = serde_json::from_slice(bytes);
    read.map_err(|e| {
        damaged(
            container.name(),
            format!("the {} section is malformed: {e}", kind.name()),
        )
    })
}
