//! Files, with errors as diagnostics.

use crate::diag::{Code, Diagnostic};
use crate::tensor::Tensor;
use crate::tensor::files::{self, FileError, Problem};
use crate::types::TensorType;
use std::path::{Path, PathBuf};

const KINDS: &str = ".npy, .npz and .safetensors files hold tensors";

/// A file's bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    std::fs::read(path).map_err(|e| unreadable(path, &plain(&e)))
}

/// Writes a file whole.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    std::fs::write(path, bytes).map_err(|e| unwritable(path, &plain(&e)))
}

/// A finding that a file cannot be read (E0701).
pub fn unreadable(path: &Path, why: &str) -> Diagnostic {
    Diagnostic::new(Code::E0701, format!("cannot read `{}`: {why}", path.display()))
}

fn unwritable(path: &Path, why: &str) -> Diagnostic {
    Diagnostic::new(Code::E0702, format!("cannot write `{}`: {why}", path.display()))
}

/// An I/O error without Rust's `(os error 2)`.
pub fn plain(e: &std::io::Error) -> String {
    without_number(&e.to_string())
}

fn without_number(text: &str) -> String {
    text.split_once(" (os error").map_or(text, |(head, _)| head).to_string()
}

/// The tensors of an `.npy`, `.npz` or `.safetensors` file in its order; the content says which it is. The only one of an
/// `.npy` file is named after the file. Arrays of elements that tensors do not have (text, dates) are left out.
pub fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>, Diagnostic> {
    let all = open_arrays(path)?.into_iter();
    all.map(|(n, a)| a.read().map(|t| (n, t))).collect()
}

/// [`read_tensors`] as far as headers go: what they say can be held against what is wanted before memory is taken.
pub fn open_arrays(path: &Path) -> Result<Vec<(String, FileArray)>, Diagnostic> {
    let file = files::open(path).map_err(|e| finding(&e))?;
    if let (true, Some((name, ty))) = (file.arrays.is_empty(), file.unsupported.first()) {
        let what = if name.is_empty() {
            "the array".to_string()
        } else {
            format!("array `{name}`")
        };
        return Err(malformed(path, format!("{what} has elements of type {ty}")));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let named = |(name, array): (String, files::Array)| {
        let file = FileArray {
            path: path.to_owned(),
            name: name.clone(),
            array,
        };
        (if name.is_empty() { stem.clone() } else { name }, file)
    };
    Ok(file.arrays.into_iter().map(named).collect())
}

/// An array of a file, whose elements are read when they are wanted.
#[derive(Clone, Debug)]
pub struct FileArray {
    path: PathBuf,
    name: String,
    array: files::Array,
}

impl FileArray {
    /// Its type.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.array.dtype(), self.array.shape())
    }

    /// The array with its elements; an error if the file is malformed (E0507), or if they need more memory than the system has
    /// (E0509).
    pub fn read(&self) -> Result<Tensor, Diagnostic> {
        self.array.read().map_err(|problem| {
            finding(&FileError {
                path: self.path.clone(),
                tensor: Some(self.name.clone()),
                problem,
            })
        })
    }
}

/// What is said of a file that cannot be read.
fn finding(e: &FileError) -> Diagnostic {
    match &e.problem {
        Problem::Io(why) => unreadable(&e.path, &without_number(why)),
        Problem::Memory(_) => {
            let title = format!("`{}` cannot be unpacked: {}", e.path.display(), detail(e));
            Diagnostic::new(Code::E0509, title)
        }
        _ => malformed(&e.path, detail(e)),
    }
}

fn detail(e: &FileError) -> String {
    match &e.tensor {
        Some(t) if !t.is_empty() => format!("tensor `{t}`: {}", e.problem),
        _ => e.problem.to_string(),
    }
}

fn malformed(path: &Path, why: String) -> Diagnostic {
    let title = format!("`{}` does not hold tensors", path.display());
    Diagnostic::new(Code::E0507, title).note(why).help(KINDS)
}

/// Writes named tensors in the format of the path's extension. An `.npy` file holds exactly one.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Diagnostic> {
    let list = tensors.iter().map(|(n, t)| (n.as_str(), t));
    files::write(path, list).map_err(|e| match &e.problem {
        Problem::Io(why) => unwritable(path, &without_number(why)),
        _ => {
            let title = format!("cannot write tensors to `{}`", path.display());
            Diagnostic::new(Code::E0703, title).note(detail(&e)).help(KINDS)
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
