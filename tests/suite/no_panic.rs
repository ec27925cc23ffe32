//! All bytes yield a result or a diagnostic: mutants of every text and every kind of file in the repository go through
//! all stages.

use crate::corpora::targets::show;
use crate::mutants::{self, Random, exercise, rounds, survives};
use crate::support::{Dir, examples, files, root};
use fxc::graph::{Graph, GraphModule};
use fxc::internals::driver::{LoadedModel, Session};
use fxc::internals::import::bind_weights;
use fxc::internals::op::{Meaning, Op};
use fxc::internals::tensor::{Tensor, files as tensors};
use fxc::types::{DType, Val};
use std::io::{Cursor, Read, Write};
use std::path::Path;
use zip::read::{ArchiveOffset, Config};
use zip::write::SimpleFileOptions;

fn check(text: &str, run: bool) {
    let mut s = Session::new();
    if let Ok(model) = s.load_text("mutant.fxir", text) {
        exercise(&mut s, model, run);
    }
    show(&s);
}

fn texts_of(dir: &str, ending: &str) -> Vec<String> {
    let paths = files(dir, ending);
    paths.iter().map(|p| std::fs::read_to_string(p).unwrap()).collect()
}

/// The FXIR and torch texts among the examples.
fn example_texts() -> Vec<String> {
    let paths = examples();
    let read = |p: &String| std::fs::read_to_string(root().join(p)).unwrap();
    paths.iter().map(read).filter(|t| t.len() < 8000).collect()
}

#[test]
fn mutants_of_every_text_are_results_or_diagnostics() {
    let mut texts = texts_of("tests/ui", ".fxir");
    texts.extend(example_texts());
    // What torch prints, in each of its forms.
    texts.extend(texts_of("tests/data", ".program"));
    texts.extend(texts_of("tests/data", ".code"));
    texts.extend(texts_of("src/syntax/testdata", ".txt"));
    let mut r = Random(2026);
    for text in texts.iter().filter(|t| t.len() < 8000) {
        for _ in 0..rounds(40) {
            let mutant = mutants::text(text, &mut r);
            survives(&|| mutant.clone(), || check(&mutant, false));
        }
    }
}

/// Extreme sizes go through the passes, the interpreter, the compiler and the runtime.
#[test]
fn graphs_with_odd_numbers_are_results_or_diagnostics() {
    let mut texts = texts_of("tests/ui", ".fxir");
    texts.extend(example_texts());
    let mut r = Random(5);
    for text in texts.iter().filter(|t| t.len() < 4000) {
        for _ in 0..rounds(1) {
            let mutant = mutants::number(text, &mut r);
            survives(&|| mutant.clone(), || check(&mutant, true));
        }
    }
}

/// Every op of the table, with arguments that its schema allows but torch rejects or nobody passes.
#[test]
fn calls_of_every_op_are_results_or_diagnostics() {
    let mut r = Random(13);
    for op in fxc::internals::op::all().iter().filter(|op| runs_by_itself(op)) {
        for _ in 0..rounds(1) {
            let module = mutants::call(op, &mut r);
            let text = fxc::graph::print(&module);
            survives(&|| text.clone(), || {
                let mut s = Session::new();
                exercise(&mut s, LoadedModel::new("call", module), true);
                show(&s);
            });
        }
    }
}

/// Sizes of created tensors that exceed all memory, or overflow in products.
#[test]
fn calls_with_vast_numbers_are_results_or_diagnostics() {
    for (input, call) in [
        ("f32[3]", "torch.combinations(%x, 4611686018427387904)"),
        ("f32[1, 3]", "aten.slice.Tensor(%x, 0, 0, 9, 9223372036854775806)"),
        ("f32[0, 3]", "aten.slice.Tensor(%x, 0, 0, 9, 9223372036854775806)"),
        ("f32[1]", "torch.combinations(%x, 100, True)"),
        (
            "b8[4611686018427387905]",
            "torch._chunk_cat([%x], 0, 4611686018427387904)",
        ),
        (
            "u8[0, 3]",
            "constant_pad_nd(%x, [-9223372036854775808, 9223372036854775806], 1)",
        ),
        ("f32[0, 4294967296, 4294967296]", "torch.relu(%x)"),
        ("f32[2]", "torch.histc(%x, 1152921504606846976)"),
        ("i64[2]", "torch.bincount(%x, minlength=1152921504606846976)"),
    ] {
        let text = format!("graph g {{\n%x : {input} = placeholder x\n%r = call_function {call}\noutput %r\n}}");
        survives(&|| text.clone(), || check(&text, true));
    }
}

/// Results without elements have no memory, whatever writes them.
#[test]
fn calls_without_elements_are_results_or_diagnostics() {
    let calls = [
        "torch.sort(%x, 1)",
        "torch.argsort(%x, 0)",
        "torch.msort(%x)",
        "torch.topk(%x, 0, 1)",
        "torch.kthvalue(%x, 1, 1)",
        "torch.max(%x, 1)",
        "torch.min(%x, 0)",
        "torch.argmax(%x, 1)",
        "torch.median(%x, 1)",
        "torch.nanmedian(%x, 1)",
        "torch.mode(%x, 1)",
        "torch.cummax(%x, 1)",
        "torch.cummin(%x, 0)",
        "torch.cumsum(%x, 1)",
        "torch.logcumsumexp(%x, 0)",
        "torch.gather(%x, 1, %i)",
        "torch.scatter(%x, 1, %i, %x)",
        "torch.scatter_add(%x, 0, %i, %x)",
        "torch.scatter_reduce(%x, 0, %i, %x, 'amax')",
        "torch.take(%x, %i)",
        "torch.take_along_dim(%x, %i, 1)",
        "torch.index_select(%x, 1, %k)",
        "torch.index_add(%x, 1, %k, %x)",
        "torch.index_copy(%x, 1, %k, %x)",
        "torch.index_fill(%x, 1, %k, 2)",
        "torch.slice_scatter(%x, %x, 0)",
        "torch.select_scatter(%x, %k, 0, 0)",
        "torch.searchsorted(%x, %x)",
        "torch.bucketize(%x, %k)",
        "torch.unique(%x)",
        "torch.nonzero(%x)",
        "torch.nn.functional.pad(%x, [1, 1], 'replicate')",
        "torch.nn.functional.embedding(%i, %x)",
    ];
    for (shape, k) in [("[0, 3]", "[0]"), ("[3, 0]", "[0]"), ("[0, 0]", "[0]")] {
        for dtype in ["f32", "bf16", "i64"] {
            for call in calls {
                let inputs = format!(
                    "%x : {dtype}{shape} = placeholder x\n%i : i64{shape} = placeholder i\n%k : i64{k} = placeholder k"
                );
                let call = call.replace('\'', "\"");
                let text = format!("graph g {{\n{inputs}\n%r = call_function {call}\noutput %r\n}}");
                survives(&|| text.clone(), || check(&text, true));
            }
        }
    }
}

/// Calls of graphs need graphs. Polynomials of degree 2^62 are computed term by term, as in torch, which takes years.
fn runs_by_itself(op: &Op) -> bool {
    !matches!(op.meaning, Meaning::Control(_)) && !op.name.contains("polynomial")
}

/// The entries of an archive.
fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    // As in fxc: the reader's guess of where an archive starts is wrong for some of torch's.
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let mut zip = zip::ZipArchive::with_config(config, Cursor::new(bytes)).unwrap();
    let mut out = vec![];
    for i in 0..zip.len() {
        let mut file = zip.by_index(i).unwrap();
        let mut content = vec![];
        file.read_to_end(&mut content).unwrap();
        out.push((file.name().unwrap().to_string(), content));
    }
    out
}

fn archive(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(Cursor::new(vec![]));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in entries {
        out.start_file(name.as_str(), stored).unwrap();
        out.write_all(content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

/// Reads a file of these bytes as a model and does everything with it.
fn load(dir: &Dir, bytes: &[u8], run: bool) {
    let path = dir.file("mutant.pt2", bytes);
    let mut s = Session::new();
    if let Ok(model) = s.load(&path) {
        exercise(&mut s, model, run);
    }
    show(&s);
}

#[test]
fn mutants_of_archives_are_results_or_diagnostics() {
    let dir = Dir::new("archives");
    let mut r = Random(7);
    for path in files("tests/data", ".pt2") {
        let whole = std::fs::read(&path).unwrap();
        for i in 0..rounds(8) {
            let mutant = mutants::bytes(&whole, &mut r);
            survives(&|| format!("{}, damage {i}", path.display()), || {
                load(&dir, &mutant, i % 8 == 0)
            });
        }
        let parts = entries(&whole);
        let texts: Vec<usize> = (0..parts.len()).filter(|&i| parts[i].0.ends_with(".json")).collect();
        for i in 0..rounds(16) {
            let mut changed = parts.clone();
            let (name, content) = &mut changed[*r.pick(&texts)];
            let tree = serde_json::from_slice(content).unwrap();
            let tree = mutants::json(&tree, &mut r).to_string();
            let what = format!("{}, {name} as\n{tree}", path.display());
            *content = tree.into_bytes();
            survives(&|| what.clone(), || load(&dir, &archive(&changed), i % 8 == 0));
        }
    }
}

/// A module that reads two weights.
fn reader() -> GraphModule {
    let mut g = Graph::new();
    let (a, b) = (g.get_attr("a"), g.get_attr("b"));
    g.set_output(Val::Tuple(vec![Val::Leaf(a), Val::Leaf(b)]));
    GraphModule::new("reader", g)
}

/// Reads a file as tensors, with every element, and as weights.
fn read_tensors(path: &Path) {
    if let Ok(file) = tensors::read(path) {
        for t in file.tensors.values() {
            let _: f64 = (0..t.numel()).map(|i| t.get(i).to_f64()).sum();
        }
    }
    let _ = bind_weights(&mut reader(), path);
}

#[test]
fn mutants_of_tensor_files_are_results_or_diagnostics() {
    let dir = Dir::new("tensors");
    let dtypes = [DType::F32, DType::I64, DType::B8, DType::BF16, DType::F16, DType::U8];
    let mut r = Random(11);
    for (k, &dtype) in dtypes.iter().enumerate() {
        let (a, b) = (Tensor::zeros(dtype, &[2, 3]), Tensor::zeros(DType::F64, &[k, 1, 5]));
        for ending in ["npy", "npz", "safetensors"] {
            let path = dir.0.join(format!("whole.{ending}"));
            let list = [("a", &a), ("b", &b)];
            let wanted = if ending == "npy" { &list[..1] } else { &list[..] };
            // Not every format has every element type.
            if tensors::write(&path, wanted.iter().copied()).is_err() {
                continue;
            }
            let whole = std::fs::read(&path).unwrap();
            for i in 0..rounds(30) {
                let mutant = dir.file(&format!("mutant.{ending}"), mutants::bytes(&whole, &mut r));
                survives(&|| format!("{dtype} in .{ending}, damage {i}"), || {
                    read_tensors(Path::new(&mutant))
                });
            }
        }
    }
}
