//! Inputs of products as integers: what PT2E's dynamic quantization computes, with one scale and one zero point for a tensor,
//! which each call finds from the tensor's values. As for weights, the graph consists of ordinary torch operations.

use super::WeightProduct;
use super::nodes::{insert_before, operand, set_operand};
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::interp::evaluate_call;
use crate::op::emit::call_of;
use crate::op::{Build, Op, OpError, OpId, OpResult, Traced};
use crate::pass::build::GraphBuilder;
use crate::pass::library::decompose::decompose_error;
use crate::tensor::Tensor;
use crate::types::{DType, Val};
use cranelift_entity::EntityRef;
use std::collections::HashMap;

/// The integers of an input.
const RANGE: [i64; 2] = [0, 255];
/// The smallest scale, as in PT2E.
const SMALLEST_SCALE: f64 = 1.0 / 4096.0;

/// How the inputs of products with int8 weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActivationFormat {
    /// As u8, with a scale and a zero point that each call finds from the largest and the smallest element.
    Int8Dynamic,
}

impl ActivationFormat {
    /// Parses `int8-dynamic`.
    pub fn parse(text: &str) -> Result<ActivationFormat, String> {
        match text {
            "int8-dynamic" => Ok(ActivationFormat::Int8Dynamic),
            _ => Err("the valid format is int8-dynamic".to_string()),
        }
    }
}

/// The inputs of a graph's products that were rounded, and the nodes that compute them.
pub(super) type RoundedInputs = HashMap<NodeId, NodeId>;

/// Makes product `n` read its input rounded to integers. Products with one input share it.
pub(super) fn round_input(
    module: &GraphModule,
    graph: &mut Graph,
    n: NodeId,
    product: &WeightProduct,
    known: &mut RoundedInputs,
) -> Result<(), Diagnostic> {
    let Some(input) = operand(graph, n, product.input()) else {
        return Ok(());
    };
    let rounded = match known.get(&input) {
        Some(&rounded) => rounded,
        None => {
            let rounded = insert_before(graph, n, |graph, origin| {
                let mut builder = GraphBuilder::new(graph, origin, is_ordinary);
                let x = builder.traced(input);
                x.map(|x| rounded_expression(&mut builder, x))
            });
            let Some(rounded) = rounded else { return Ok(()) };
            let rounded = rounded.map_err(|e| decompose_error(module, graph, n, e))?;
            let rounded = NodeId::new(rounded.id as usize);
            known.insert(input, rounded);
            rounded
        }
    };
    set_operand(module, graph, n, product.input(), rounded)
}

/// Whether the graph may contain the op. PyTorch has those of quantization only after an import.
fn is_ordinary(op: &Op) -> bool {
    use OpId::{ChooseQparams, DequantizePerTensor, QuantizePerTensor};
    !matches!(op.id(), Some(ChooseQparams | QuantizePerTensor | DequantizePerTensor))
}

fn rounded_expression(b: &mut dyn Build, x: Traced) -> OpResult<Traced> {
    let parameters = b.call_many(OpId::ChooseQparams, range_args(&x))?;
    let integers = b.op(OpId::QuantizePerTensor, conversion_args(&x, &parameters))?;
    b.op(OpId::DequantizePerTensor, conversion_args(&integers, &parameters))
}

/// The values of an input after rounding, as the graph computes them.
pub(super) fn rounded_values(x: &Tensor) -> OpResult<Tensor> {
    let evaluate = |op: OpId, args: Vec<Val<Tensor>>| evaluate_call(&call_of(op.op(), args));
    let parameters: Vec<Tensor> = evaluate(OpId::ChooseQparams, range_args(x))?
        .leaves()
        .into_iter()
        .cloned()
        .collect();
    let convert = |op: OpId, x: &Tensor| {
        let value = evaluate(op, conversion_args(x, &parameters))?;
        let tensor = value.as_leaf().cloned();
        tensor.ok_or_else(|| OpError::value("a conversion returns a tensor".to_string()))
    };
    convert(OpId::DequantizePerTensor, &convert(OpId::QuantizePerTensor, x)?)
}

/// The arguments of `choose_qparams`.
fn range_args<T: Clone>(x: &T) -> Vec<Val<T>> {
    let [low, high] = RANGE.map(Val::int);
    vec![
        Val::Leaf(x.clone()),
        low,
        high,
        Val::Float(SMALLEST_SCALE),
        Val::DType(DType::U8),
    ]
}

/// The arguments of `quantize_per_tensor` and `dequantize_per_tensor`: a tensor, then its scale and its zero point.
fn conversion_args<T: Clone>(x: &T, parameters: &[T]) -> Vec<Val<T>> {
    let tensors = [x].into_iter().chain(parameters).cloned().map(Val::Leaf);
    let range = RANGE.map(Val::int).into_iter().chain([Val::DType(DType::U8)]);
    tensors.chain(range).collect()
}
