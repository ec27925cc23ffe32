//! What a file is, told by its first bytes: a user may give any file, and is to read what it is and what to do with it.
//!
//! Kinds that begin with a signature are rows of a table ([`signatures`]). The others show themselves by their structure: the
//! protocol buffers of ONNX, the length before the header of safetensors, pickles, texts.

mod advice;
mod pickle;
mod protobuf;
mod signatures;
#[cfg(test)]
mod tests;

pub use advice::Role;
pub use pickle::Pickled;
use std::fmt;

/// As many bytes of a file are enough to tell its kind.
pub const HEAD: usize = 1 << 16;

/// A text is told from other bytes by as many of its first.
const SAMPLE: usize = 1 << 13;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No bytes.
    Empty,
    /// A zip archive; its entries say more ([`Kind::of_entries`]).
    Zip,
    /// An archive of `torch.export.save`.
    Exported,
    /// A package of `torch._inductor.aoti_compile_and_package`.
    Inductor,
    /// An archive of `torch.jit.save`.
    TorchScript,
    /// What `torch.save` wrote, or another pickle.
    Pickle(Pickled),
    /// Arrays of NumPy in a zip archive.
    Npz,
    /// One array of NumPy.
    Npy,
    /// Hugging Face's format of weights.
    Safetensors,
    /// Weights for llama.cpp.
    Gguf,
    /// A model of ONNX.
    Onnx,
    /// A model of another program; says which kind.
    Model(&'static str),
    /// HDF5, which Keras keeps weights in.
    Hdf5,
    /// Data of another program; says which kind.
    Data(&'static str),
    /// An image; says which kind.
    Image(&'static str),
    /// A compressed or packed file: the kind, and the command that unpacks it.
    Packed(&'static str, &'static str),
    /// Machine code.
    Program(&'static str),
    /// The pointer that Git LFS leaves in place of a file.
    LfsPointer,
    /// A page of the web.
    Html,
    /// A JSON document.
    Json,
    /// Text of an encoding other than UTF-8; says which.
    Encoded(&'static str),
    /// Text.
    Text,
    /// Bytes of no known kind.
    Binary,
}

impl Kind {
    /// The kind of a file that begins with `head`: all of it, or at least [`HEAD`] bytes.
    pub fn of(head: &[u8]) -> Kind {
        if head.is_empty() {
            return Kind::Empty;
        }
        if let Some(kind) = signatures::find(head) {
            return kind;
        }
        if is_safetensors(head) {
            return Kind::Safetensors;
        }
        if let Some(content) = pickle::of_stream(head) {
            return Kind::Pickle(content);
        }
        if let Some(encoding) = unicode(head) {
            return Kind::Encoded(encoding);
        }
        if is_text(head) {
            return of_text(head);
        }
        protobuf::kind(head).unwrap_or(Kind::Binary)
    }

    /// The kind of a zip archive with entries of these names. `pickle` gives the bytes of an entry that is a pickle.
    pub fn of_entries<'a>(names: impl Iterator<Item = &'a str> + Clone, pickle: impl Fn(&str) -> Vec<u8>) -> Kind {
        let find = |is: &dyn Fn(&'a str) -> bool| names.clone().find(|&n| is(n));
        // Entries lie in a folder that is named after the file, or at the top.
        let inner = |n: &'a str| n.split_once('/').map_or(n, |(_, rest)| rest);
        let below = |n: &'a str, path: &str| n.starts_with(path) || inner(n).starts_with(path);
        if find(&|n| below(n, "models/") && n.ends_with(".json")).is_some() {
            return Kind::Exported;
        }
        if find(&|n| below(n, "data/aotinductor/")).is_some() {
            return Kind::Inductor;
        }
        if find(&|n| below(n, "code/") || below(n, "constants.pkl")).is_some() {
            return Kind::TorchScript;
        }
        if let Some(name) = find(&|n| below(n, "data.pkl")) {
            return Kind::Pickle(pickle::of_object(&pickle(name)));
        }
        if find(&|n| n.ends_with(".npy")).is_some() {
            return Kind::Npz;
        }
        match find(&|n| n == "model.weights.h5") {
            Some(_) => Kind::Model("a Keras model"),
            None => Kind::Zip,
        }
    }
}

impl fmt::Display for Kind {
    /// What the file is: `an ONNX model`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Empty => "an empty file",
            Kind::Zip => "a zip archive",
            Kind::Exported => "an archive of `torch.export.save`",
            Kind::Inductor => "a package of compiled code from `torch._inductor`",
            Kind::TorchScript => "a TorchScript archive",
            Kind::Pickle(p) => return p.fmt(f),
            Kind::Npz => "an .npz archive of tensors",
            Kind::Npy => "an .npy file of one tensor",
            Kind::Safetensors => "a .safetensors file of tensors",
            Kind::Gguf => "a GGUF file",
            Kind::Onnx => "an ONNX model",
            Kind::Hdf5 => "an HDF5 file",
            Kind::Model(s) | Kind::Data(s) | Kind::Image(s) | Kind::Packed(s, _) | Kind::Program(s) => s,
            Kind::LfsPointer => "a Git LFS pointer, not the file itself",
            Kind::Html => "a page of HTML",
            Kind::Json => "a JSON document",
            Kind::Encoded(e) => return write!(f, "{e} text"),
            Kind::Text => "text",
            Kind::Binary => "a binary file of no known kind",
        })
    }
}

/// Whether the bytes begin as a `.safetensors` file: the length of a header, and its opening brace.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    u64::from_le_bytes(*length) < 1 << 32 && rest.first() == Some(&b'{')
}

/// The encoding of a text in which most characters take two or four bytes.
fn unicode(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(&[0xff, 0xfe, 0, 0]) || head.starts_with(&[0, 0, 0xfe, 0xff]) {
        return Some("UTF-32");
    }
    let sample = &head[..head.len().min(SAMPLE) & !1];
    // How many of the characters are letters, digits and signs of ASCII: the other byte of each is zero.
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

/// Whether bytes are text in UTF-8, or nearly: in a text of another 8-bit encoding, few bytes stand for letters that differ.
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

/// The kind of a text, where that is one that fxc reads nothing of.
fn of_text(head: &[u8]) -> Kind {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |s: &str| {
        text.get(..s.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(s.as_bytes()))
    };
    if begins("version https://git-lfs") {
        return Kind::LfsPointer;
    }
    if begins("<!doctype html") || begins("<html") {
        return Kind::Html;
    }
    if begins("<?xml") || begins("<net ") {
        let found = head.windows(5).any(|w| w == b"<net ");
        return if found {
            Kind::Model("an OpenVINO model")
        } else {
            Kind::Data("an XML document")
        };
    }
    if begins("<") && head.windows(10).any(|w| w == b"ir_version") {
        return Kind::Onnx;
    }
    // No text of a graph begins with a brace, and none with a bracket around more than a name.
    match text {
        [b'{', rest @ ..] if matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')) => Kind::Json,
        [b'[', rest @ ..] if matches!(rest.trim_ascii_start().first(), Some(b'"' | b'{' | b'[')) => Kind::Json,
        _ => Kind::Text,
    }
}
