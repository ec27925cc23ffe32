//! An op of one's own in Rust: a schema, a type rule and a computation, found by every stage like a row of the table.
//!
//!     cargo run --release --example custom_op

use fxc::diag::render::{Format, render};
use fxc::driver::{Fill, Given, Provided, Request, Session, Staged, bind, compile, run};
use fxc::op::custom::{CustomOp, register};
use fxc::op::{Call, OpError, OpResult, Sizes};
use fxc::tensor::{Scalar, Tensor};
use fxc::types::{DType, TensorType, Type, Val};

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

/// Compiles the model and gives its results for random numbers.
pub fn compile_and_run(session: &mut Session) -> Staged<Vec<(String, Tensor)>> {
    let model = session.load_text("model.fxir", MODEL)?;
    let input = Provided {
        name: "x".into(),
        given: Given::Fill(Fill::Normal(1), Some(TensorType::fixed(DType::F32, &[3, 4]))),
        origin: "this program".into(),
        must_match: true,
    };
    let (bound, found) = bind::bind(&model.module, vec![input], Default::default());
    session.diagnostics.extend(found);
    let bound = bound.ok_or(fxc::driver::Reported)?;
    let request = Request {
        inputs: Some(bound.types.clone()),
        dims: bound.dims.clone(),
        ..Request::default()
    };
    let mut made = compile(session, model, &request)?;
    let result = made.run(&bound).expect("nothing can fail at run time here");
    Ok(run::named(&result))
}

/// Makes the op known.
pub fn add_op() {
    register(NormalizeRows).expect("the name is free");
}

#[allow(dead_code)]
fn main() {
    add_op();
    let mut session = Session::new();
    if let Ok(results) = compile_and_run(&mut session) {
        for (name, tensor) in results {
            println!("{name} {} {}", tensor.ty(), run::summary(&tensor));
        }
    } else {
        let list: Vec<_> = session.diagnostics.iter().collect();
        eprint!("{}", render(&session.sources, &list, Format::Human, false));
        std::process::exit(1);
    }
}
