//! Files of other formats: every command reports the kind of the file in one message, without reading all of it.

use crate::support::{Dir, Ran, codes, command, fxc_in, root};
use std::io::Write;
use std::process::Stdio;

/// More than is read of a file to recognise its kind, and more than fits in memory.
const VAST: u64 = 1 << 38;

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in entries {
        out.start_file(*name, stored).unwrap();
        out.write_all(content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

/// File name, content, and the expected message.
fn samples() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let state =
        b"\x80\x02ccollections\nOrderedDict\nq\0)Rq\x01(X\x01\0\0\0wq\x02ctorch._utils\n_rebuild_tensor_v2\nq\x03";
    let utf16: Vec<u8> = "\u{feff}graph():\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let read = |path: &str| std::fs::read(root().join(path)).unwrap();
    vec![
        (
            "m.onnx",
            b"\x08\x0a\x12\x07pytorch\x1a\x062.15.0\x3a\xff\xff\xff\x0f\x0a\x04main".to_vec(),
            "an ONNX model",
        ),
        (
            "state.pth",
            zip(&[("state/data.pkl", state), ("state/data/0", b"....")]),
            "a pickle of tensors",
        ),
        (
            "whole.pt",
            zip(&[("whole/data.pkl", b"\x80\x02c__main__\nNet\nq\0)")]),
            "`__main__.Net`",
        ),
        (
            "script.pt",
            zip(&[("s/data.pkl", state), ("s/code/__torch__.py", b"")]),
            "a TorchScript archive",
        ),
        ("old.pth", state.to_vec(), "a pickle of tensors"),
        ("m.gguf", b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), "a GGUF file"),
        (
            "w.safetensors",
            read("examples/digits/digits.safetensors"),
            "a .safetensors file of tensors",
        ),
        ("x.npz", read("tests/ui/wrong.npz"), "an .npz archive of tensors"),
        ("m.h5", b"\x89HDF\r\n\x1a\n\0\0".to_vec(), "an HDF5 file"),
        ("m.tflite", b"\x1c\0\0\0TFL3\x14\0".to_vec(), "a TensorFlow Lite model"),
        ("cat.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "a PNG image"),
        ("cat.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec(), "a JPEG image"),
        ("m.pt2.gz", b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "a gzip file"),
        ("graph.txt", utf16, "UTF-16 text"),
        (
            "lfs.pt2",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(),
            "a Git LFS pointer",
        ),
        ("page.pt2", b"<!DOCTYPE html>\n<html><body>404".to_vec(), "an HTML page"),
        (
            "index.json",
            b"{\n  \"metadata\": {\"total_size\": 1}\n}".to_vec(),
            "a JSON document",
        ),
        ("a.out", b"\x7fELF\x02\x01\x01\0".to_vec(), "a compiled program"),
        (
            "noise.bin",
            (0u8..=255).rev().cycle().take(100_000).collect(),
            "a binary file of an unknown format",
        ),
    ]
}

#[test]
fn every_command_tells_what_is_no_model() {
    let dir = Dir::new("kinds");
    for (name, content, what) in samples() {
        let path = dir.file(name, content);
        let ran = fxc_in(&dir.0, &["check", &path]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.err);
        assert!(
            ran.err.contains(what) && ran.err.contains("help: "),
            "{name}: {}",
            ran.err
        );
    }
    let commands = [
        "run",
        "compile",
        "emit-code",
        "print",
        "opt",
        "rewrite",
        "bench",
        "bisect",
        "fmt",
        "check",
    ];
    for command in commands {
        for name in ["m.onnx", "script.pt", "state.pth"] {
            let ran = fxc_in(&dir.0, &[command, name, "--message-format", "json"]);
            assert_eq!(
                (ran.code, codes(&ran.err)),
                (2, vec!["E0703".to_string()]),
                "{command} {name}"
            );
        }
    }
    let empty = dir.file("empty.pt2", "");
    let ran = fxc_in(&dir.0, &["check", &empty, "--message-format", "json"]);
    assert_eq!(codes(&ran.err), ["E0113"]);
}

/// A sparse file of [`VAST`] bytes.
fn vast(dir: &Dir, name: &str, head: &[u8]) -> String {
    let path = dir.file(name, head);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(VAST)
        .unwrap();
    path
}

#[test]
fn kinds_of_large_files_are_told_by_their_start() {
    let dir = Dir::new("vast");
    for (name, head) in [
        (
            "m.onnx",
            &b"\x08\x0a\x12\x07pytorch\x3a\x80\x80\x80\x80\x20\x0a\x04main"[..],
        ),
        ("m.gguf", b"GGUF\x03\0\0\0"),
        ("noise", b"\x01\x02\x03\x04"),
        ("zeros", b""),
        ("m.pth", b"\x80\x02ccollections\nOrderedDict\n"),
    ] {
        let path = vast(&dir, name, head);
        let ran = fxc_in(&dir.0, &["check", &path, "--message-format", "json"]);
        assert_eq!(codes(&ran.err), ["E0703"], "{name}");
        let inputs = fxc_in(
            &root().join("examples"),
            &["run", "mlp.fxir", "--inputs", &path, "--message-format", "json"],
        );
        assert_eq!(codes(&inputs.err), ["E0507"], "{name}");
    }
}

#[test]
fn files_of_the_wrong_kind_are_told_as_inputs_and_as_weights() {
    let dir = Dir::new("wrong");
    dir.file(
        "g.fxir",
        "weights \"w.bin\"\nparam w : f32[2]\ngraph main {\n    %w = get_attr w\n    output %w\n}\n",
    );
    let model = std::fs::read(root().join("tests/data/mlp.pt2")).unwrap();
    let mut samples = samples();
    samples.push(("m.pt2", model, "a torch.export archive"));
    for (name, content, what) in samples {
        if ["w.safetensors", "x.npz", "noise.bin"].contains(&name) {
            continue;
        }
        let path = dir.file(name, &content);
        let ran = fxc_in(root(), &["run", "examples/mlp.fxir", "--inputs", &path]);
        assert!(
            ran.err.contains("E0507") && ran.err.contains(what),
            "{name}: {}",
            ran.err
        );
        let one = format!("x={path}");
        let ran = fxc_in(root(), &["run", "examples/mlp.fxir", &one]);
        assert!(
            ran.err.contains("E0507") && ran.err.contains(what),
            "{name}: {}",
            ran.err
        );
        dir.file("w.bin", &content);
        let ran = fxc_in(&dir.0, &["check", "g.fxir"]);
        assert!(
            ran.err.contains("E0407") && ran.err.contains(what),
            "{name}: {}",
            ran.err
        );
        assert_eq!(ran.err.matches("error[").count(), 1, "{name}: {}", ran.err);
    }
}

#[test]
fn standard_input_of_another_kind_is_told() {
    let mut child = command(root(), &["check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(
        ran.code == 2 && ran.err.contains("`<stdin>` as a model: the file is a PNG image"),
        "{}",
        ran.err
    );
}

/// Nobody wrote the nodes of archives or of printed torch graphs by hand, so unused ones are not reported.
#[test]
fn unused_nodes_are_the_authors() {
    let dir = Dir::new("unused");
    let body = "    %x : [num_users=2] = placeholder[target=x]\n    %neg : [num_users=0] = call_function[target=torch.neg](args = (%x,), kwargs = {})\n    return x\n";
    let printed = dir.file("printed.txt", format!("graph():\n{body}"));
    let of = |args: &[&str]| codes(&fxc_in(&dir.0, &[args, &["--message-format", "json"]].concat()).err);
    assert_eq!(of(&["check", &printed]), Vec::<String>::new());
    assert_eq!(of(&["check", "--lints", &printed]), ["L0001"]);
    let own = "graph main {\n    %x = placeholder x\n    %y = call_function torch.neg(%x)\n    output %x\n}\n";
    assert_eq!(of(&["check", &dir.file("own.fxir", own)]), ["L0001"]);
}
