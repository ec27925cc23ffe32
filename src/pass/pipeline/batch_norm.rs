//! Folds batch normalisation with running statistics into the weights before it.
//!
//! With `scale = g / sqrt(v + eps)`, the weights of output channel `o` are multiplied by `scale[o]`, and the bias
//! becomes `(b - m) * scale + h`. Both are computed in f64 and rounded once. Large weights are scaled only when they
//! are read, so that packing them is the only pass over them.
//!
//! Weights of 16 bits stay as they are: the product with the scale would be rounded to 16 bits again, which costs a
//! model as much accuracy as all the rest of its arithmetic. If there is nothing to fold into, or the convolution's
//! result has another user, the normalisation becomes `x * scale + shift`, which is how torch computes it, in f32 for
//! half types.
//!
#![doc = include_str!("../examples/batch-norm.md")]

mod weights;

use self::weights::WeightChannels;
use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::op::{Build, Op, OpBuilder, OpId, Traced};
use crate::pass::build::{GraphBuilder, NodeOrigin, full_args, item_index, replace_with_value};
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType, Val};
use std::collections::HashSet;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            let norm = match Norm::from_node(module, graph, n) {
                Ok(Some(norm)) => norm,
                Ok(None) => continue,
                Err(reason) => {
                    cx.remarks
                        .push(format!("`%{}` is not folded: {reason}", graph[n].name()));
                    continue;
                }
            };
            let folded = match Producer::from_norm(module, graph, &norm) {
                Ok(p) => p.fold(module, graph, &norm).is_some(),
                Err(reason) => {
                    cx.remarks.push(format!(
                        "`%{}` is not folded into `%{}`: {reason}",
                        graph[n].name(),
                        graph[norm.input].name()
                    ));
                    false
                }
            };
            changed += (folded || expand_norm(module, graph, &norm)) as usize;
        }
        Ok(changed)
    })
}

/// A batch normalisation with constant statistics.
struct Norm {
    node: NodeId,
    input: NodeId,
    /// Per channel, the factor of the input.
    scale: Vec<f64>,
    /// Per channel, the number added after scaling.
    shift: Vec<f64>,
    ty: TensorType,
    /// Whether the node returns a tuple, whose first item is the result.
    tuple: bool,
}

impl Norm {
    /// Reads a node as a normalisation; `None` if it is not one. Returns an error if its statistics are not constant or
    /// its number of channels is unknown.
    fn from_node(module: &GraphModule, graph: &Graph, n: NodeId) -> Result<Option<Norm>, String> {
        let Some(op) = canonical_op(graph, n) else {
            return Ok(None);
        };
        let tuple = match op.id() {
            Some(OpId::BatchNorm) => false,
            Some(OpId::_NativeBatchNormLegitNoTraining | OpId::NativeBatchNorm) => true,
            _ => return Ok(None),
        };
        let args = full_args(op, graph, n).map_err(|e| e.title)?;
        let get = |name: &str| op.schema.index_of(name).map_or(&Val::None, |i| &args[i]);
        if op.schema.index_of("training").is_some() && *get("training") != Val::Bool(false) {
            return Err("it normalises by the statistics of the batch (training mode)".into());
        }
        if tuple && graph[n].users().any(|u| item_index(graph, u, n) != Some(0)) {
            return Err("its statistics have other users".into());
        }
        let input = *get("input").as_leaf().ok_or("its input is not a tensor")?;
        let ty = graph[input].meta.ty.as_ref().and_then(|t| t.as_leaf());
        let ty = ty.ok_or_else(|| explain_untyped(graph, input))?.clone();
        let channels = ty
            .shape
            .as_ref()
            .and_then(|s| usize::try_from(s.get(1)?.as_const()?).ok());
        let channels = channels.ok_or("its number of channels is unknown")?;
        let (scale, shift) = scale_and_shift(&|name| get(name), &|a| constant_value(module, graph, a), channels)?;
        Ok(Some(Norm {
            node: n,
            input,
            scale,
            shift,
            ty,
            tuple,
        }))
    }

    /// Makes the users of the normalisation use `value`, and erases it.
    fn replace(&self, graph: &mut Graph, value: NodeId) {
        let value = if self.tuple {
            Val::Tuple(vec![Val::Leaf(value)])
        } else {
            Val::Leaf(value)
        };
        replace_with_value(graph, self.node, &value);
        // Its uses were just replaced, so erasing it cannot fail.
        let _ = graph.erase_node(self.node);
    }
}

/// The factor and the summand of each channel of a normalisation with constant statistics. `get` returns its arguments
/// by name.
fn scale_and_shift<'a>(
    get: &dyn Fn(&str) -> &'a Arg,
    constant: &dyn Fn(&Arg) -> Option<Tensor>,
    channels: usize,
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let values = |name: &str| {
        let t = constant(get(name)).ok_or_else(|| format!("its {name} is not a constant with a known value"))?;
        let fits = t.shape() == [channels];
        fits.then(|| to_f64_vec(&t))
            .ok_or_else(|| format!("its {name} does not have one element per channel"))
    };
    let optional = |name: &str, default: f64| match get(name) {
        Val::None => Ok(vec![default; channels]),
        _ => values(name),
    };
    let (mean, var) = (values("running_mean")?, values("running_var")?);
    let (weight, bias) = (optional("weight", 1.0)?, optional("bias", 0.0)?);
    let eps = get("eps").as_f64().ok_or("its eps is unknown")?;
    let scale: Vec<f64> = weight.iter().zip(&var).map(|(w, v)| w / (v + eps).sqrt()).collect();
    let shift = (0..channels).map(|c| bias[c] - mean[c] * scale[c]).collect();
    Ok((scale, shift))
}

/// Explains why the type of a node is unknown: names the first input or weight without a type that it depends on.
fn explain_untyped(graph: &Graph, n: NodeId) -> String {
    let (mut seen, mut todo) = (HashSet::from([n]), vec![n]);
    while let Some(n) = todo.pop() {
        todo.extend(graph[n].inputs().into_iter().filter(|&i| seen.insert(i)));
    }
    let first = |op| {
        let unknown = |n: &NodeId| graph[*n].meta.ty.as_ref().is_none_or(|t| *t == Val::Unknown);
        let mut all = graph.find_nodes(op, None).into_iter();
        all.find(|n| seen.contains(n) && unknown(n))
            .map(|n| (graph[n].name(), graph[n].target()))
    };
    match (first(Opcode::Placeholder), first(Opcode::GetAttr)) {
        (Some((name, input)), _) => {
            format!("`%{name}` has no type: write `%{name} : f32[…]`, or pass `{input}:f32[…]`")
        }
        (None, Some((_, weight))) => format!("`{weight}` has no value: pass `--weights-from FILE`"),
        (None, None) => format!("the type of `%{}` is unknown", graph[n].name()),
    }
}

/// The value of an argument that is a parameter, buffer or constant.
fn constant_value(module: &GraphModule, graph: &Graph, a: &Arg) -> Option<Tensor> {
    let node = &graph[*a.as_leaf()?];
    if node.op() != Opcode::GetAttr || graph.writes_buffer(node.target()) {
        return None;
    }
    module.attributes.get(node.target())?.value.clone()
}

fn to_f64_vec(t: &Tensor) -> Vec<f64> {
    (0..t.numel()).map(|i| t.get(i).to_f64()).collect()
}

/// The parameters that take the weight and the bias of a convolution or matrix product.
fn weight_params(op: &Op) -> Option<(&'static str, &'static str)> {
    match op.id()? {
        OpId::Conv1d | OpId::Conv2d | OpId::Conv3d | OpId::Convolution => Some(("weight", "bias")),
        OpId::ConvTranspose1d | OpId::ConvTranspose2d | OpId::ConvTranspose3d => Some(("weight", "bias")),
        OpId::Linear => Some(("weight", "bias")),
        OpId::Addmm => Some(("mat2", "self")),
        _ => None,
    }
}

/// The output channels of the elements of a producer's weights.
fn weight_channels(op: &Op, args: &[Arg], weights: &Tensor) -> WeightChannels {
    let param = |name: &str| op.schema.index_of(name).map(|i| &args[i]);
    let transposed = matches!(
        op.id(),
        Some(OpId::ConvTranspose1d | OpId::ConvTranspose2d | OpId::ConvTranspose3d)
    ) || param("transposed") == Some(&Val::Bool(true));
    let groups = param("groups").and_then(Val::as_int).unwrap_or(1);
    WeightChannels::from_weights(op, weights, transposed, groups.max(1) as usize)
}

/// The convolution or product whose result is normalised.
struct Producer {
    node: NodeId,
    op: &'static Op,
    args: Vec<Arg>,
    /// The positions of the parameters that hold the weight and the bias.
    weight: usize,
    bias: usize,
    weights: Tensor,
    biases: Option<Tensor>,
    /// The output channel of each run of weight elements.
    channels: WeightChannels,
}

impl Producer {
    fn from_norm(module: &GraphModule, graph: &Graph, norm: &Norm) -> Result<Producer, String> {
        let node = norm.input;
        let refuse = |what: &str| Err(what.to_string());
        let op = canonical_op(graph, node);
        let Some((op, (weight, bias))) = op.and_then(|op| Some((op, weight_params(op)?))) else {
            return refuse("the producer is not a convolution or matrix product");
        };
        if graph[node].users().len() != 1 {
            return refuse("the producer's result has other users");
        }
        let args = full_args(op, graph, node).map_err(|e| e.title)?;
        let index_of = |name: &str| op.schema.index_of(name);
        let (Some(weight), Some(bias)) = (index_of(weight), index_of(bias)) else {
            return refuse("the producer has no weight");
        };
        let Some(weights) = constant_value(module, graph, &args[weight]).filter(|w| w.dtype() == norm.ty.dtype) else {
            return refuse("the producer's weight is not constant");
        };
        let biases = match &args[bias] {
            Val::None => None,
            b => match constant_value(module, graph, b).filter(|b| b.shape() == [norm.scale.len()]) {
                Some(b) => Some(b),
                None => return refuse("the producer's bias does not have one constant per channel"),
            },
        };
        let producer = Producer {
            node,
            op,
            channels: weight_channels(op, &args, &weights),
            args,
            weight,
            bias,
            weights,
            biases,
        };
        match producer.refusal(norm) {
            Some(reason) => refuse(reason),
            None => Ok(producer),
        }
    }

    /// Why the normalisation cannot be folded into the weights, if it cannot.
    fn refusal(&self, norm: &Norm) -> Option<&'static str> {
        let op = self.op;
        let is_one = |name: &str| {
            let value = op.schema.index_of(name).map(|i| self.args[i].as_f64());
            value.is_none_or(|x| x == Some(1.0))
        };
        if matches!(op.id(), Some(OpId::Linear | OpId::Addmm)) && norm.ty.rank() != Some(2) {
            return Some("the channels are not the output features of the matrix product");
        }
        if op.is(OpId::Addmm) && !(is_one("alpha") && is_one("beta")) {
            return Some("the matrix product is scaled");
        }
        if !matches!(self.weights.dtype(), DType::F32 | DType::F64) {
            return Some("folding would change the rounding of the 16-bit weight");
        }
        let unmatched = self.channels.of_run.iter().any(|&c| c >= norm.scale.len());
        unmatched.then_some("the producer's channels do not match those of the normalisation")
    }

    fn fold(mut self, module: &mut GraphModule, graph: &mut Graph, norm: &Norm) -> Option<()> {
        let dtype = self.weights.dtype();
        let weight = self.channels.scale_or_defer(&self.weights, &norm.scale);
        let bias = Tensor::from_fn(dtype, &[norm.scale.len()], |c| {
            let b = self.biases.as_ref().map_or(0.0, |b| b.get(c).to_f64());
            Scalar::F64(b * norm.scale[c] + norm.shift[c])
        });
        let name = graph[self.node].name().to_string();
        let source = NodeOrigin::from_node(graph, norm.node, "batch-norm");
        let point = graph.insert_point();
        graph.set_insert_point(InsertPoint::Before(self.node));
        for (param, suffix, value) in [(self.weight, "weight", weight), (self.bias, "bias", bias)] {
            let ty = Val::Leaf(value.ty());
            let path = module.add_constant(&format!("_folded_{name}_{suffix}"), value);
            let n = graph.get_attr(&path);
            source.mark(graph, n, ty);
            self.args[param] = Val::Leaf(n);
        }
        graph.set_insert_point(point);
        let (args, kwargs) = crate::pass::build::canonical_args(self.op, self.args);
        graph.set_args(self.node, args);
        graph.set_kwargs(self.node, kwargs);
        let from = graph[norm.node].name().into();
        graph.meta_mut(self.node).provenance.push(from);
        norm.replace(graph, self.node);
        Some(())
    }
}

/// `x * scale + shift`.
fn expand_norm(module: &mut GraphModule, graph: &mut Graph, norm: &Norm) -> bool {
    // Half types are computed in f32, with the same scale and shift, and rounded once, as in torch's kernel.
    let wide = norm.ty.dtype.compute_dtype();
    let shape: Vec<usize> = (1..norm.ty.rank().unwrap_or(2))
        .map(|d| if d == 1 { norm.scale.len() } else { 1 })
        .collect();
    let name = graph[norm.node].name().to_string();
    let source = NodeOrigin::from_node(graph, norm.node, "batch-norm");
    let point = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(norm.node));
    let mut constants = vec![];
    for (suffix, values) in [("scale", &norm.scale), ("shift", &norm.shift)] {
        let value = Tensor::from_fn(wide, &shape, |i| Scalar::F64(values[i]));
        let ty = Val::Leaf(value.ty());
        let path = module.add_constant(&format!("_folded_{name}_{suffix}"), value);
        let n = graph.get_attr(&path);
        source.mark(graph, n, ty);
        constants.push(n);
    }
    let mut b = GraphBuilder::new(graph, source, |_| true);
    let result = build_apart(&mut b, norm.input, &constants);
    graph.set_insert_point(point);
    match result {
        Some(n) => {
            norm.replace(graph, n);
            true
        }
        None => false,
    }
}

fn build_apart(b: &mut GraphBuilder<'_>, input: NodeId, constants: &[NodeId]) -> Option<NodeId> {
    let traced: Vec<Traced> = constants.iter().map(|&n| b.traced(n)).collect::<Option<_>>()?;
    let x = b.traced(input)?;
    let b: &mut dyn Build = b;
    let (own, wide) = (x.dtype(), traced[0].dtype());
    let x = b.to_dtype(&x, wide).ok()?;
    let product = b.mul(&x, &traced[0]).ok()?;
    let sum = b.add(&product, &traced[1]).ok()?;
    Some(NodeId::from_u32(b.to_dtype(&sum, own).ok()?.id))
}
