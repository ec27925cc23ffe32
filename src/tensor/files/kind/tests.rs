//! Tests of recognising files by their first bytes, and of the advice for each kind.

use super::*;

/// A field of bytes of a protocol buffer.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

fn onnx() -> Vec<u8> {
    // ir_version, producer_name, producer_version, and a truncated graph.
    let head = [vec![8, 10], field(2, b"pytorch"), field(3, b"2.15.0")].concat();
    [&head[..], b"\x3a\xff\xff\xff\x0f\x0a\x05graph"].concat()
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

#[test]
fn kinds_are_told_by_their_first_bytes() {
    let state = b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x06\x00\x00\x00weightq\x02ctorch._utils\n_rebuild_tensor_v2\nq\x03";
    let object = b"\x80\x02c__main__\nNet\nq\x00)\x81q\x01}q\x02(X\x08\x00\x00\x00trainingq\x03\x88";
    let framed = b"\x80\x04\x95\x30\0\0\0\0\0\0\0\x8c\x08__main__\x94\x8c\x03Net\x94\x93\x94)\x81\x94}\x94.";
    let plain = b"\x80\x04\x95\x05\0\0\0\0\0\0\0]\x94K\x01a.";
    let text = "graph main {\n    %x : f32[2] = placeholder x\n    output %x\n}\n";
    let tar = [vec![b'a'; 257], b"ustar\0".to_vec()].concat();
    let cases: Vec<(Vec<u8>, FileKind)> = vec![
        (vec![], FileKind::Empty),
        (b"PK\x03\x04rest".to_vec(), FileKind::Zip),
        (b"\x93NUMPY\x01\0".to_vec(), FileKind::Npy),
        (b"GGUF\x03\0\0\0".to_vec(), FileKind::Gguf),
        (b"\x89HDF\r\n\x1a\n\0".to_vec(), FileKind::Hdf5),
        (b"\x1c\0\0\0TFL3".to_vec(), FileKind::Model("a TensorFlow Lite model")),
        (b"\x10\x01\0\0\0\0\0\0{\"w\":".to_vec(), FileKind::Safetensors),
        (state.to_vec(), FileKind::Pickle(Pickled::Tensors)),
        (
            object.to_vec(),
            FileKind::Pickle(Pickled::Object("__main__.Net".into())),
        ),
        (
            framed.to_vec(),
            FileKind::Pickle(Pickled::Object("__main__.Net".into())),
        ),
        (plain.to_vec(), FileKind::Pickle(Pickled::Other)),
        (onnx(), FileKind::Onnx),
        (
            b"<\n  ir_version: 10,\n  opset_import: [\"\" : 20]\n>\n".to_vec(),
            FileKind::Onnx,
        ),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(),
            FileKind::Image("a PNG image"),
        ),
        (
            b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec(),
            FileKind::Image("a JPEG image"),
        ),
        (b"RIFF\x24\0\0\0WEBPVP8 ".to_vec(), FileKind::Image("a WebP image")),
        (b"\x1f\x8b\x08\0".to_vec(), FileKind::Packed("a gzip file", "gunzip")),
        (tar, FileKind::Packed("a tar archive", "tar xf")),
        (
            b"\x7fELF\x02\x01".to_vec(),
            FileKind::Program("a compiled program or library"),
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid".to_vec(),
            FileKind::LfsPointer,
        ),
        (b"<!DOCTYPE html>\n<html>".to_vec(), FileKind::Html),
        (
            b"<?xml version=\"1.0\"?>\n<net name=\"m\"".to_vec(),
            FileKind::Model("an OpenVINO model"),
        ),
        (b"{\n  \"model\": {}\n}".to_vec(), FileKind::Json),
        (
            utf16("\u{feff}graph(): ", u16::to_le_bytes),
            FileKind::Encoded("UTF-16"),
        ),
        (utf16("graph(): return", u16::to_le_bytes), FileKind::Encoded("UTF-16")),
        (utf16("graph(): return", u16::to_be_bytes), FileKind::Encoded("UTF-16")),
        (text.into(), FileKind::Text),
        (format!("\u{feff}{text}").into(), FileKind::Text),
        ("# größer\n".repeat(2000).into_bytes(), FileKind::Text),
        (b"# gr\xf6\xdfer\ngraph main { output () }\n".to_vec(), FileKind::Text),
        ((0u8..=255).cycle().take(5000).collect(), FileKind::Binary),
        (vec![0; 100_000], FileKind::Binary),
    ];
    for (head, kind) in cases {
        assert_eq!(
            FileKind::of_head(&head[..head.len().min(HEAD)]),
            kind,
            "{:?}",
            &head[..head.len().min(20)]
        );
        for role in [FileRole::Model, FileRole::Inputs, FileRole::Weights] {
            let advice = kind.advice(role, "f.bin");
            assert!(!advice.is_empty() && !advice.contains("FILE"), "{kind}: {advice}");
        }
    }
}

#[test]
fn archives_are_told_by_their_entries() {
    let of = |names: &[&str], pickle: &[u8]| FileKind::of_entries(names.iter().copied(), |_| pickle.to_vec());
    let state = b"\x80\x02}q\0X\x01\0\0\0wq\x01ctorch._utils\n_rebuild_parameter\n";
    assert_eq!(
        of(&["m/archive_format", "m/models/model.json"], b""),
        FileKind::Exported
    );
    assert_eq!(of(&["m/data.pkl", "m/code/__torch__.py"], b""), FileKind::TorchScript);
    assert_eq!(
        of(&["m/data.pkl", "m/data/0"], state),
        FileKind::Pickle(Pickled::Tensors)
    );
    assert_eq!(of(&["m/data/aotinductor/model/w.so"], b""), FileKind::Inductor);
    assert_eq!(of(&["x.npy", "y.npy"], b""), FileKind::Npz);
    assert_eq!(
        of(&["config.json", "model.weights.h5"], b""),
        FileKind::Model("a Keras model")
    );
    assert_eq!(of(&["word/document.xml"], b""), FileKind::Zip);
}

/// Arbitrary bytes never cause a panic, nor take long.
#[test]
fn any_bytes_have_a_kind() {
    let mut random = crate::tensor::SplitMix::new(3);
    for length in (0..400).chain([HEAD]) {
        for first in [&b"\x80\x02"[..], b"\x08\x0a", b"c\nc\n", b"{", b""] {
            let rest = (0..length).map(|_| random.next_u64() as u8);
            let bytes: Vec<u8> = first.iter().copied().chain(rest).collect();
            assert!(!FileKind::of_head(&bytes).to_string().is_empty());
        }
    }
}
