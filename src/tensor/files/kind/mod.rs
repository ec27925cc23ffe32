//! Recognises the kind of a file by its first bytes. A user may pass any file, and the error must tell what it is and
//! what to do with it.
//!
//! Kinds with a signature are rows of a table ([`signatures`]). The others are recognised by their structure: the
//! protocol buffers of ONNX, the header length of safetensors, pickles, texts.

mod advice;
mod pickle;
mod protobuf;
mod signatures;
#[cfg(test)]
mod tests;

pub(crate) use advice::FileRole;
pub(super) use pickle::Pickled;
use std::fmt;

/// This many bytes of a file are enough to recognise its kind.
pub(crate) const HEAD: usize = 1 << 16;

/// The number of leading bytes by which text is recognised.
const SAMPLE: usize = 1 << 13;

/// The kind of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// No bytes.
    Empty,
    /// A zip archive. The names of its entries tell more ([`FileKind::of_entries`]).
    Zip,
    /// A compiled model of fxc.
    Compiled,
    /// An archive of `torch.export.save`.
    Exported,
    /// A package of `torch._inductor.aoti_compile_and_package`.
    Inductor,
    /// An archive of `torch.jit.save`.
    TorchScript,
    /// A file that `torch.save` wrote, or another pickle.
    Pickle(Pickled),
    /// A zip archive of NumPy arrays.
    Npz,
    /// One NumPy array.
    Npy,
    /// Hugging Face's format of weights.
    Safetensors,
    /// Weights for llama.cpp.
    Gguf,
    /// An ONNX model.
    Onnx,
    /// A model of another program: its kind.
    Model(&'static str),
    /// HDF5, the format of Keras weights.
    Hdf5,
    /// Data of another program: its kind.
    Data(&'static str),
    /// An image: its kind.
    Image(&'static str),
    /// A compressed or packed file: the kind, and the command that unpacks it.
    Packed(&'static str, &'static str),
    /// Machine code.
    Program(&'static str),
    /// The pointer that Git LFS leaves in place of a file.
    LfsPointer,
    /// A web page.
    Html,
    /// A JSON document.
    Json,
    /// Text in an encoding other than UTF-8: its name.
    Encoded(&'static str),
    /// Text.
    Text,
    /// Bytes of an unknown kind.
    Binary,
}

impl FileKind {
    /// The kind of a file that starts with `head`: the whole file, or at least its first [`HEAD`] bytes.
    pub fn of_head(head: &[u8]) -> FileKind {
        if head.is_empty() {
            return FileKind::Empty;
        }
        if let Some(kind) = signatures::find(head) {
            return kind;
        }
        if is_safetensors(head) {
            return FileKind::Safetensors;
        }
        if let Some(content) = pickle::of_stream(head) {
            return FileKind::Pickle(content);
        }
        if let Some(encoding) = unicode_encoding(head) {
            return FileKind::Encoded(encoding);
        }
        if is_text(head) {
            return of_text(head);
        }
        protobuf::model_kind(head).unwrap_or(FileKind::Binary)
    }

    /// The kind of a zip archive with entries of these names. `pickle` returns the bytes of an entry that is a pickle.
    pub fn of_entries<'a>(names: impl Iterator<Item = &'a str> + Clone, pickle: impl Fn(&str) -> Vec<u8>) -> FileKind {
        let find = |is: &dyn Fn(&'a str) -> bool| names.clone().find(|&n| is(n));
        // Entries are in a folder named after the file, or at the top level.
        let inner = |n: &'a str| n.split_once('/').map_or(n, |(_, rest)| rest);
        let below = |n: &'a str, path: &str| n.starts_with(path) || inner(n).starts_with(path);
        if find(&|n| below(n, "models/") && n.ends_with(".json")).is_some() {
            return FileKind::Exported;
        }
        if find(&|n| below(n, "data/aotinductor/")).is_some() {
            return FileKind::Inductor;
        }
        if find(&|n| below(n, "code/") || below(n, "constants.pkl")).is_some() {
            return FileKind::TorchScript;
        }
        if let Some(name) = find(&|n| below(n, "data.pkl")) {
            return FileKind::Pickle(pickle::of_object(&pickle(name)));
        }
        if find(&|n| n.ends_with(".npy")).is_some() {
            return FileKind::Npz;
        }
        match find(&|n| n == "model.weights.h5") {
            Some(_) => FileKind::Model("a Keras model"),
            None => FileKind::Zip,
        }
    }
}

impl fmt::Display for FileKind {
    /// Writes the kind with its article: `an ONNX model`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Empty => "an empty file",
            FileKind::Zip => "a zip archive",
            FileKind::Compiled => "a compiled model of fxc",
            FileKind::Exported => "a torch.export archive",
            FileKind::Inductor => "a package of compiled code from `torch._inductor`",
            FileKind::TorchScript => "a TorchScript archive",
            FileKind::Pickle(p) => return p.fmt(f),
            FileKind::Npz => "an .npz archive of tensors",
            FileKind::Npy => "an .npy file of one tensor",
            FileKind::Safetensors => "a .safetensors file of tensors",
            FileKind::Gguf => "a GGUF file",
            FileKind::Onnx => "an ONNX model",
            FileKind::Hdf5 => "an HDF5 file",
            FileKind::Model(s)
            | FileKind::Data(s)
            | FileKind::Image(s)
            | FileKind::Packed(s, _)
            | FileKind::Program(s) => s,
            FileKind::LfsPointer => "a Git LFS pointer, not the file itself",
            FileKind::Html => "an HTML page",
            FileKind::Json => "a JSON document",
            FileKind::Encoded(e) => return write!(f, "{e} text"),
            FileKind::Text => "text",
            FileKind::Binary => "a binary file of an unknown format",
        })
    }
}

/// Whether the bytes start like a `.safetensors` file: the length of a header, and its opening brace.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    u64::from_le_bytes(*length) < 1 << 32 && rest.first() == Some(&b'{')
}

/// The encoding of a text in which most characters take two or four bytes.
fn unicode_encoding(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(&[0xff, 0xfe, 0, 0]) || head.starts_with(&[0, 0, 0xfe, 0xff]) {
        return Some("UTF-32");
    }
    let sample = &head[..head.len().min(SAMPLE) & !1];
    // The number of printable ASCII characters: their other byte is zero.
    let plain = |at: usize| {
        let is = |p: &&[u8]| p[1 - at] == 0 && matches!(p[at], b'\t' | b'\n' | b'\r' | b' '..=b'~');
        sample.chunks_exact(2).filter(is).count()
    };
    let (count, all) = (plain(0).max(plain(1)), sample.len() / 2);
    let marked = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    let enough = if marked {
        count * 2 >= all
    } else {
        all >= 4 && count * 10 >= all * 9
    };
    enough.then_some("UTF-16")
}

/// Whether the bytes are UTF-8 text, or nearly: in a text of another 8-bit encoding, few bytes represent letters that
/// differ.
fn is_text(head: &[u8]) -> bool {
    let sample = &head[..head.len().min(SAMPLE)];
    let mut odd = sample
        .iter()
        .filter(|b| matches!(b, 0..=8 | 14..=26 | 28..=31 | 127))
        .count();
    if sample.contains(&0) {
        return false;
    }
    for chunk in sample.utf8_chunks() {
        odd += chunk.invalid().len();
    }
    odd * 10 <= sample.len()
}

/// The kind of a text, if fxc cannot read texts of that kind.
fn of_text(head: &[u8]) -> FileKind {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |s: &str| {
        text.get(..s.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(s.as_bytes()))
    };
    if begins("version https://git-lfs") {
        return FileKind::LfsPointer;
    }
    if begins("<!doctype html") || begins("<html") {
        return FileKind::Html;
    }
    if begins("<?xml") || begins("<net ") {
        let found = head.windows(5).any(|w| w == b"<net ");
        return if found {
            FileKind::Model("an OpenVINO model")
        } else {
            FileKind::Data("an XML document")
        };
    }
    if begins("<") && head.windows(10).any(|w| w == b"ir_version") {
        return FileKind::Onnx;
    }
    // No text of a graph starts with a brace, or with a bracket around more than a name.
    match text {
        [b'{', rest @ ..] if matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')) => FileKind::Json,
        [b'[', rest @ ..] if matches!(rest.trim_ascii_start().first(), Some(b'"' | b'{' | b'[')) => FileKind::Json,
        _ => FileKind::Text,
    }
}
