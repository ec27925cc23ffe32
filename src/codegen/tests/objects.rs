//! Object files contain the code that the JIT generates, and refer to host functions by name.

use super::kernels::softmax;
use super::*;
use ::object::read::{Object, ObjectSection, ObjectSymbol};

/// `tan` of f64, which has no vector code.
fn tangents() -> Kernel {
    kernel(
        "kernel tan
        in x: f64[8]
        out y: f64[8]
        parallel for i0 in 8 {
            v0: f64 = x[i0]
            v1: f64 = tan(v0)
            y[i0] = v1
        }",
        &[],
    )
}

#[test]
fn kernels_are_functions_with_constants() {
    let kernels = [softmax(4, 64), tangents()];
    let options = CodegenOptions::default();
    let bytes = emit_object(&kernels, options).expect("kernels compile");
    let file = ::object::File::parse(&*bytes).expect("an object file");
    let compiled = compile_kernels(&kernels, options).expect("kernels compile");
    for i in 0..kernels.len() {
        let symbol = |name: String| {
            let found = file.symbols().find(|s| s.name() == Ok(&name) && s.is_definition());
            found.unwrap_or_else(|| panic!("{name}"))
        };
        let (code, constants) = (symbol(format!("kernel{i}")), symbol(format!("kernel{i}_constants")));
        assert_eq!(code.size() as usize, compiled.code_bytes(i), "kernel {i}");
        assert!(constants.address().is_multiple_of(64));
    }
    let undefined: Vec<&str> = file
        .symbols()
        .filter(|s| s.is_undefined())
        .filter_map(|s| s.name().ok())
        .collect();
    assert!(undefined.contains(&"fxc_Tan_f64_lanes"), "{undefined:?}");
    let known = |name: &&str| name.is_empty() || crate::code::host_function(name).is_some();
    assert!(undefined.iter().all(known), "{undefined:?}");
    assert!(file.sections().any(|s| s.relocations().count() > 0));
}
