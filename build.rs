//! Generates the parsers of `grammar/`: of FXIR, of the Python that torch prints, and of TorchScript. Digests the sources that
//! decide what native parts of compiled models hold: a part fits only the build that made it.

use std::path::{Path, PathBuf};

/// What decides how programs are made and written, how their code looks and how weights are packed.
const DIGESTED: [&str; 3] = ["Cargo.lock", "grammar", "src"];

fn main() {
    println!("cargo:rustc-env=FXC_DIGEST={:016x}", digest_sources());
    println!("cargo:rerun-if-changed=grammar");
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "compiler")]
    generate_parsers();
}

#[cfg(feature = "compiler")]
fn generate_parsers() {
    lalrpop::Configuration::new()
        .set_in_dir("grammar")
        .emit_rerun_directives(true)
        .process()
        .expect("the grammars of grammar/ must be valid");
}

/// FNV-1a of the sources, in the order of their paths.
fn digest_sources() -> u64 {
    let mut files = vec![];
    for path in DIGESTED {
        println!("cargo:rerun-if-changed={path}");
        collect_files(Path::new(path), &mut files);
    }
    files.sort();
    let bytes = files.iter().flat_map(|f| std::fs::read(f).unwrap_or_default());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ b as u64).wrapping_mul(0x100_0000_01b3)
    })
}

fn collect_files(path: &Path, out: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|e| collect_files(&e.path(), out)),
        Err(_) => out.push(path.to_path_buf()),
    }
}
