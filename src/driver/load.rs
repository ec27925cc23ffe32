//! Loads a module of graphs from a path or a text.

use super::code_source::CodeSource;
use super::compiled_file::CompiledFile;
use super::files::{self, Content};
use super::session::{Reported, Session, Staged};
use super::stage::{Stage, StageProduct};
use crate::artifact::has_compiled_ending;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{self, Gaps, GraphModule};
use crate::import;
use crate::infer::{self, InferOptions};
use crate::rewrite;
use crate::source::{FileId, Sources, Span};
use crate::syntax::{self, ast};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options for reading a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadOptions {
    /// Whether an exported program keeps its exported form: its parameters are inputs, and its weights are not read.
    pub lifted: bool,
    /// The file to read the weights from. It overrides what the model names or contains.
    pub weights: Option<PathBuf>,
    /// The folders, besides that of the model's file, in which a weights file may be that the text names.
    pub allowed: Vec<PathBuf>,
}

/// A model that was read.
pub struct LoadedModel {
    /// The name by which the user referred to it.
    pub name: String,
    /// The graphs. Weights in files are mapped.
    pub module: GraphModule,
    /// The syntax tree of the text; `None` for an archive.
    pub tree: Option<ast::File>,
    /// The source of code that was compiled earlier.
    pub code: Option<Arc<CodeSource>>,
    /// Whether only the inputs of `module` have been read. The graphs are read from `code` when a call needs them.
    pub partial: bool,
}

impl LoadedModel {
    /// A model from a module that the program built.
    pub fn new(name: impl Into<String>, module: GraphModule) -> LoadedModel {
        LoadedModel {
            name: name.into(),
            module,
            tree: None,
            code: None,
            partial: false,
        }
    }
}

impl Session {
    /// [`Session::load`] for running. Only the inputs of a compiled model, or of a model in the cache, are read
    /// before the first call.
    pub fn load_to_run(&mut self, path: &str) -> Staged<LoadedModel> {
        let is_file = path != "-" && has_compiled_ending(Path::new(path));
        if !is_file && self.cache.is_some() {
            return self.load_cached(path);
        }
        if !is_file || self.weights.is_some() || self.lifted {
            return self.load(path);
        }
        if self.no_code {
            let d = Diagnostic::new(
                Code::E0409,
                format!("`{path}` is a compiled model, and code is not allowed here"),
            );
            self.report(d.help("`fxc print FILE.fxc -o model.fxir` writes its graph, which is data"));
            return Err(Reported);
        }
        let start = Instant::now();
        let opened = CompiledFile::open(Path::new(path)).map_err(Diagnostics::from);
        let opened = opened.and_then(|file| file.to_model(&mut self.sources));
        let model = opened.map_err(|findings| {
            self.diagnostics.extend(findings);
            Reported
        })?;
        self.took_since(Stage::Load, StageProduct::Module(&model.module), start);
        Ok(model)
    }

    /// Reads the graphs of a model of which only the inputs have been read.
    pub(super) fn read_module(&mut self, code: &CodeSource) -> Staged<GraphModule> {
        code.read_module(&mut self.sources).map_err(|findings| {
            self.diagnostics.extend(findings);
            Reported
        })
    }
}

/// Reads a model from a path or, for `-`, from standard input.
pub(crate) fn load_model(
    sources: &mut Sources,
    path: &str,
    options: &LoadOptions,
) -> (Option<LoadedModel>, Diagnostics) {
    match files::read_model(path) {
        Ok(Content::Archive) => load_archive(Path::new(path), options),
        Ok(Content::Compiled) => match CompiledFile::open(Path::new(path)) {
            Ok(file) => file.read_graph(sources, options),
            Err(d) => (None, d.into()),
        },
        Ok(Content::Text(bytes)) => {
            let mut options = options.clone();
            // Where the file is that a link leads to, its weights may be too.
            options.allowed.extend(real_folder(path));
            let (name, text) = (files::display_name(path), String::from_utf8_lossy(&bytes));
            load_text(sources, name, &text, folder(path), &options)
        }
        Err(d) => (None, d.into()),
    }
}

/// The folder of a text; `None` for one that is in no folder.
pub(crate) fn folder(path: &str) -> Option<PathBuf> {
    Path::new(path)
        .parent()
        .filter(|_| !files::is_stream(path))
        .map(Path::to_path_buf)
}

/// The folder of the file that a path leads to through symbolic links.
fn real_folder(path: &str) -> Option<PathBuf> {
    folder(path)?;
    Some(Path::new(path).canonicalize().ok()?.parent()?.to_path_buf())
}

fn load_archive(path: &Path, options: &LoadOptions) -> (Option<LoadedModel>, Diagnostics) {
    let read = if options.lifted {
        import::read_exported
    } else {
        import::read_pt2
    };
    match read(path) {
        Ok((mut module, mut findings)) => {
            if let Some(weights) = options.weights.as_ref().filter(|_| !options.lifted) {
                findings.extend(import::replace_weights(&mut module, weights));
            }
            (Some(LoadedModel::new(path.display().to_string(), module)), findings)
        }
        Err(findings) => (None, findings),
    }
}

/// The syntax tree of a text, and the file under which it was registered.
pub fn parse_text(sources: &mut Sources, name: &str, text: &str) -> (ast::File, FileId, Diagnostics) {
    let file = sources.add(name, text);
    let (tree, findings) = syntax::parse(sources, file);
    (tree, file, findings)
}

/// Reads a model from a text. `dir` is searched for its weights file.
pub(crate) fn load_text(
    sources: &mut Sources,
    name: &str,
    text: &str,
    dir: Option<PathBuf>,
    options: &LoadOptions,
) -> (Option<LoadedModel>, Diagnostics) {
    let (tree, _, mut findings) = parse_text(sources, name, text);
    if findings.has_errors() && Gaps::from_findings(&tree, &findings).is_none() {
        return (None, findings);
    }
    let (mut module, built) = graph::build(&tree, &file_stem(name));
    findings.extend(built);
    if findings.has_errors() {
        return (None, survey_file(module, &tree, findings));
    }
    if !findings.has_errors() {
        let fitted = fit_signature(&mut module, &tree, options.lifted);
        findings.extend(fitted.err());
    }
    let has_rules = tree.items.iter().any(|i| matches!(i, ast::Item::Rewrite(_)));
    if module.graphs.is_empty() && !has_rules && !findings.has_errors() {
        let d = Diagnostic::new(Code::E0113, format!("`{name}` contains no graph"));
        findings.push(d.help("write `graph main { … }`, or paste the output of torch's print(graph)"));
    }
    if !findings.has_errors() {
        findings.extend(bind_weights(&mut module, dir, options));
    }
    (
        Some(LoadedModel {
            name: name.to_string(),
            module,
            tree: Some(tree),
            code: None,
            partial: false,
        }),
        findings,
    )
}

/// Reads the weights from the given file, or else from the file that the text names.
fn bind_weights(module: &mut GraphModule, dir: Option<PathBuf>, options: &LoadOptions) -> Diagnostics {
    match (&options.weights, &module.weights) {
        (Some(weights), _) => {
            let path = std::path::absolute(weights).unwrap_or_else(|_| weights.clone());
            module.weights = Some((path.display().to_string(), None));
            import::replace_weights(module, weights)
        }
        (None, Some((path, span))) => {
            let dir = dir.unwrap_or_default();
            let path = dir.join(path);
            let mut allowed = vec![dir];
            allowed.extend_from_slice(&options.allowed);
            match files::in_folders(&path, &allowed) {
                true => import::bind_weights(module, &path),
                false => outside_folder(&path, *span).into(),
            }
        }
        (None, None) => Diagnostics::new(),
    }
}

/// The error for a weights file that a text names but that is elsewhere: texts come from others, and files of the user are
/// none of their business.
fn outside_folder(path: &Path, at: Option<Span>) -> Diagnostic {
    let shown = path.display();
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let d = Diagnostic::new(
        Code::E0410,
        format!("the weights file `{shown}` is outside the folder of the graph"),
    );
    let d = d.at_opt(at, "named here");
    let d = match real.as_path() == path {
        true => d,
        false => d.note(format!("it is `{}`", real.display())),
    };
    let folder = real.parent().unwrap_or(Path::new("/")).display().to_string();
    d.help(format!(
        "if you trust the text, pass `--weights {shown}` or `--allow-path {folder}`"
    ))
}

/// Finds further errors in a file of which parts could not be read or built, in text order, so that one run reports
/// everything.
fn survey_file(mut module: GraphModule, tree: &ast::File, mut findings: Diagnostics) -> Diagnostics {
    let Some(mut gaps) = Gaps::from_findings(tree, &findings) else {
        return findings;
    };
    let linted = graph::lint_around(&module, &gaps);
    gaps.add_findings(&linted);
    let inferred = infer::infer_around(&mut module, &InferOptions::default(), &gaps).diagnostics;
    let rules_read = |i: &ast::Item| match i {
        ast::Item::Rewrite(r) => !findings.iter().any(|d| {
            d.labels
                .first()
                .is_some_and(|l| r.span.range().contains(&(l.span.start as usize)))
        }),
        _ => true,
    };
    let rules = match tree.items.iter().all(rules_read) {
        true => rewrite::compile(tree).1,
        false => Diagnostics::new(),
    };
    let later = linted.into_iter().chain(inferred).chain(rules);
    findings.extend(later.filter(Diagnostic::is_error));
    findings.sort_by_place();
    findings
}

/// Converts the module to its exported form (`lifted`) or to the one with attributes.
fn fit_signature(module: &mut GraphModule, tree: &ast::File, lifted: bool) -> Result<(), Diagnostic> {
    let says = |i: &ast::Item| match i {
        ast::Item::Graph(g) => g.signature.as_ref().map(|s| s.span),
        ast::Item::Signature(s) => Some(s.span),
        _ => None,
    };
    let Some(place) = tree.items.iter().find_map(says) else {
        return Ok(());
    };
    let (fitted, help) = match (&module.exported, lifted) {
        // Check here that the signature fits, whoever uses it later.
        (Some(_), _) => {
            let mut exported = module.clone();
            let fitted = graph::lift(&mut exported);
            if lifted {
                *module = exported;
            }
            (fitted, "correct it, or remove it: the graph runs without a signature")
        }
        (None, false) => (
            graph::unlift(module),
            "paste the complete output of `print(exported_program)`",
        ),
        (None, true) => return Ok(()),
    };
    fitted.map_err(|reason| {
        let title = format!("the signature does not match the graph: {reason}");
        Diagnostic::new(Code::E0013, title)
            .at(place, "signature of this program")
            .help(help)
    })
}

/// The file's name without directory and extension.
fn file_stem(name: &str) -> String {
    Path::new(name)
        .file_stem()
        .map_or_else(|| name.to_string(), |s| s.to_string_lossy().into_owned())
}
