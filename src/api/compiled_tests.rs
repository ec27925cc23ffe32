//! Files of compiled models: which code is in them, and who may open them.

use super::{Model, Options};
use crate::diag::Code;
use crate::driver::CompiledFile;
use crate::math::contract::Precision;
use crate::target::Target;
use crate::tensor::Tensor;
use std::path::PathBuf;

const MODEL: &str = "const w : f32[2, 2] = [[1.0, 0.0], [0.0, 1.0]]
graph main {
    %x : f32[N, 2] = placeholder x
    %w = get_attr w
    %y = call_function torch.matmul(%x, %w)
    output %y
}";

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        TempFile(std::env::temp_dir().join(format!("fxc-api-{}-{name}.fxc", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn rows(count: usize) -> Tensor {
    Tensor::from_slice(&[count, 2], &vec![1.5f32; 2 * count])
}

#[test]
fn files_have_code_for_every_size_and_processor() {
    let file = TempFile::new("targets");
    let model = Model::from_text(MODEL).unwrap();
    let older = Target::native()
        .features()
        .next()
        .map_or(Target::native(), |f| Target::native().without(f));
    let options = Options::new().at("N", [1, 3]).target(older).target(Target::native());
    model.save_compiled(&file.0, &options).unwrap();
    let parts = CompiledFile::open(&file.0).unwrap().parts();
    let sizes: Vec<_> = parts.iter().map(|p| (p.sizes[0].1, p.features.len())).collect();
    let (a, b) = (older.features().count(), Target::native().features().count());
    assert_eq!(sizes, [(1, a), (3, a), (1, b), (3, b)]);
    let strict = Options::new().fallback(false);
    let compiled = Model::open(&file.0).unwrap().compile(&strict).unwrap();
    for n in [1, 3] {
        assert_eq!(compiled.run([rows(n).into()]).unwrap()[0].shape(), [n, 2]);
    }
    assert_eq!(compiled.run([rows(2).into()]).unwrap_err().code(), Some(Code::E0604));
    let older = strict.target(older).at("N", [3]);
    assert!(Model::open(&file.0).unwrap().compile(&older).is_ok());
    // Prepared sizes are an option of every compilation.
    assert!(
        model
            .compile(&Options::new().at("N", [1, 8]))
            .unwrap()
            .run([rows(5).into()])
            .is_ok()
    );
    assert!(model.compile(&Options::new().at("M", [1])).is_err());
    assert!(model.save_compiled(&file.0, &Options::new().at("M", [1])).is_err());
}

#[test]
fn code_without_graphs_is_smaller_and_runs_alone() {
    let [whole, code] = ["whole", "code"].map(TempFile::new);
    let model = Model::from_text(MODEL).unwrap();
    let options = Options::new().dim("N", 2);
    model.save_compiled(&whole.0, &options).unwrap();
    model.save_compiled(&code.0, &options.clone().code_only(true)).unwrap();
    let size = |f: &TempFile| std::fs::metadata(&f.0).unwrap().len();
    assert!(size(&code) < size(&whole));
    let compiled = Model::open(&code.0).unwrap().compile(&Options::new()).unwrap();
    assert_eq!(compiled.run([rows(2).into()]).unwrap()[0].as_slice::<f32>(), [1.5; 4]);
    // It does not fit, and there is nothing to compile.
    assert_eq!(compiled.run([rows(3).into()]).unwrap_err().code(), Some(Code::E0604));
    let exact = Model::open(&code.0)
        .unwrap()
        .compile(&Options::new().exact(true).dim("N", 2));
    assert_eq!(exact.err().and_then(|e| e.code()), Some(Code::E0604));
    let mut runner = crate::Runner::open(&code.0, &crate::RunnerOptions::new()).unwrap();
    assert_eq!(runner.run(&[(&rows(2)).into()]).unwrap()[0].as_slice::<f32>(), [1.5; 4]);
    // A model without code would be left with nothing.
    let none =
        Model::from_text("graph main { %x : f32[4] = placeholder x  %y = call_function torch.nonzero(%x)  output %y }");
    let refused = none.unwrap().save_compiled(&whole.0, &Options::new().code_only(true));
    assert_eq!(refused.unwrap_err().code(), Some(Code::E0702));
}

#[test]
fn products_multiply_rounded_operands_if_asked() {
    let text = "graph main { %a : f32[1, 2] = placeholder a  %b : f32[2, 1] = placeholder b  \
                %y = call_function torch.matmul(%a, %b)  %z = call_function torch.mul(%y, 1.001)  output %z }";
    let model = Model::from_text(text).unwrap();
    let (a, b) = (
        Tensor::from_slice::<f32>(&[1, 2], &[1.001, 1.0]),
        Tensor::from_slice::<f32>(&[2, 1], &[1.0, 1.0]),
    );
    let run = |precision| {
        let compiled = model.compile(&Options::new().precision(precision)).unwrap();
        compiled.run([a.clone().into(), b.clone().into()]).unwrap()[0].as_slice::<f32>()[0]
    };
    assert_eq!(run(Precision::F32), (1.001f32 + 1.0) * 1.001);
    assert_eq!(run(Precision::Bf16), 2.0 * 1.001f32);
}

/// The original of a weight that products read in packed form is not written beside it.
#[test]
fn code_contains_the_weights_of_products_once() {
    let row = format!("[{}]", ["0.5"; 256].join(", "));
    let text = format!(
        "const w : f32[64, 256] = [{}]
        graph main {{
            %x : f32[2, 256] = placeholder x
            %w = get_attr w
            %y = call_function torch.nn.functional.linear(%x, %w)
            output %y
        }}",
        vec![row; 64].join(", ")
    );
    let file = TempFile::new("once");
    let model = Model::from_text(&text).unwrap();
    model.save_compiled(&file.0, &Options::new().code_only(true)).unwrap();
    let weight = 64 * 256 * 4;
    let size = std::fs::metadata(&file.0).unwrap().len();
    assert!((weight..weight * 3 / 2).contains(&size), "{size} bytes");
    let compiled = Model::open(&file.0).unwrap().compile(&Options::new()).unwrap();
    let x = Tensor::from_slice(&[2, 256], &[1.0f32; 512]);
    assert_eq!(compiled.run([x.into()]).unwrap()[0].as_slice::<f32>(), [128.0; 128]);
}

#[test]
fn programs_refuse_code_that_others_name() {
    let file = TempFile::new("refused");
    Model::from_text(MODEL)
        .unwrap()
        .save_compiled(&file.0, &Options::new().dim("N", 2))
        .unwrap();
    let refused = Model::open_with(&file.0, &Options::new().allow_code(false));
    assert_eq!(refused.err().and_then(|e| e.code()), Some(Code::E0409));
    assert!(Model::open_with(&file.0, &Options::new()).is_ok());
}
