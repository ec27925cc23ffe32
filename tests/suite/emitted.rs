//! The intermediate graphs that the compiler writes can be run from their files, with the values that passes folded.

use crate::output::{CONV_BN, ok, weights};
use crate::support::{Dir, root};
use std::path::Path;

/// Every file is a model that returns the same as `model` for the same inputs.
fn same(model: &str, inputs: &[&str], files: &[String]) {
    let want = ok(&[&["run", model], inputs].concat()).out;
    assert!(!files.is_empty());
    for f in files {
        assert_eq!(ok(&[&["run", f], inputs].concat()).out, want, "{f}");
    }
}

fn fxir_files(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path().display().to_string());
    files.filter(|f| f.ends_with(".fxir")).collect()
}

#[test]
fn graphs_of_stages_and_passes_run_from_their_files() {
    let dir = Dir::new("emitted");
    weights(&dir, "w.safetensors");
    let model = dir.file("m.fxir", format!("weights \"w.safetensors\"\n{CONV_BN}"));
    let archive = root().join("tests/data/mlp.pt2").display().to_string();
    let mlp = ["--inputs", "tests/data/mlp.safetensors"];
    for (name, model, inputs) in [("conv", &model, &["x=rand:1"][..]), ("mlp", &archive, &mlp)] {
        // A compilation is for fixed sizes.
        let sizes = if name == "mlp" { &["--dim", "x[0]=5"][..] } else { &[] };
        let path = |what: &str| dir.0.join(name).join(what).display().to_string();
        std::fs::create_dir_all(path("")).unwrap();
        let files = ["graph", "typed", "optimized"].map(|stage| (stage, path(&format!("{stage}.fxir"))));
        for (stage, file) in &files {
            ok(&[&["compile", model, "--emit", &format!("{stage}={file}")], sizes].concat());
        }
        same(model, inputs, &files.map(|f| f.1));
        ok(&[&["compile", model, "--dump-dir", &path("dump")], sizes].concat());
        same(model, inputs, &fxir_files(Path::new(&path("dump"))));
    }
}

#[test]
fn texts_of_one_directory_have_weights_files_of_their_own() {
    let dir = Dir::new("emitted-stem");
    weights(&dir, "m.safetensors");
    let model = dir.file("m.fxir", format!("weights \"m.safetensors\"\n{CONV_BN}"));
    let want = ok(&["run", &model, "x=rand:1"]).out;
    let paths = ["m.optimized", "./m.txt", "m.again"].map(|f| format!("{}/{f}", dir.0.display()));
    // Two files whose names differ only in their extension, and the model, which must not change.
    let archive = root().join("tests/data/mlp.pt2").display().to_string();
    let [optimized, graph, again] = &paths;
    let emit = [format!("graph={graph}"), format!("optimized={optimized}")];
    let emit = ["--emit", &emit[0], "--emit", &emit[1], "--dim", "x[0]=5"];
    ok(&[&["compile", &archive][..], &emit].concat());
    let inputs = ["--inputs", "tests/data/mlp.safetensors"];
    same(&archive, &inputs, &[graph.clone(), optimized.clone()]);
    weights(&dir, "m.safetensors");
    ok(&["opt", &model, "-o", again]);
    for f in [&model, again] {
        assert_eq!(ok(&["run", f, "x=rand:1"]).out, want, "{f}");
    }
}

#[test]
fn a_text_without_values_says_how_they_are_had() {
    let dir = Dir::new("emitted-out");
    weights(&dir, "w.safetensors");
    let model = dir.file("m.fxir", format!("weights \"w.safetensors\"\n{CONV_BN}"));
    let ran = ok(&["compile", &model, "--emit", "optimized"]);
    assert!(
        ran.err
            .contains("use `--emit STAGE=FILE` to write them to separate files"),
        "{}",
        ran.err
    );
    let ran = ok(&["compile", &model, "--emit", "typed"]);
    assert!(!ran.err.contains("note:"), "{}", ran.err);
}
