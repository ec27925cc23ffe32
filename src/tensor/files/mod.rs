//! Reads and writes files of tensors: `.npy`, `.npz` and `.safetensors`.
//!
//! Reading maps the file. Tensors whose bytes are stored plainly and aligned are parts of the mapping and not copied.
//! The contents of a file are validated before use: every malformed file yields a [`FileError`] that says what is
//! wrong. [`open`] only reads headers, so that they can be checked before memory is allocated for the data.

mod array;
mod json;
mod kind;
mod npy;
mod npz;
mod safetensors;
#[cfg(test)]
mod tests;
mod zipped;

pub(crate) use array::{Array, Bytes, MappedArchive};
pub(crate) use json::parse_json;
pub(crate) use kind::{FileKind, FileRole, HEAD};
pub(crate) use zipped::{EntrySizes, open_zip};

use super::mapped::{MapError, map_file};
use super::{ALIGN, Tensor, byte_len};
use crate::fs::OutputFile;
use crate::types::DType;
use indexmap::IndexMap;
use memmap2::Mmap;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tensors of a file.
#[derive(Clone, Debug, Default)]
pub struct TensorFile {
    /// The tensors by name, in file order (of `.safetensors`: the header's order). The only tensor of a `.npy` file is
    /// named `""`.
    pub tensors: IndexMap<String, Tensor>,
    /// The tensors whose element type fxc does not support: name, and the type's name in the file.
    pub unsupported: IndexMap<String, String>,
}

/// The arrays of a file whose headers have been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// The arrays by name, as in [`TensorFile::tensors`].
    pub arrays: IndexMap<String, Array>,
    /// As in [`TensorFile::unsupported`].
    pub unsupported: IndexMap<String, String>,
}

impl Contents {
    /// Adds an array, or the name of a type that is not supported.
    fn insert(&mut self, name: String, array: Result<Array, String>) {
        match array {
            Ok(a) => self.arrays.insert(name, a).map(drop),
            Err(dtype) => self.unsupported.insert(name, dtype).map(drop),
        };
    }

    /// Reads all elements.
    fn read_all(self) -> Result<TensorFile, FileProblem> {
        let read_array = |(name, a): (String, Array)| match a.read() {
            Ok(t) => Ok((name, t)),
            Err(p) => Err((Some(name), p)),
        };
        Ok(TensorFile {
            tensors: self.arrays.into_iter().map(read_array).collect::<Result<_, _>>()?,
            unsupported: self.unsupported,
        })
    }
}

/// The file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// One NumPy array.
    Npy,
    /// A zip archive of `.npy` files.
    Npz,
    /// Hugging Face's format for weights.
    Safetensors,
}

impl FileFormat {
    /// The format that the path's extension names.
    pub(crate) fn of_path(path: &Path) -> Option<FileFormat> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npy" => Some(FileFormat::Npy),
            "npz" => Some(FileFormat::Npz),
            "safetensors" => Some(FileFormat::Safetensors),
            _ => None,
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileFormat::Npy => ".npy",
            FileFormat::Npz => ".npz",
            FileFormat::Safetensors => ".safetensors",
        })
    }
}

/// Why a file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The tensor that the problem concerns, if any.
    pub tensor: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The system reported an error.
    Io(String),
    /// The file has no bytes.
    Empty,
    /// The file is of a different kind.
    Kind(FileKind),
    /// The path's extension names none of the formats (on writing).
    UnknownFormat,
    /// The file ends too early.
    Truncated {
        /// The size that the file (or the array in it) must have, in bytes.
        need: u64,
        /// The actual size.
        have: u64,
    },
    /// The header cannot have the length that the file states.
    HeaderLength {
        /// The length that the file states.
        says: u64,
        /// The number of bytes available for it.
        have: u64,
    },
    /// The header's text does not conform to the format: how.
    Header(String),
    /// The shape has too many dimensions: how many.
    Rank(usize),
    /// The shape's size in bytes overflows.
    TooLarge(Vec<u64>),
    /// The file reserves the wrong number of bytes for a tensor's shape and element type.
    Length {
        /// The number of bytes that the shape and element type need.
        need: u64,
        /// The number of bytes that the file reserves.
        have: u64,
    },
    /// Two tensors share bytes, or bytes belong to no tensor: which.
    Layout(String),
    /// Two tensors have the same name.
    Duplicate,
    /// The zip archive is broken: how.
    Zip(String),
    /// The element type cannot be written in this format.
    Dtype(DType),
    /// The elements need this many bytes of memory, more than the system has.
    Memory(u64),
}

impl From<MapError> for Problem {
    fn from(e: MapError) -> Problem {
        match e {
            MapError::Io(e) => Problem::Io(e),
            MapError::Empty => Problem::Empty,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Io(e) => f.write_str(e),
            Problem::Empty => f.write_str("the file is empty"),
            Problem::Kind(kind) => write!(f, "the file is {kind}"),
            Problem::UnknownFormat => f.write_str("the name must end in .npy, .npz or .safetensors"),
            Problem::Truncated { need, have } => {
                write!(
                    f,
                    "the file is truncated: {need} bytes are expected, but only {have} remain"
                )
            }
            Problem::HeaderLength { says, have } => {
                let reason = "the file is truncated or has another format";
                write!(
                    f,
                    "the recorded header length is {says} bytes, but {have} bytes are available: {reason}"
                )
            }
            Problem::Header(what) => write!(f, "malformed header: {what}"),
            Problem::Rank(n) => write!(f, "the shape has {n} dimensions; tensors have at most {MAX_RANK}"),
            Problem::TooLarge(shape) => write!(f, "the size of shape {shape:?} in bytes overflows"),
            Problem::Length { need, have } => {
                write!(
                    f,
                    "the shape and element type require {need} bytes, but the file reserves {have}"
                )
            }
            Problem::Layout(what) => f.write_str(what),
            Problem::Duplicate => f.write_str("the name occurs twice"),
            Problem::Zip(what) => write!(f, "broken zip archive: {what}"),
            Problem::Dtype(d) => write!(f, "the format does not support the element type {d}"),
            Problem::Memory(n) => write!(f, "it requires {n} bytes, more than the available memory"),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(t) = self.tensor.as_ref().filter(|t| !t.is_empty()) {
            write!(f, "tensor `{t}`: ")?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for FileError {}

/// A problem and the tensor that it concerns, as the formats report it: without the path.
type FileProblem = (Option<String>, Problem);

/// A problem of the file as a whole.
fn whole_file(p: Problem) -> FileProblem {
    (None, p)
}

/// Reads the file at `path`. Its contents, not its name, determine the format.
pub fn read(path: &Path) -> Result<TensorFile, FileError> {
    open(path)?.read_all().map_err(in_file(path))
}

/// Reads the headers of the file at `path`.
pub(crate) fn open(path: &Path) -> Result<Contents, FileError> {
    let map = map_file(path).map_err(|e| in_file(path)(whole_file(e.into())))?;
    parse_contents(&map).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl Fn(FileProblem) -> FileError {
    move |(tensor, problem)| FileError {
        path: path.to_owned(),
        tensor,
        problem,
    }
}

/// Reads the headers of mapped bytes.
fn parse_contents(map: &Arc<Mmap>) -> Result<Contents, FileProblem> {
    match FileKind::of_head(&map[..map.len().min(HEAD)]) {
        FileKind::Npy => {
            let mut file = Contents::default();
            let header = npy::parse_header(map, map.len() as u64).map_err(whole_file)?;
            file.insert(
                String::new(),
                Array::from_stored_npy(map, 0, header).map_err(whole_file)?,
            );
            Ok(file)
        }
        FileKind::Zip => npz::open(map),
        // A damaged file may have lost the bytes that identify its format. The reader reports what is wrong.
        FileKind::Safetensors | FileKind::Binary => safetensors::open(map),
        kind => Err(whole_file(Problem::Kind(kind))),
    }
}

/// The maximal number of dimensions of a tensor in a file, as in torch.
pub(crate) const MAX_RANK: usize = 64;

/// The shape as `usize`, and its size in bytes.
fn checked_sizes(dtype: DType, shape: &[u64]) -> Result<(Vec<usize>, usize), Problem> {
    if shape.len() > MAX_RANK {
        return Err(Problem::Rank(shape.len()));
    }
    let too_large = || Problem::TooLarge(shape.to_vec());
    let dims: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
    let dims = dims.ok_or_else(too_large)?;
    let bytes = byte_len(dtype, &dims).ok_or_else(too_large)?;
    // A zero size would hide an overflow of the other sizes, which are multiplied later.
    let positive: Vec<usize> = dims.iter().map(|&d| d.max(1)).collect();
    byte_len(dtype, &positive).ok_or_else(too_large)?;
    Ok((dims, bytes))
}

/// Writes tensors in the format that the path's extension names. `.npy` takes exactly one.
pub fn write<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<(), FileError> {
    let tensors: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    let mut names = HashSet::new();
    let twice = tensors.iter().find(|t| !names.insert(t.0));
    let done = match FileFormat::of_path(path) {
        _ if twice.is_some() => Err((twice.map(|t| t.0.to_owned()), Problem::Duplicate)),
        None => Err(whole_file(Problem::UnknownFormat)),
        Some(format) => write_format(path, format, &tensors),
    };
    done.map_err(|(tensor, problem)| FileError {
        path: path.to_owned(),
        tensor,
        problem,
    })
}

/// Writes a file. The tensors may be mapped from the file that it replaces.
fn write_format(path: &Path, format: FileFormat, tensors: &[(&str, &Tensor)]) -> Result<(), FileProblem> {
    let mut file = OutputFile::create(path).map_err(io_problem)?;
    match (format, tensors) {
        (FileFormat::Npz, all) => npz::write(&mut file, all)?,
        (FileFormat::Safetensors, all) => safetensors::write(&mut file, all)?,
        (FileFormat::Npy, [(_, t)]) => npy::write_to(&mut file, t).map_err(whole_file)?,
        (FileFormat::Npy, all) => {
            let reason = format!("a .npy file contains one tensor, not {}", all.len());
            return Err(whole_file(Problem::Layout(reason)));
        }
    }
    file.finish().map_err(io_problem)
}

fn io_problem(e: std::io::Error) -> FileProblem {
    whole_file(Problem::Io(e.to_string()))
}

const _: () = assert!(
    ALIGN.is_multiple_of(16),
    "owned storage is aligned for every element type"
);
