//! Runs a compiled model, in a program that has no compiler:
//!
//!     fxc compile examples/mlp.fxir -o mlp.fxc
//!     cargo build --release -p fxc-runner
//!     target/release/runner mlp.fxc x.bin > prob.bin
//!
//! For each input it takes a file with the input's elements and nothing else; without files, every element is 1. It writes the
//! elements of the results to standard output, and their types to standard error.

use fxc::types::{DType, TensorType};
use fxc::{Runner, RunnerOptions, Tensor};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: runner MODEL.fxc [INPUT …] > RESULTS")?;
    let files: Vec<String> = args.collect();
    let mut runner = Runner::open(path, &RunnerOptions::new())?;
    let types = runner.input_types()[0].to_vec();
    if !files.is_empty() && files.len() != types.len() {
        return Err(format!("the inputs are {}", runner.input_names().join(", ")).into());
    }
    let read = |(i, ty)| read_input(ty, files.get(i).map(String::as_str));
    let inputs = types.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    let views: Vec<_> = inputs.iter().map(Into::into).collect();
    for result in runner.run(&views)? {
        eprintln!("{}", result.ty());
        std::io::stdout().write_all(result.bytes())?;
    }
    Ok(())
}

/// An input of type `ty`: the elements in a file, or ones.
fn read_input(ty: &TensorType, file: Option<&str>) -> Result<Tensor, Box<dyn Error>> {
    let shape = ty.fixed_shape().ok_or("code is for fixed sizes")?;
    let count = shape.iter().product();
    let Some(file) = file else {
        return match ty.dtype {
            DType::F32 => Ok(Tensor::from_slice(&shape, &vec![1.0f32; count])),
            DType::I64 => Ok(Tensor::from_slice(&shape, &vec![1i64; count])),
            _ => Err(format!("give a file for each input: one is {ty}").into()),
        };
    };
    let bytes = std::fs::read(file)?;
    let mut input = Tensor::zeros(ty.dtype, &shape);
    if bytes.len() != input.bytes().len() {
        return Err(format!("`{file}` has {} bytes, but the input is {ty}", bytes.len()).into());
    }
    input.bytes_mut().copy_from_slice(&bytes);
    Ok(input)
}
