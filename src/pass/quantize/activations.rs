//! Inputs of products as integers: what PT2E's dynamic quantization computes, with one scale and one zero point for a tensor,
//! which each call finds from the tensor's values. As for weights, the graph consists of ordinary torch operations.

use super::Product;
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId};
use crate::op::{Build, Op, OpId, OpResult, Traced};
use crate::pass::build::{GraphBuilder, NodeOrigin, canonical_args, full_args};
use crate::pass::canonical_op;
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
    product: &Product,
    known: &mut RoundedInputs,
) -> Result<(), Diagnostic> {
    let Some(op) = canonical_op(graph, n) else {
        return Ok(());
    };
    let mut args = full_args(op, graph, n).map_err(|e| decompose_error(module, graph, n, e))?;
    let Some(&input) = args[product.input()].as_leaf() else {
        return Ok(());
    };
    let rounded = match known.get(&input) {
        Some(&rounded) => rounded,
        None => {
            let origin = NodeOrigin::from_node(graph, n, "quantize");
            let before = graph.insert_point();
            graph.set_insert_point(InsertPoint::Before(n));
            let is_ordinary = |op: &Op| {
                use OpId::{ChooseQparams, DequantizePerTensor, QuantizePerTensor};
                !matches!(op.id(), Some(ChooseQparams | QuantizePerTensor | DequantizePerTensor))
            };
            let mut builder = GraphBuilder::new(graph, origin, is_ordinary);
            let rounded = builder.traced(input).map(|x| rounded_expression(&mut builder, &x));
            graph.set_insert_point(before);
            let Some(rounded) = rounded else { return Ok(()) };
            let rounded = rounded.map_err(|e| decompose_error(module, graph, n, e))?;
            let rounded = NodeId::new(rounded.id as usize);
            known.insert(input, rounded);
            rounded
        }
    };
    args[product.input()] = Val::Leaf(rounded);
    let (positional, kwargs) = canonical_args(op, args);
    graph.set_args(n, positional);
    graph.set_kwargs(n, kwargs);
    Ok(())
}

fn rounded_expression(b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
    let [low, high] = RANGE.map(Val::int);
    let dtype = Val::DType(DType::U8);
    let found = [
        x.into(),
        low.clone(),
        high.clone(),
        Val::Float(SMALLEST_SCALE),
        dtype.clone(),
    ];
    let parameters = b.call_many(OpId::ChooseQparams, found)?;
    let [scale, zero] = &parameters[..] else {
        return Err(crate::op::OpError::shape("choose_qparams returns two tensors"));
    };
    let with = |x: &Traced| {
        vec![
            x.into(),
            scale.into(),
            zero.into(),
            low.clone(),
            high.clone(),
            dtype.clone(),
        ]
    };
    let integers = b.op(OpId::QuantizePerTensor, with(x))?;
    b.op(OpId::DequantizePerTensor, with(&integers))
}

/// The values of an f32 input after rounding, as [`round_input`] has them computed.
pub(super) fn rounded_values(x: &Tensor) -> Tensor {
    let values = x.as_slice::<f32>();
    let [low, high] = RANGE.map(|x| x as f32);
    let least = values.iter().copied().fold(0f32, f32::min);
    let most = values.iter().copied().fold(0f32, f32::max);
    let scale = ((most - least) / (high - low)).max(SMALLEST_SCALE as f32);
    let zero = (low - (least / scale).round_ties_even()).clamp(low, high);
    let round = |&x: &f32| {
        let integer = ((x * (1.0 / scale)).round_ties_even() + zero).clamp(low, high);
        (integer - zero) * scale
    };
    Tensor::from_slice(x.shape(), &values.iter().map(round).collect::<Vec<f32>>())
}
