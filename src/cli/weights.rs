//! Weights on the command line: the file to read them from, and the file to write next to a graph.

use super::print::{PrintForm, write_module};
use super::{App, Outcome, output};
use crate::diag::{Diagnostic, words};
use crate::driver::files;
use crate::graph::{self, GraphModule};
use crate::import;
use crate::tensor::Tensor;
use indexmap::IndexMap;
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where weights are read from, for commands that write none.
#[derive(clap::Args)]
pub(super) struct WeightsFile {
    /// Read parameters, buffers and constants from this file instead of the one that the model names
    #[arg(long = "weights", visible_alias = "weights-from", value_name = "FILE.safetensors")]
    path: Option<PathBuf>,
}

impl WeightsFile {
    /// Makes models that are loaded from now on use these weights.
    pub(super) fn apply(&self, app: &mut App) {
        app.session.weights = self.path.clone();
    }
}

/// Where weights are read from, for commands whose `--weights` writes them.
#[derive(clap::Args)]
pub(super) struct WeightsSource {
    /// Read parameters, buffers and constants from this file instead of the one that the model names
    #[arg(long = "weights-from", value_name = "FILE.safetensors")]
    path: Option<PathBuf>,
}

impl WeightsSource {
    /// Makes models that are loaded from now on use these weights.
    pub(super) fn apply(&self, app: &mut App) {
        app.session.weights = self.path.clone();
    }
}

/// The weights files that the texts of a command refer to.
#[derive(Default)]
pub(super) struct WeightsFiles {
    /// The values in the weights file of the model's text.
    values: HashSet<Arc<str>>,
    /// Weights files that must not be overwritten, because another text refers to them.
    taken: RefCell<HashSet<PathBuf>>,
}

impl WeightsFiles {
    /// For a model as it was loaded. FXIR cannot refer to the values of an archive.
    pub(super) fn from_module(m: &GraphModule) -> WeightsFiles {
        let values = m.attributes.iter().filter(|(_, a)| graph::print::is_stored(a));
        let names = values.map(|(n, _)| n.clone());
        WeightsFiles {
            values: m.weights.as_ref().map(|_| names.collect()).unwrap_or_default(),
            taken: RefCell::default(),
        }
    }

    /// Records a file that is named by texts other than those of the command.
    fn note_file(&self, file: &Path) {
        self.taken.borrow_mut().insert(canonical_path(file));
    }

    /// The weights file next to a text: it is named after the text, and belongs to no other text.
    fn sibling_file(&self, text: &str) -> PathBuf {
        let first = Path::new(text).with_extension("safetensors");
        let others = (1..).map(|i| match i {
            1 => format!("{text}.safetensors"),
            i => format!("{text}.{i}.safetensors"),
        });
        let mut taken = self.taken.borrow_mut();
        let mut free = std::iter::once(first.clone()).chain(others.map(PathBuf::from));
        free.find(|p| taken.insert(canonical_path(p))).unwrap_or(first)
    }
}

/// A canonical form of a file's path.
fn canonical_path(file: &Path) -> PathBuf {
    let dir = file.parent().filter(|d| !d.as_os_str().is_empty());
    let dir = std::fs::canonicalize(dir.unwrap_or(Path::new(".")));
    dir.unwrap_or_default().join(file.file_name().unwrap_or_default())
}

/// The destination of FXIR and its weights.
pub(super) struct FxirDestination<'a> {
    /// The model's path.
    pub source: &'a str,
    /// The FXIR file; `None` or `-` for standard output.
    pub output: Option<&'a str>,
    /// The requested weights file.
    pub weights: Option<&'a str>,
    /// How the user can get a text with all values, for a hint if this text lacks some; `None` if the text is for
    /// reading rather than running.
    pub how: Option<&'static str>,
}

/// The hint for commands with `-o` and `--weights`.
pub(super) const BY_OPTIONS: &str = "write them with `-o FILE` or `--weights FILE`";

/// Writes a module that a command has changed, in `form`.
pub(super) fn write_changed_module(
    app: &App,
    m: &mut GraphModule,
    form: PrintForm,
    held: &WeightsFiles,
    to: &FxirDestination,
) -> Outcome {
    if form == PrintForm::Fxir {
        keep_values(app, m, held, to)?;
    } else if let Some(path) = to.weights {
        import::write_weights(m, Path::new(path), |_, _| true)?;
    }
    output::write_artifact(to.output, write_module(m, form)?.as_bytes())
}

/// Makes a module that will be written as FXIR name a file with its weights. This is the file that it was read with, if
/// that has all of them. Otherwise it is the requested file or one next to the FXIR file, which this function writes.
pub(super) fn keep_values(app: &App, m: &mut GraphModule, held: &WeightsFiles, to: &FxirDestination) -> Outcome {
    let file = to.output.filter(|o| !files::is_stream(o));
    let stored: Vec<&str> = m
        .attributes
        .iter()
        .filter(|(_, a)| graph::print::is_stored(a))
        .map(|(n, _)| &**n)
        .collect();
    let lost = stored.iter().filter(|n| !held.values.contains(**n)).count();
    let elsewhere = file.is_some_and(|f| !stored.is_empty() && !names_own_folder(m, to.source, f));
    let output = file.filter(|f| (lost > 0 || elsewhere) && (!Path::new(f).exists() || Path::new(f).is_file()));
    let dir = Path::new(to.source).parent().unwrap_or(Path::new(""));
    let read = m.weights.iter().map(|(path, _)| dir.join(path));
    read.chain(app.session.weights.clone()).for_each(|f| held.note_file(&f));
    let output = output.map(|f| held.sibling_file(f).display().to_string());
    if let Some(path) = to.weights.map(str::to_string).or(output) {
        import::write_weights(m, Path::new(&path), |_, a| graph::print::is_stored(a))?;
        if to.weights.is_none() {
            app.show_progress(&format!("{path} contains {}", words::count(stored.len(), "weight")));
        }
        m.weights = Some((relative_path(&path, to.output), None));
        note_other_folder(app, m, to);
        return Ok(());
    }
    if let (1.., Some(advice)) = (lost, to.how) {
        let all = stored.len();
        app.show_progress(&format!(
            "note: the text does not contain the values of {lost} of {all} weights: {advice}"
        ));
    }
    carry_weights(m, to.source, to.output);
    Ok(())
}

/// Says that a text cannot be read without an option, if its weights were requested in another folder.
fn note_other_folder(app: &App, m: &GraphModule, to: &FxirDestination) {
    let Some(output) = to.output.filter(|o| !files::is_stream(o)) else {
        return;
    };
    if let (Some((path, _)), false) = (&m.weights, names_own_folder(m, output, output)) {
        let dir = Path::new(path).parent().unwrap_or(Path::new("/")).display();
        app.show_progress(&format!(
            "note: {output} names weights in another folder: commands that read it need `--allow-path {dir}`"
        ));
    }
}

/// Whether the weights file that a module names would be in the folder of the text `output` or below, as readers of the text
/// demand.
fn names_own_folder(m: &GraphModule, source: &str, output: &str) -> bool {
    let folder = |path: &str| Path::new(path).parent().unwrap_or(Path::new("")).to_path_buf();
    let inside = |(path, _): &(String, _)| files::in_folders(&folder(source).join(path), &[folder(output)]);
    m.weights.as_ref().is_none_or(inside)
}

/// Several FXIR files in one directory, and the weights file that they share.
pub(super) struct Dump {
    dir: PathBuf,
    source: String,
    held: WeightsFiles,
    /// The contents of the shared file.
    kept: IndexMap<Arc<str>, Tensor>,
}

impl Dump {
    /// An empty dump. The directory is created with the first file.
    pub(super) fn new(dir: &Path, source: &str) -> Dump {
        Dump {
            dir: dir.to_path_buf(),
            source: source.to_string(),
            held: WeightsFiles::default(),
            kept: IndexMap::new(),
        }
    }

    /// Records the contents of the source's weights file.
    pub(super) fn note_loaded(&mut self, m: &GraphModule) {
        self.held = WeightsFiles::from_module(m);
    }

    /// Writes a module to the file `NAME.fxir`.
    pub(super) fn write(&mut self, m: &GraphModule, name: &str) -> Result<(), Diagnostic> {
        let path = self.dir.join(format!("{name}.fxir"));
        std::fs::create_dir_all(&self.dir)
            .map_err(|e| files::unwritable_file(&self.dir, &files::plain_io_error(&e)))?;
        let mut m = m.clone();
        let stored: Vec<(Arc<str>, Tensor)> = m
            .attributes
            .iter()
            .filter(|(_, a)| graph::print::is_stored(a))
            .filter_map(|(n, a)| Some((n.clone(), a.value.clone()?)))
            .collect();
        let path_text = path.display().to_string();
        let held = stored.iter().all(|(n, _)| self.held.values.contains(n));
        if held && names_own_folder(&m, &self.source, &path_text) {
            carry_weights(&mut m, &self.source, Some(&path_text));
        } else {
            let weights = self.store_values(stored, name)?;
            m.weights = Some((weights, None));
        }
        files::write(&path, graph::print(&m).as_bytes())
    }

    /// The name of a file with these values: the shared one, unless a value has changed but kept its name.
    fn store_values(&mut self, stored: Vec<(Arc<str>, Tensor)>, name: &str) -> Result<String, Diagnostic> {
        let changed = stored.iter().any(|(n, v)| self.kept.get(n).is_some_and(|k| k != v));
        let file = if changed { name } else { "weights" };
        let file = format!("{file}.safetensors");
        let path = self.dir.join(&file);
        if changed {
            import::write_tensors(&path, stored.iter().map(|(n, v)| (&**n, v)))?;
        } else if stored.iter().any(|(n, _)| !self.kept.contains_key(n)) {
            self.kept.extend(stored);
            import::write_tensors(&path, self.kept.iter().map(|(n, v)| (&**n, v)))?;
        }
        Ok(file)
    }
}

/// The path of the weights file for the FXIR text: relative to the FXIR file if both are in the same directory.
fn relative_path(path: &str, output: Option<&str>) -> String {
    let dir = |p: &str| Path::new(p).parent().map(Path::to_path_buf).unwrap_or_default();
    match output.filter(|o| !files::is_stream(o)) {
        Some(o) if dir(o) == dir(path) => Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        Some(_) => std::path::absolute(path).map_or(path.to_string(), |p| p.display().to_string()),
        None => path.to_string(),
    }
}

/// Adjusts a weights path relative to the source so that it is also valid from the directory of the output.
fn carry_weights(m: &mut GraphModule, source: &str, output: Option<&str>) {
    let Some((path, span)) = m.weights.take() else { return };
    let dir = Path::new(source).parent().unwrap_or(Path::new(""));
    let same = output.is_none_or(|o| files::is_stream(o) || Path::new(o).parent().unwrap_or(Path::new("")) == dir);
    let path = if same || Path::new(&path).is_absolute() {
        path
    } else {
        std::path::absolute(dir.join(&path)).map_or(path, |p| p.display().to_string())
    };
    m.weights = Some((path, span));
}
