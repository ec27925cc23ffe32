//! Generates the parser of FXIR from `grammar/fxir.lalrpop`.

fn main() {
    println!("cargo:rerun-if-changed=grammar/fxir.lalrpop");
    println!("cargo:rerun-if-changed=build.rs");
    lalrpop::Configuration::new()
        .set_in_dir("grammar")
        .emit_rerun_directives(true)
        .process()
        .expect("grammar/fxir.lalrpop must be a valid LALRPOP grammar");
}
