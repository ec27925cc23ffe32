//! Measures what rounded weights do to the results of products.

use super::Quantization;
use super::activations::rounded_values;
use super::products::WeightProduct;
use super::rounding::relative_error;
use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::interp::{Hooked, Hooks, Interpreter, RunningNode, RuntimeValue};
use crate::pass::library::decompose::decompose_error;
use crate::tensor::Tensor;
use crate::types::{DType, Val};
use std::sync::Arc;

impl Quantization {
    /// Runs the module that was quantised in the interpreter, and each product also with the rounded weight. Records the
    /// largest relative error of each weight's products, and keeps weights whose error exceeds the limit. Returns the
    /// module's result.
    pub fn measure(&mut self, module: &GraphModule, inputs: Vec<RuntimeValue>) -> Result<RuntimeValue, Diagnostic> {
        let mut errors = OutputErrors {
            quantization: self,
            measured: vec![],
        };
        let result = Interpreter::new(module).run_with(inputs, &mut errors)?;
        for (path, error) in errors.measured {
            if let Some((layer, _)) = self.layers.get_mut(&path) {
                let known = layer.output_error.unwrap_or(0.0);
                // Not `max`, which ignores NaN.
                layer.output_error = Some(if error <= known { known } else { error });
            }
        }
        self.keep_inaccurate();
        Ok(result)
    }
}

/// Runs every product twice.
struct OutputErrors<'a> {
    quantization: &'a Quantization,
    measured: Vec<(Arc<str>, f64)>,
}

impl Hooks for OutputErrors<'_> {
    fn call_function(&mut self, node: RunningNode<'_>) -> Hooked {
        let Some(product) = WeightProduct::from_node(node.module, node.graph, node.id) else {
            return Ok(None);
        };
        let Some((_, Some(rounded))) = self.quantization.layers.get(&product.path) else {
            return Ok(None);
        };
        let want = node.call(node.args, node.kwargs)?;
        let mut args = node.args.to_vec();
        let Some(Val::Leaf(weight)) = args.get_mut(product.operand) else {
            return Ok(Some(want));
        };
        *weight = in_order_of(rounded.values(), rounded.shape, product.by_features).to(product.ty.dtype);
        if self.quantization.rounds_input(&product, rounded)
            && let Some(Val::Leaf(input)) = args.get_mut(product.input())
        {
            *input = rounded_values(input).map_err(|e| decompose_error(node.module, node.graph, node.id, e))?;
        }
        let got = node.call(&args, node.kwargs)?;
        if let (Val::Leaf(got), Val::Leaf(want)) = (&got, &want) {
            let error = tensor_error(got, want);
            self.measured.push((product.path.clone(), error));
        }
        Ok(Some(want))
    }
}

/// A matrix of output features as rows, or its transpose.
fn in_order_of(values: Vec<f32>, [rows, cols]: [usize; 2], by_features: bool) -> Tensor {
    if by_features {
        return Tensor::from_slice(&[rows, cols], &values);
    }
    let transposed: Vec<f32> = (0..cols)
        .flat_map(|j| (0..rows).map(move |i| i * cols + j))
        .map(|at| values[at])
        .collect();
    Tensor::from_slice(&[cols, rows], &transposed)
}

/// The relative errors of a module's results, flattened: `|got - want| / |want|` of each tensor (Euclidean norms).
/// Results of other dtypes than floats are equal, or have an infinite error.
pub fn result_errors(got: &RuntimeValue, want: &RuntimeValue) -> Vec<f64> {
    let pairs = got.leaves().into_iter().zip(want.leaves());
    pairs.map(|(got, want)| tensor_error(got, want)).collect()
}

fn tensor_error(got: &Tensor, want: &Tensor) -> f64 {
    if got.shape() != want.shape() {
        return f64::INFINITY;
    }
    if !want.dtype().is_float() {
        return if got == want { 0.0 } else { f64::INFINITY };
    }
    let (got, want) = (got.to(DType::F64), want.to(DType::F64));
    relative_error(got.as_slice().iter().copied(), want.as_slice().iter().copied())
}
