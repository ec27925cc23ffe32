//! Recognises protocol buffers. They have no signature, so a message is recognised by the numbers and wire types of its
//! fields.

use super::FileKind;

/// The wire type of a field.
#[derive(Clone, Copy, PartialEq)]
enum Wire {
    Varint,
    Bytes,
}

/// The fields of ONNX's `ModelProto`.
const ONNX: &[(u64, Wire)] = &[
    (1, Wire::Varint),
    (2, Wire::Bytes),
    (3, Wire::Bytes),
    (4, Wire::Bytes),
    (5, Wire::Varint),
    (6, Wire::Bytes),
    (7, Wire::Bytes),
    (8, Wire::Bytes),
    (14, Wire::Bytes),
    (20, Wire::Bytes),
    (25, Wire::Bytes),
    (26, Wire::Bytes),
];
const ONNX_VERSION: u64 = 1;
const ONNX_GRAPH: u64 = 7;

/// The kind of model whose message starts with `head`.
pub(super) fn model_kind(head: &[u8]) -> Option<FileKind> {
    let fields = read_fields(head);
    let known = |table: &[(u64, Wire)]| fields.iter().all(|f| table.contains(&(f.0, f.1)));
    let has = |n: u64| fields.iter().any(|f| f.0 == n);
    if has(ONNX_GRAPH) && has(ONNX_VERSION) && known(ONNX) {
        return Some(FileKind::Onnx);
    }
    match &fields[..] {
        // `schema_version` 1, then meta graphs.
        [(1, Wire::Varint, 1), (2, Wire::Bytes, n), ..] if *n > 1000 => {
            Some(FileKind::Model("a TensorFlow SavedModel"))
        }
        // `node`s whose first field is a name.
        [(1, Wire::Bytes, _), (1, Wire::Bytes, _), ..] if head.get(2) == Some(&0x0a) => {
            Some(FileKind::Model("a TensorFlow graph"))
        }
        // `specificationVersion` and `description`, then a kind of model.
        [
            (1, Wire::Varint, 1..=20),
            (2, Wire::Bytes, _),
            ..,
            (200.., Wire::Bytes, _),
        ] => Some(FileKind::Model("a Core ML model")),
        _ => None,
    }
}

/// The number, wire type, and value or length of each field of the message, as far as `head` reaches. Empty if the
/// bytes are not a message.
fn read_fields(head: &[u8]) -> Vec<(u64, Wire, u64)> {
    let mut out = vec![];
    let mut offset = 0;
    while offset < head.len() {
        let Some(key) = read_varint(head, &mut offset) else {
            break;
        };
        let Some(value) = read_varint(head, &mut offset) else {
            break;
        };
        let wire = match key & 7 {
            0 => Wire::Varint,
            2 => Wire::Bytes,
            _ => return vec![],
        };
        if key >> 3 == 0 {
            return vec![];
        }
        out.push((key >> 3, wire, value));
        if wire == Wire::Bytes {
            offset = usize::try_from(value).map_or(usize::MAX, |n| offset.saturating_add(n));
        }
    }
    out
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
