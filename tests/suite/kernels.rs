//! Kernels survive printing and parsing: those of every example, and of every archive among the fixtures.

use crate::support::{examples, root};
use fxc::internals::driver::{Dims, Request, Session, Stage, compile};
use fxc::internals::kernel::Kernel;

#[test]
fn every_kernel_comes_back_from_its_text() {
    let data = std::fs::read_dir(root().join("tests/data")).unwrap();
    let archives = data
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "pt2"));
    let examples = examples().into_iter().map(|e| root().join(e));
    let mut kernels = 0;
    for path in examples.chain(archives) {
        for kernel in kernels_of(&path.display().to_string()) {
            let text = kernel.to_string();
            let again = Kernel::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", path.display()));
            assert_eq!(again.to_string(), text, "{}", path.display());
            assert!(again == kernel || text.contains("NaN"), "{}\n{text}", path.display());
            kernels += 1;
        }
    }
    assert!(kernels > 50, "{kernels} kernels");
}

/// The kernels of a model; none if it cannot be compiled without types of inputs.
fn kernels_of(path: &str) -> Vec<Kernel> {
    let mut s = Session::new();
    let Ok(model) = s.load(path) else { return vec![] };
    let request = Request {
        dims: Dims::from([("N".to_string(), 4)]),
        threads: 1,
        until: Some(Stage::Lower),
        ..Request::default()
    };
    let made = compile(&mut s, model, &request);
    made.ok().and_then(|m| m.program).map_or(vec![], |p| p.kernels)
}
