//! An op of one's own in Rust: a schema, a type rule and a computation, found by every stage like a row of the table.
//!
//!     cargo run --release --example custom_op

use fxc::custom::{Call, CustomOp, OpError, OpResult, Sizes, register};
use fxc::types::{DType, TensorType, Type, Val};
use fxc::{Error, Model, Options, Outputs, Scalar, Tensor};

/// Each row divided by its largest magnitude, and these magnitudes.
struct NormalizeRows;

impl CustomOp for NormalizeRows {
    fn schema(&self) -> String {
        "mylib::normalize_rows(Tensor x, float eps=1e-6) -> (Tensor, Tensor)".into()
    }

    fn infer(&self, call: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
        let (dtype, shape) = call.shaped("x")?;
        let [rows, _] = shape else {
            return Err(OpError::shape(format!(
                "normalize_rows takes a matrix, not {} dims",
                shape.len()
            )));
        };
        if dtype != DType::F32 {
            return Err(OpError::dtype("normalize_rows is written for f32"));
        }
        let scales = TensorType::new(dtype, vec![rows.clone()]);
        Ok(Val::Tuple(vec![Val::Leaf(call.leaf("x")?.clone()), Val::Leaf(scales)]))
    }

    fn run(&self, call: &Call<Tensor>) -> OpResult<Val<Tensor>> {
        let (x, eps) = (call.leaf("x")?, call.f64("eps")? as f32);
        let (rows, columns) = (x.shape()[0], x.shape()[1]);
        let data = x.as_slice::<f32>();
        let row = |i: usize| &data[i * columns..(i + 1) * columns];
        let largest = |i: usize| row(i).iter().fold(eps, |m, v| m.max(v.abs()));
        let scales: Vec<f32> = (0..rows).map(largest).collect();
        let out = Tensor::from_fn(DType::F32, x.shape(), |i| Scalar::F32(data[i] / scales[i / columns]));
        Ok(Val::Tuple(vec![
            Val::Leaf(out),
            Val::Leaf(Tensor::from_slice(&[rows], &scales)),
        ]))
    }
}

const MODEL: &str = "
graph main {
    %x : f32[N, 4] = placeholder x
    %pair = call_function torch.ops.mylib.normalize_rows.default(%x)
    %rows = call_function operator.getitem(%pair, 0)
    %scales = call_function operator.getitem(%pair, 1)
    %gelu = call_function torch.nn.functional.gelu(%rows)
    output (%gelu, %scales)
}
";

/// Compiles the model and gives its results for three rows.
pub fn compile_and_run() -> Result<Outputs, Error> {
    let compiled = Model::from_text(MODEL)?.compile(&Options::new())?;
    let x: Vec<f32> = (0..12).map(|i| i as f32 - 6.0).collect();
    compiled.run([Tensor::from_slice(&[3, 4], &x).into()])
}

/// Makes the op known.
pub fn add_op() {
    register(NormalizeRows).expect("the name is free");
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    add_op();
    for t in compile_and_run()?.tensors() {
        println!("{} {:?}", t.ty(), t.as_slice::<f32>());
    }
    Ok(())
}
