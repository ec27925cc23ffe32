//! The inputs that fuzzing kept, through the functions that it calls.

use crate::mutants::{Random, survives};
use crate::support::root;

#[path = "../../fuzz/targets.rs"]
pub mod targets;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 4] = [
    ("text", targets::text),
    ("archive", targets::archive),
    ("tensors", targets::tensors),
    ("program", targets::program),
];

#[test]
fn inputs_of_the_corpora_are_results_or_diagnostics() {
    for (name, target) in TARGETS {
        let folder = root().join("fuzz/corpus").join(name);
        let files = std::fs::read_dir(&folder).expect("the corpus is in the repository");
        let paths: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
        assert!(!paths.is_empty(), "no corpus for {name}");
        for path in paths {
            let bytes = std::fs::read(&path).expect("the file is readable");
            survives(&|| path.display().to_string(), || target(&bytes));
        }
    }
}

#[test]
fn random_programs_of_integers_compute_what_the_interpreter_computes() {
    let mut r = Random(18);
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..1 + 4 * r.below(12)).map(|_| r.below(256) as u8).collect();
        survives(&|| format!("{bytes:?}"), || targets::program(&bytes));
    }
}
