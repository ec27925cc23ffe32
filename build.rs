//! Generates the parsers of `grammar/`: of FXIR, of the Python that torch prints, and of TorchScript.

fn main() {
    println!("cargo:rerun-if-changed=grammar");
    println!("cargo:rerun-if-changed=build.rs");
    lalrpop::Configuration::new()
        .set_in_dir("grammar")
        .emit_rerun_directives(true)
        .process()
        .expect("the grammars of grammar/ must be valid");
}
