//! Arrays in files, given as inputs on the command line.

use crate::diag::{Code, Diagnostic};
use crate::driver::files::FileArray;
use crate::driver::{Given, files};
use crate::types::{Dim, Type, Val};
use std::path::Path;

/// An array in a file, if it has the type written with it.
pub(super) fn array_of_type(array: FileArray, ty: &Type) -> Result<Given, String> {
    let actual = array.ty();
    let same = |d: &Dim, f: &Dim| d.as_const().is_none() || d == f;
    let fits = match ty {
        Val::Leaf(t) => {
            let sizes = t.shape.as_ref().zip(actual.shape.as_ref());
            let shapes = sizes.is_none_or(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)));
            t.dtype == actual.dtype && shapes
        }
        _ => false,
    };
    match fits {
        true => Ok(Given::File(array)),
        false => Err(format!("the file contains {actual}")),
    }
}

/// The only array of a file, or the one named after the last colon (`in.npz:x`). `None` if there is no such file and
/// the text does not look like a path.
pub(super) fn find_array(value: &str) -> Result<Option<FileArray>, Diagnostic> {
    let (path, name) = match value.rsplit_once(':') {
        Some((p, n)) if !Path::new(value).exists() => (p, Some(n)),
        _ => (value, None),
    };
    if !Path::new(path).exists() && !has_array_extension(Path::new(path)) {
        return Ok(None);
    }
    let mut list = files::open_arrays(Path::new(path))?;
    let names: Vec<String> = list.iter().map(|(n, _)| format!("`{n}`")).collect();
    let index = match name {
        Some(n) => list.iter().position(|(k, _)| k == n),
        None => (list.len() == 1).then_some(0),
    };
    match index.map(|i| list.swap_remove(i)) {
        Some((_, Ok(array))) => Ok(Some(array)),
        Some((name, Err(ty))) => {
            let title = format!("`{path}` contains no array of a supported type");
            Err(Diagnostic::new(Code::E0507, title)
                .note(format!("array `{name}` has the unsupported element type {ty}")))
        }
        None => {
            let title = match name {
                Some(n) => format!("`{path}` contains no array `{n}`"),
                None => format!("`{path}` contains {} arrays", list.len()),
            };
            Err(Diagnostic::new(Code::E0507, title)
                .note(format!("it contains {}", names.join(", ")))
                .help(format!("select one with `{path}:NAME`")))
        }
    }
}

fn has_array_extension(path: &Path) -> bool {
    let extension = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    matches!(extension.as_str(), "npy" | "npz" | "safetensors")
}
