//! File access, with errors as diagnostics.

use crate::artifact::has_compiled_ending;
use crate::diag::{Code, Diagnostic};
use crate::fs;
use crate::tensor::Tensor;
use crate::tensor::files::{self, FileError, FileKind, FileRole, HEAD, Problem};
use crate::types::TensorType;
use std::io::Read;
use std::path::{Path, PathBuf};

const KINDS: &str = "tensors are read from .npy, .npz and .safetensors files";

/// The maximal length of a text: source positions are 32-bit.
const LONGEST: usize = 1 << 30;

/// The content of a model's file.
pub(crate) enum Content {
    /// A text, which may contain bytes that are not UTF-8.
    Text(Vec<u8>),
    /// A zip archive.
    Archive,
    /// A compiled model.
    Compiled,
}

/// Reads the file at `path` (standard input for `-`) if it may be a model. The first bytes of a file of another kind
/// suffice to recognise it, and nothing else of it is read (E0703).
pub(crate) fn read_model(path: &str) -> Result<Content, Diagnostic> {
    let cannot = |e: &std::io::Error| match path {
        "-" => {
            let title = format!("cannot read standard input: {}", plain_io_error(e));
            Diagnostic::new(Code::E0701, title)
        }
        _ => unreadable_file(Path::new(path), &plain_io_error(e)),
    };
    if Path::new(path).is_dir() {
        let d = Diagnostic::new(Code::E0701, format!("`{path}` is a directory"));
        return Err(d.help(FileKind::Binary.advice(FileRole::Model, path)));
    }
    let (mut file, limit) = fs::open_text(Path::new(path), LONGEST).map_err(|e| cannot(&e))?;
    let mut bytes = vec![];
    let head = file.by_ref().take(HEAD as u64).read_to_end(&mut bytes);
    head.map_err(|e| cannot(&e))?;
    if let Some(binary) = recognise_binary(path, &bytes)? {
        return Ok(binary);
    }
    let rest = file.take((limit - HEAD + 1) as u64).read_to_end(&mut bytes);
    rest.map_err(|e| cannot(&e))?;
    if bytes.len() > limit {
        return Err(too_large(path, limit));
    }
    // Some binary formats start with a line of text.
    match bytes.contains(&0) {
        true => Err(not_a_model(path, &FileKind::Binary)),
        false => Ok(Content::Text(bytes)),
    }
}

fn too_large(path: &str, limit: usize) -> Diagnostic {
    let name = display_name(path);
    let d = Diagnostic::new(
        Code::E0701,
        format!("`{name}` is too large: the limit for text is {limit} bytes"),
    );
    match limit < LONGEST {
        true => d.help("a text that is not in a file has a lower limit: write it to a file"),
        false => d,
    }
}

/// The kind of a model whose file begins with `head`; `None` for a text.
fn recognise_binary(path: &str, head: &[u8]) -> Result<Option<Content>, Diagnostic> {
    Ok(Some(match FileKind::of_head(head) {
        FileKind::Zip if is_stream(path) => {
            let reason = "its weights are memory-mapped, which requires a file";
            return Err(not_from_stdin("an archive", reason));
        }
        FileKind::Zip => Content::Archive,
        FileKind::Compiled if is_stream(path) => {
            let reason = "it is memory-mapped, which requires a file";
            return Err(not_from_stdin("a compiled model", reason));
        }
        // A damaged file may have lost the bytes that identify its format. The reader reports what is wrong.
        kind if kind == FileKind::Compiled || has_compiled_ending(Path::new(path)) => Content::Compiled,
        FileKind::Text => return Ok(None),
        kind => return Err(not_a_model(path, &kind)),
    }))
}

fn not_from_stdin(kind: &str, reason: &str) -> Diagnostic {
    Diagnostic::new(Code::E0703, format!("{kind} cannot be read from standard input"))
        .note(reason)
        .help("pass the file's name instead of `-`")
}

/// Whether the first bytes of a file are those of a zip archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    let mut head = vec![];
    let read = fs::open_regular(path).and_then(|(f, _)| f.take(HEAD as u64).read_to_end(&mut head));
    read.is_ok() && matches!(FileKind::of_head(&head), FileKind::Zip)
}

/// The name of a file, or of standard input, in messages.
pub(crate) fn display_name(path: &str) -> &str {
    match path {
        "-" => "<stdin>",
        _ => path,
    }
}

pub(super) fn not_a_model(path: &str, kind: &FileKind) -> Diagnostic {
    let name = display_name(path);
    let d = match kind {
        FileKind::Empty => Diagnostic::new(Code::E0113, format!("`{name}` is empty")),
        _ => Diagnostic::new(
            Code::E0703,
            format!("cannot read `{name}` as a model: the file is {kind}"),
        ),
    };
    d.help(kind.advice(FileRole::Model, name))
}

/// Whether a path is standard input or another open descriptor. What is read from it is gone.
pub(crate) fn is_stream(path: &str) -> bool {
    fs::is_stream(Path::new(path))
}

/// Whether a file is in one of the folders or below, after all symbolic links are followed.
pub(crate) fn in_folders(file: &Path, folders: &[PathBuf]) -> bool {
    fs::in_folders(file, folders)
}

/// [`write`] with the system's error.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::write(path, bytes)
}

/// Writes a whole file. A reader sees either the old content or the new one, and a failed write leaves the old one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    fs::write(path, bytes).map_err(|e| unwritable_file(path, &plain_io_error(&e)))
}

/// The error for a file that cannot be read (E0701).
pub(crate) fn unreadable_file(path: &Path, reason: &str) -> Diagnostic {
    Diagnostic::new(Code::E0701, format!("cannot read `{}`: {reason}", path.display()))
}

/// The error for a file that cannot be written (E0702).
pub(crate) fn unwritable_file(path: &Path, reason: &str) -> Diagnostic {
    Diagnostic::new(Code::E0702, format!("cannot write `{}`: {reason}", path.display()))
}

/// The text of an I/O error without Rust's `(os error 2)`.
pub(crate) fn plain_io_error(e: &std::io::Error) -> String {
    without_number(&e.to_string())
}

fn without_number(text: &str) -> String {
    text.split_once(" (os error").map_or(text, |(head, _)| head).to_string()
}

/// Reads the tensors of an `.npy`, `.npz` or `.safetensors` file in file order. The content determines the format. The
/// only tensor of an `.npy` file is named after the file. Returns an error if fxc does not support the element type of
/// one.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>, Diagnostic> {
    let read = |(name, array): Opened| match array {
        Ok(a) => a.read().map(|t| (name, t)),
        Err(ty) => Err(malformed_file(
            path,
            format!("array `{name}` has the unsupported element type {ty}"),
        )),
    };
    open_arrays(path)?.into_iter().map(read).collect()
}

/// A name and its array, or the name of an element type that fxc does not support.
pub(crate) type Opened = (String, Result<FileArray, String>);

/// [`read_tensors`] without the elements, so that headers can be compared with what is expected before memory is
/// allocated.
pub(crate) fn open_arrays(path: &Path) -> Result<Vec<Opened>, Diagnostic> {
    let file = files::open(path).map_err(|e| to_diagnostic(&e))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let shown = |name: &String| if name.is_empty() { stem.clone() } else { name.clone() };
    let array = |(name, array): (&String, &files::Array)| {
        let file = FileArray {
            path: path.to_owned(),
            name: name.clone(),
            array: array.clone(),
        };
        (shown(name), Ok(file))
    };
    let unsupported = file.unsupported.iter().map(|(name, ty)| (shown(name), Err(ty.clone())));
    Ok(file.arrays.iter().map(array).chain(unsupported).collect())
}

/// An array in a file, whose elements are read on request.
#[derive(Clone, Debug)]
pub struct FileArray {
    path: PathBuf,
    name: String,
    array: files::Array,
}

impl FileArray {
    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType::with_fixed_shape(self.array.dtype(), self.array.shape())
    }

    /// Reads the elements. Returns an error if the file is malformed (E0507), or if the elements need more memory than
    /// the system has (E0509).
    pub fn read(&self) -> Result<Tensor, Diagnostic> {
        self.array.read().map_err(|problem| {
            to_diagnostic(&FileError {
                path: self.path.clone(),
                tensor: Some(self.name.clone()),
                problem,
            })
        })
    }
}

/// The diagnostic for a file that cannot be read.
fn to_diagnostic(e: &FileError) -> Diagnostic {
    match &e.problem {
        Problem::Io(reason) => unreadable_file(&e.path, &without_number(reason)),
        Problem::Memory(_) => {
            let title = format!("cannot unpack `{}`: {}", e.path.display(), error_detail(e));
            Diagnostic::new(Code::E0509, title)
        }
        Problem::Kind(kind) => {
            let advice = kind.advice(FileRole::Inputs, &e.path.display().to_string());
            not_tensors(&e.path).note(format!("the file is {kind}")).help(advice)
        }
        _ => malformed_file(&e.path, error_detail(e)),
    }
}

fn error_detail(e: &FileError) -> String {
    match &e.tensor {
        Some(t) if !t.is_empty() => format!("tensor `{t}`: {}", e.problem),
        _ => e.problem.to_string(),
    }
}

fn malformed_file(path: &Path, reason: String) -> Diagnostic {
    not_tensors(path).note(reason).help(KINDS)
}

fn not_tensors(path: &Path) -> Diagnostic {
    Diagnostic::new(
        Code::E0507,
        format!("`{}` contains no readable tensors", path.display()),
    )
}

/// Writes named tensors in the format of the path's extension. An `.npy` file holds exactly one.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Diagnostic> {
    let list = tensors.iter().map(|(n, t)| (n.as_str(), t));
    files::write(path, list).map_err(|e| match &e.problem {
        Problem::Io(reason) => unwritable_file(path, &without_number(reason)),
        _ => {
            let title = format!("cannot write tensors to `{}`", path.display());
            Diagnostic::new(Code::E0703, title).note(error_detail(&e)).help(KINDS)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let d = read_tensors(Path::new("no/such/file.npz")).unwrap_err();
        assert_eq!(d.code, Code::E0701);
        assert_eq!(d.title, "cannot read `no/such/file.npz`: No such file or directory");
        let t = Tensor::scalar(1.0f32);
        let d = write_tensors(Path::new("no/such/file.npz"), &[("x".into(), t.clone())]).unwrap_err();
        assert_eq!(
            (d.code, d.title.as_str()),
            (
                Code::E0702,
                "cannot write `no/such/file.npz`: No such file or directory"
            )
        );
        assert_eq!(
            write_tensors(Path::new("x.csv"), &[("x".into(), t)]).unwrap_err().code,
            Code::E0703
        );
    }
}
