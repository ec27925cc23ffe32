//! NumPy's `.npy`, versions 1 to 3 (numpy/lib/format.py): a signature, the length of the header, the header (a Python
//! dict with the keys `descr`, `fortran_order` and `shape`), and the elements.
//!
//! NumPy has no bfloat16. It is written as float32, which can represent all of its values.

use super::{Problem, checked_sizes};
use crate::tensor::Tensor;
use crate::types::DType;
use std::io::{self, Read, Write};

/// The signature.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// The maximal length of a header. Structured types can make headers long, shapes cannot.
const MAX_HEADER: u64 = 1 << 20;

/// NumPy's type characters and sizes.
const TYPES: &[(&str, DType)] = &[
    ("f8", DType::F64),
    ("f4", DType::F32),
    ("f2", DType::F16),
    ("i8", DType::I64),
    ("i4", DType::I32),
    ("i2", DType::I16),
    ("i1", DType::I8),
    ("u1", DType::U8),
    ("b1", DType::B8),
];

/// The contents of a header, checked against the size of the file.
#[derive(Debug)]
pub(super) struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
    /// The offset of the elements.
    pub offset: usize,
    /// The number of bytes from there on.
    have: u64,
}

/// The order in which elements, and the bytes of each, are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementOrder {
    /// Whether the first index varies fastest.
    fortran: bool,
    /// Whether the most significant byte is first.
    swapped: bool,
}

/// The number of leading bytes that determine the header's length.
const LEAD: u64 = 12;

/// Reads all bytes of a file that [`parse_header`] needs.
pub(super) fn read_lead(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    from.by_ref().take(LEAD).read_to_end(&mut bytes)?;
    if let Some((text, says)) = header_length(&bytes) {
        let rest = (text as u64 + says.min(MAX_HEADER)).saturating_sub(bytes.len() as u64);
        from.by_ref().take(rest).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The offset of the header's text and its stated length, if the bytes start like a file of a known version.
fn header_length(bytes: &[u8]) -> Option<(usize, u64)> {
    let (width, text) = match bytes.get(6)? {
        1 => (2, 10),
        2 | 3 => (4, 12),
        _ => return None,
    };
    let len = bytes.get(8..8 + width).filter(|_| bytes.starts_with(MAGIC))?;
    Some((text, len.iter().rev().fold(0u64, |a, &b| a << 8 | b as u64)))
}

/// Parses the header at the start of `bytes`, which are at least the [`read_lead`] of a file of `have` bytes.
pub(super) fn parse_header(bytes: &[u8], have: u64) -> Result<Header, Problem> {
    if !bytes.starts_with(MAGIC) {
        return Err(Problem::Header("its first bytes are not those of a .npy file".into()));
    }
    let Some(&[major, _]) = bytes.get(6..8) else {
        return Err(Problem::Truncated { need: 10, have });
    };
    if !(1..=3).contains(&major) {
        let what = format!("unknown version {major} of the .npy format");
        return Err(Problem::Header(what));
    }
    let Some((text, says)) = header_length(bytes) else {
        let need = if major == 1 { 10 } else { 12 };
        return Err(Problem::Truncated { need, have });
    };
    let there = bytes.len().saturating_sub(text) as u64;
    if says > MAX_HEADER || says > there {
        let have = have.saturating_sub(text as u64);
        return Err(Problem::HeaderLength { says, have });
    }
    let offset = text + says as usize;
    let header = String::from_utf8_lossy(&bytes[text..offset]);
    let (descr, fortran, shape) = Dict { rest: header.trim() }.parse().map_err(Problem::Header)?;
    Ok(Header {
        descr,
        fortran,
        shape,
        offset,
        have: have.saturating_sub(offset as u64),
    })
}

/// A parser of the header's dict.
struct Dict<'a> {
    rest: &'a str,
}

impl<'a> Dict<'a> {
    fn parse(mut self) -> Result<(String, bool, Vec<u64>), String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.eat("}") {
            let key = self.parse_string()?;
            self.expect(":")?;
            match key {
                "descr" => descr = Some(self.parse_descr()?),
                "fortran_order" => fortran = Some(self.parse_bool()?),
                "shape" => shape = Some(self.parse_shape()?),
                k => return Err(format!("unknown key `{k}`")),
            }
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.is_empty() {
            return Err(format!("unexpected text after the dict: `{}`", self.upcoming_text()));
        }
        match (descr, fortran, shape) {
            (Some(d), Some(f), Some(s)) => Ok((d, f, s)),
            (None, ..) => Err("`descr` is missing".into()),
            (_, None, _) => Err("`fortran_order` is missing".into()),
            _ => Err("`shape` is missing".into()),
        }
    }

    /// The upcoming text, for messages.
    fn upcoming_text(&self) -> String {
        self.rest.chars().take(20).collect()
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(format!("expected `{token}` at `{}`", self.upcoming_text()))
        }
    }

    fn parse_string(&mut self) -> Result<&'a str, String> {
        let quote = match self.rest.chars().next() {
            Some(q @ ('\'' | '"')) => q,
            _ => return Err(format!("expected a string at `{}`", self.upcoming_text())),
        };
        let body = &self.rest[1..];
        let end = body.find(quote).ok_or("unterminated string")?;
        self.rest = body[end + 1..].trim_start();
        Ok(&body[..end])
    }

    /// The element type: a string. A list describes a structured type, whose text is skipped.
    fn parse_descr(&mut self) -> Result<String, String> {
        if !self.rest.starts_with('[') {
            return self.parse_string().map(str::to_owned);
        }
        let mut depth = 0usize;
        for (i, c) in self.rest.char_indices() {
            depth = match c {
                '[' => depth + 1,
                ']' => depth - 1,
                _ => depth,
            };
            if depth == 0 {
                let text = &self.rest[..=i];
                self.rest = self.rest[i + 1..].trim_start();
                return Ok(text.to_owned());
            }
        }
        Err("unterminated list".into())
    }

    fn parse_bool(&mut self) -> Result<bool, String> {
        if self.eat("True") {
            return Ok(true);
        }
        self.expect("False")
            .map(|()| false)
            .map_err(|_| format!("expected True or False at `{}`", self.upcoming_text()))
    }

    fn parse_shape(&mut self) -> Result<Vec<u64>, String> {
        self.expect("(")?;
        let mut shape = vec![];
        while !self.eat(")") {
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let number = self.rest[..digits]
                .parse()
                .map_err(|_| format!("expected a size at `{}`", self.upcoming_text()))?;
            shape.push(number);
            self.rest = self.rest[digits..].trim_start();
            // Python 2 wrote long integers with a suffix.
            self.eat("L");
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }
}

impl Header {
    /// The byte order of the element type, and NumPy's name of the type without it.
    fn byte_order(&self) -> (char, &str) {
        match self.descr.chars().next() {
            Some(c @ ('<' | '>' | '|' | '=')) => (c, &self.descr[1..]),
            _ => ('=', &self.descr[..]),
        }
    }

    /// The element type, or NumPy's name of an unsupported type.
    pub(super) fn dtype(&self) -> Result<DType, String> {
        let (_, name) = self.byte_order();
        let found = TYPES.iter().find(|t| t.0 == name);
        found.map(|t| t.1).ok_or_else(|| self.descr.clone())
    }

    /// The sizes, and the number of the elements' bytes, all of which exist.
    pub(super) fn checked_shape(&self, dtype: DType) -> Result<(Vec<usize>, usize), Problem> {
        let (shape, len) = checked_sizes(dtype, &self.shape)?;
        if len as u64 > self.have {
            return Err(Problem::Truncated {
                need: (self.offset + len) as u64,
                have: self.offset as u64 + self.have,
            });
        }
        Ok((shape, len))
    }

    /// The order of the elements.
    pub(super) fn order(&self) -> ElementOrder {
        ElementOrder {
            fortran: self.fortran && self.shape.iter().filter(|&&d| d != 1).count() > 1,
            swapped: self.byte_order().0 == '>',
        }
    }
}

impl ElementOrder {
    /// Whether this is the order of tensors: row-major and native.
    pub(super) fn is_plain(self) -> bool {
        !self.fortran && !self.swapped
    }

    /// Copies elements of `size` bytes to row-major order and this machine's byte order.
    pub(super) fn copy_row_major(self, size: usize, shape: &[usize], from: &[u8], to: &mut [u8]) {
        if self.fortran {
            for (i, dst) in to.chunks_exact_mut(size).enumerate() {
                // Convert the row-major index `i` to a column-major one.
                let (mut rest, mut at, mut below) = (i, 0, from.len() / size);
                for &d in shape.iter().rev() {
                    below /= d;
                    at += rest % d * below;
                    rest /= d;
                }
                dst.copy_from_slice(&from[at * size..(at + 1) * size]);
            }
        } else {
            to.copy_from_slice(from);
        }
        if self.swapped {
            to.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }
}

/// Writes the file's bytes, version 1.0, the elements aligned to 64 bytes as NumPy does.
pub(super) fn write_to(out: &mut dyn Write, tensor: &Tensor) -> Result<(), Problem> {
    let tensor = if tensor.dtype() == DType::BF16 {
        &tensor.to(DType::F32)
    } else {
        tensor
    };
    let name = TYPES
        .iter()
        .find(|t| t.1 == tensor.dtype())
        .ok_or(Problem::Dtype(tensor.dtype()))?
        .0;
    let order = if tensor.dtype().size() == 1 { '|' } else { '<' };
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let shape = format!("({}{})", sizes.join(", "), if sizes.len() == 1 { "," } else { "" });
    let mut header = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': {shape}, }}");
    let end = (10 + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', end - 11 - header.len()));
    header.push('\n');
    let len = u16::try_from(header.len())
        .map_err(|_| Problem::Header("the shape has too many dimensions for the format".into()))?;
    let io = |e: std::io::Error| Problem::Io(e.to_string());
    out.write_all(MAGIC).map_err(io)?;
    out.write_all(&[1, 0]).map_err(io)?;
    out.write_all(&len.to_le_bytes()).map_err(io)?;
    out.write_all(header.as_bytes()).map_err(io)?;
    out.write_all(tensor.bytes()).map_err(io)
}
