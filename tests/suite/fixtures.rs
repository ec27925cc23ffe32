//! Damaged files for the ui tests and explain pages, made from valid ones.

use crate::support::{Dir, fxc_in, root};
use std::io::{Cursor, Read, Write};

/// Writes all of them to a directory.
pub fn write(dir: &Dir) {
    let archive = std::fs::read(root().join("tests/data/mlp.pt2")).unwrap();
    let weights = std::fs::read(root().join("examples/digits/digits.safetensors")).unwrap();
    let (graph, config) = ("models/model.json", "model_weights_config.json");
    dir.file("bad.npy", "nonsense");
    dir.file("cut.pt2", &archive[..archive.len() / 2]);
    dir.file(
        "broken.pt2",
        edited(&archive, graph, "{\"name\": \"linear\"}", "{\"name\": \"nowhere\"}"),
    );
    dir.file("version.pt2", edited(&archive, graph, "\"major\": 8", "\"major\": 9"));
    dir.file(
        "pickled.pt2",
        edited(
            &std::fs::read(root().join("tests/data/subclasses.pt2")).unwrap(),
            graph,
            "torch.ops.export.access_subclass_inner_tensor.default",
            "torch.ops.aten.alias.default",
        ),
    );
    dir.file("misspelt.pt2", edited(&archive, config, "net.0.weight", "net.0.wieght"));
    dir.file("digits.safetensors", &weights);
    dir.file("cut.safetensors", &weights[..weights.len() / 2]);
    dir.file("vast.npz", vast());
    compiled(dir);
    dir.file("wrong.npz", std::fs::read(root().join("tests/ui/wrong.npz")).unwrap());
}

/// Writes a compiled model for two rows, and the first half of its file.
fn compiled(dir: &Dir) {
    let text = "graph main { %x : f32[N, 2] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
    dir.file("rows.fxir", text);
    let ran = fxc_in(&dir.0, &["compile", "rows.fxir", "-o", "rows.fxc", "--dim", "N=2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let bytes = std::fs::read(dir.0.join("rows.fxc")).unwrap();
    dir.file("cut.fxc", &bytes[..bytes.len() / 2]);
}

/// An archive in which one text of one entry is replaced.
fn edited(archive: &[u8], entry: &str, from: &str, to: &str) -> Vec<u8> {
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut out = zip::ZipWriter::new(Cursor::new(vec![]));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for i in 0..zip.len() {
        let mut file = zip.by_index(i).unwrap();
        let name = file.name().unwrap().to_string();
        let mut content = vec![];
        file.read_to_end(&mut content).unwrap();
        if name.ends_with(entry) {
            let text = String::from_utf8(content).unwrap();
            assert!(text.contains(from), "{entry} has no {from}");
            content = text.replacen(from, to, 1).into_bytes();
        }
        out.start_file(name, options).unwrap();
        out.write_all(&content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

/// An archive whose header declares a compressed array of nearly 4 GiB but contains none of it: only its header can be
/// read.
fn vast() -> Vec<u8> {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4000000000,), }\n";
    let length = (header.len() as u16).to_le_bytes();
    let mut out = zip::ZipWriter::new(Cursor::new(vec![]));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    out.start_file("x.npy", options).unwrap();
    let lead = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
    out.write_all(&lead).unwrap();
    let mut bytes = out.finish().unwrap().into_inner();
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let size = 4_000_000_000 + lead.len() as u32;
    bytes[entry + 24..entry + 28].copy_from_slice(&size.to_le_bytes());
    bytes
}
