//! Object files hold the code that the JIT makes, and name what it calls.

use super::kernels::softmax;
use super::*;
use crate::codegen::object;
use crate::kernel::{Affine, KernelBuilder};
use crate::scalar::Unary;
use ::object::read::{Object, ObjectSection, ObjectSymbol};

/// `tan` of doubles, which has no vector code.
fn tangents() -> Kernel {
    let mut k = KernelBuilder::new("tan");
    let x = k.input("x", DType::F64, &[8]);
    let y = k.output("y", DType::F64, &[8]);
    k.parallel(&[8], |k, v| {
        let value = k.load(x, Affine::from(v[0]));
        let tan = k.unary(Unary::Tan, value);
        k.store(y, Affine::from(v[0]), tan);
    });
    k.finish().expect("a kernel that verifies")
}

#[test]
fn kernels_are_functions_with_constants() {
    let kernels = [softmax(4, 64), tangents()];
    let options = Options::default();
    let bytes = object(&kernels, options).expect("kernels compile");
    let file = ::object::File::parse(&*bytes).expect("an object file");
    let compiled = compile(&kernels, options).expect("kernels compile");
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
    assert!(undefined.contains(&"fxc_Tan_f64"), "{undefined:?}");
    let known = |name: &&str| name.is_empty() || crate::code::host_function(name).is_some();
    assert!(undefined.iter().all(known), "{undefined:?}");
    assert!(file.sections().any(|s| s.relocations().count() > 0));
}
