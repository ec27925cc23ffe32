//! The header is that of the functions, and C programs that use it work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_header_is_that_of_the_functions() {
    let config = cbindgen::Config::from_file(root().join("capi/cbindgen.toml")).unwrap();
    let bindings = cbindgen::generate_with_config(root().join("capi"), config).unwrap();
    let mut text = vec![];
    bindings.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let header = root().join("include/fxc.h");
    if std::env::var_os("FXC_WRITE_HEADER").is_some() {
        std::fs::write(&header, &text).unwrap();
    }
    let found = std::fs::read_to_string(header).unwrap_or_default();
    assert_eq!(
        found, text,
        "FXC_WRITE_HEADER=1 cargo test -p fxc-capi writes include/fxc.h anew"
    );
}

/// The folder with `libfxc`, which is built there: tests alone do not need it built.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        // With the package `fxc` named, it is built with the features that its own tests have built it with.
        cargo
            .current_dir(root())
            .args(["build", "--quiet", "-p", "fxc", "-p", "fxc-capi", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
        profile.to_path_buf()
    })
}

/// Compiles a C program against the library, static or shared; `None` if there is no C compiler.
fn build_program(source: &str, shared: bool) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no C compiler `cc`; no C program was built");
        return None;
    }
    let name = Path::new(source).file_stem().unwrap().to_string_lossy().into_owned();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{shared}"));
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
    ]);
    cc.arg(root().join("include"))
        .arg(root().join(source))
        .arg("-o")
        .arg(&program);
    if shared {
        cc.arg("-L").arg(libraries()).arg("-lfxc");
        cc.arg(format!("-Wl,-rpath,{}", libraries().display()));
    } else {
        cc.arg(libraries().join("libfxc.a"));
    }
    let made = cc.args(["-lpthread", "-ldl", "-lm"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(program)
}

fn run(mut command: Command) -> String {
    let ran = command.output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    text
}

#[test]
fn every_function_works_from_c() {
    for shared in [false, true] {
        if let Some(program) = build_program("capi/tests/library.c", shared) {
            let mut command = Command::new(program);
            command.current_dir(env!("CARGO_TARGET_TMPDIR"));
            assert_eq!(run(command), "");
        }
    }
}

#[test]
fn the_example_classifies_the_digits() {
    let Some(program) = build_program("examples/c/digits.c", true) else {
        return;
    };
    let mut command = Command::new(program);
    command.current_dir(root());
    command.args([
        "examples/digits/digits.fxir",
        "examples/c/images.bin",
        "examples/c/labels.bin",
    ]);
    let text = run(command);
    assert!(text.starts_with("input x: f32[N, 1, 8, 8]\n"), "{text}");
    assert!(text.ends_with(" of 120 digits are right\n"), "{text}");
}
