//! Replaces the constant weights of matrix products by small integers with scales: `fxc quantize`.
//!
//! A weight becomes ordinary torch operations on stored integers, `(integers.to(float32) - zeros) * scales`. Any reader
//! of the graph computes the same values, and lowering multiplies by the integers without computing the weight. Half
//! bytes are taken apart by `p & 15`, `p >> 4` and `stack`, which constant folding evaluates.

mod activations;
mod measure;
mod nodes;
mod products;
mod rounding;

pub use self::activations::ActivationFormat;
use self::activations::{RoundedInputs, round_input};
pub use self::measure::result_errors;
use self::nodes::{insert_before, set_operand};
use self::products::WeightProduct;
pub use self::rounding::WeightFormat;
use self::rounding::{RoundedMatrix, relative_error, round_matrix};
use super::build::GraphBuilder;
use super::library::decompose::decompose_error;
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::op::emit::list_val;
use crate::op::{Build, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Val};
use cranelift_entity::EntityRef;
use indexmap::IndexMap;
use std::sync::Arc;

/// Smaller weights stay as they are: their scales and the work of unpacking them outweigh what is saved.
const SMALLEST: usize = 1 << 12;

/// What to quantise, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuantizeOptions {
    /// How weights are stored.
    pub weights: WeightFormat,
    /// How inputs of f32 products with int8 weights are stored. `None` if they stay as they are.
    pub activations: Option<ActivationFormat>,
    /// Weights that stay as they are: paths of attributes, or of modules that contain them.
    pub skip: Vec<String>,
    /// Weights whose relative error would be larger stay as they are. The error is that of the product's result if it was
    /// measured ([`Quantization::measure`]), otherwise that of the weight.
    pub max_error: Option<f64>,
}

impl QuantizeOptions {
    /// Options for a format, without limits.
    pub fn new(weights: WeightFormat) -> QuantizeOptions {
        QuantizeOptions {
            weights,
            activations: None,
            skip: vec![],
            max_error: None,
        }
    }
}

/// A weight that a matrix product reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QuantizedLayer {
    /// The weight's attribute.
    pub path: Arc<str>,
    /// The numbers of output features and of inputs.
    pub shape: [usize; 2],
    /// The weight's size in bytes.
    pub bytes_before: usize,
    /// The size of the integers with their scales and zero points; that of the weight if it stays.
    pub bytes_after: usize,
    /// `|rounded - weight| / |weight|`, Euclidean norms. 0 if it was not rounded.
    pub weight_error: f64,
    /// The same for the product's result, if it was measured: the error that this weight alone causes.
    pub output_error: Option<f64>,
    /// Why the weight stays as it is, if it does.
    pub kept: Option<String>,
}

impl QuantizedLayer {
    /// The error that limits apply to: that of the product's result, or that of the weight if it was not measured.
    pub fn error(&self) -> f64 {
        self.output_error.unwrap_or(self.weight_error)
    }
}

/// The rounded weights of a module, before they are put into its graphs.
#[derive(Clone)]
pub struct Quantization {
    layers: IndexMap<Arc<str>, (QuantizedLayer, Option<RoundedMatrix>)>,
    activations: Option<ActivationFormat>,
    max_error: Option<f64>,
}

impl Quantization {
    /// Rounds the weights of all matrix products. The module must be canonical (the passes `inline`, `functionalize` and
    /// `normalize` have run) and have types; it is not changed.
    pub fn of_module(module: &GraphModule, options: &QuantizeOptions) -> Quantization {
        let mut layers = IndexMap::new();
        for graph in module.graphs.values() {
            for product in graph.iter().filter_map(|n| WeightProduct::from_node(module, graph, n)) {
                if !layers.contains_key(&product.path)
                    && let Some(layer) = round_weight(module, &product, options)
                {
                    layers.insert(product.path, layer);
                }
            }
        }
        let mut quantization = Quantization {
            layers,
            activations: options.activations,
            max_error: options.max_error,
        };
        quantization.keep_inaccurate();
        quantization
    }

    /// The weights that products read, in the order of their first use.
    pub fn layers(&self) -> impl Iterator<Item = &QuantizedLayer> {
        self.layers.values().map(|(layer, _)| layer)
    }

    /// Keeps a weight as it is, for the given reason.
    pub fn keep(&mut self, path: &str, reason: &str) {
        if let Some((layer, rounded)) = self.layers.get_mut(path) {
            layer.kept = Some(reason.to_string());
            layer.bytes_after = layer.bytes_before;
            *rounded = None;
        }
    }

    /// Keeps the `count` rounded weights with the largest errors as they are.
    pub fn keep_worst(&mut self, count: usize) {
        let mut rounded: Vec<&QuantizedLayer> = self.layers().filter(|l| l.kept.is_none()).collect();
        rounded.sort_by(|a, b| b.error().total_cmp(&a.error()));
        let worst: Vec<Arc<str>> = rounded.iter().take(count).map(|l| l.path.clone()).collect();
        for path in worst {
            self.keep(&path, "the error of the results would exceed the limit");
        }
    }

    /// Keeps weights whose error exceeds the limit.
    fn keep_inaccurate(&mut self) {
        let Some(limit) = self.max_error else { return };
        // NaN exceeds every limit.
        let is_within = |layer: &QuantizedLayer| layer.error() <= limit;
        let exceeds = |layer: &&QuantizedLayer| layer.kept.is_none() && !is_within(layer);
        let inaccurate: Vec<Arc<str>> = self.layers().filter(exceeds).map(|l| l.path.clone()).collect();
        for path in inaccurate {
            self.keep(&path, "its error exceeds the limit");
        }
    }

    /// Puts the rounded weights into the module's graphs. Returns the number of products that read them.
    pub fn apply(&self, module: &mut GraphModule) -> Result<usize, Diagnostic> {
        let mut stored = IndexMap::new();
        let changed = super::each_graph(module, |module, graph| {
            let mut changed = 0;
            // One expression for each weight and graph.
            let mut weights: IndexMap<Arc<str>, NodeId> = IndexMap::new();
            let mut inputs = RoundedInputs::new();
            for n in graph.ids() {
                let Some(product) = WeightProduct::from_node(module, graph, n) else {
                    continue;
                };
                let Some((_, Some(rounded))) = self.layers.get(&product.path) else {
                    continue;
                };
                let names = stored
                    .entry(product.path.clone())
                    .or_insert_with(|| store(module, &product.path, rounded));
                let weight = match weights.get(&product.path) {
                    Some(&weight) => weight,
                    None => {
                        let weight = expand(module, graph, n, &product, rounded, names)?;
                        weights.insert(product.path.clone(), weight);
                        weight
                    }
                };
                replace_operand(module, graph, n, &product, weight)?;
                if self.rounds_input(&product, rounded) {
                    round_input(module, graph, n, &product, &mut inputs)?;
                }
                changed += 1;
            }
            Ok(changed)
        })?;
        if changed > 0 {
            self.remove_replaced_weights(module);
        }
        Ok(changed)
    }

    /// Whether the input of a product with this weight becomes integers.
    fn rounds_input(&self, product: &WeightProduct, weight: &RoundedMatrix) -> bool {
        self.activations.is_some() && weight.format == WeightFormat::Int8 && product.ty.dtype == DType::F32
    }

    /// Removes the original weights, if nothing else reads them.
    fn remove_replaced_weights(&self, module: &mut GraphModule) {
        module.eliminate_dead_code();
        module.delete_unused();
        let attributes = &module.attributes;
        let is_gone = |path: &Arc<str>| self.layers.contains_key(path) && !attributes.contains_key(path);
        if let Some(signature) = &mut module.exported {
            signature.inputs.retain(|i| !i.target.as_ref().is_some_and(is_gone));
        }
    }
}

/// Rounds the weight of a product, or says why it stays. `None` if it has no value.
fn round_weight(
    module: &GraphModule,
    product: &WeightProduct,
    options: &QuantizeOptions,
) -> Option<(QuantizedLayer, Option<RoundedMatrix>)> {
    let tensor = module.attributes.get(&product.path)?.value.as_ref()?;
    let &[rows, cols] = tensor.shape() else { return None };
    let shape = if product.stored_by_features {
        [rows, cols]
    } else {
        [cols, rows]
    };
    let mut layer = QuantizedLayer {
        path: product.path.clone(),
        shape,
        bytes_before: tensor.byte_count(),
        bytes_after: tensor.byte_count(),
        weight_error: 0.0,
        output_error: None,
        kept: None,
    };
    layer.kept = reason_to_keep(&layer, options);
    if layer.kept.is_some() {
        return Some((layer, None));
    }
    let values = values_by_features(tensor, product.stored_by_features);
    if values.iter().any(|x| !x.is_finite()) {
        layer.kept = Some("it contains infinities or NaN".to_string());
        return Some((layer, None));
    }
    let rounded = round_matrix(&values, shape, options.weights);
    let wide = |v: &[f32]| v.iter().map(|&x| x as f64).collect::<Vec<f64>>();
    layer.weight_error = relative_error(wide(&rounded.values()), wide(&values));
    layer.bytes_after = rounded.byte_count();
    Some((layer, Some(rounded)))
}

fn reason_to_keep(layer: &QuantizedLayer, options: &QuantizeOptions) -> Option<String> {
    let contains = |skip: &String| match layer.path.strip_prefix(skip.as_str()) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    if options.skip.iter().any(contains) {
        return Some("it is skipped".to_string());
    }
    if layer.shape[0].saturating_mul(layer.shape[1]) < SMALLEST {
        return Some(format!("it has fewer than {SMALLEST} elements"));
    }
    match options.weights {
        WeightFormat::Int4 { group } if !layer.shape[1].is_multiple_of(group) => {
            Some(format!("{} inputs are not a multiple of {group}", layer.shape[1]))
        }
        _ => None,
    }
}

/// The elements of a weight, those of each output feature in a row.
fn values_by_features(tensor: &Tensor, stored_by_features: bool) -> Vec<f32> {
    let wide = tensor.to(DType::F32);
    let values = wide.as_slice::<f32>();
    if stored_by_features {
        return values.to_vec();
    }
    let cols = tensor.shape()[1];
    let column = |j: usize| values.iter().skip(j).step_by(cols.max(1)).copied();
    (0..cols).flat_map(column).collect()
}

/// The attributes of a rounded weight.
struct StoredNames {
    integers: Arc<str>,
    zeros: Option<Arc<str>>,
    scales: Arc<str>,
}

fn store(module: &mut GraphModule, path: &str, rounded: &RoundedMatrix) -> StoredNames {
    let name = match rounded.format {
        WeightFormat::Int8 => format!("{path}_int8"),
        WeightFormat::Int4 { .. } => format!("{path}_int4"),
    };
    StoredNames {
        integers: module.add_constant(&name, rounded.integers.clone()),
        zeros: rounded
            .zeros
            .as_ref()
            .map(|z| module.add_constant(&format!("{path}_zero"), z.clone())),
        scales: module.add_constant(&format!("{path}_scale"), rounded.scales.clone()),
    }
}

/// Adds the nodes that compute a weight from its integers, before product `n`. The result has the weight's dtype, and
/// output features as rows.
fn expand(
    module: &GraphModule,
    graph: &mut Graph,
    n: NodeId,
    product: &WeightProduct,
    rounded: &RoundedMatrix,
    names: &StoredNames,
) -> Result<NodeId, Diagnostic> {
    let weight = insert_before(graph, n, |graph, origin| {
        let mut read = |name: &Arc<str>| {
            let node = graph.get_attr(name);
            let ty = module.attributes[name].ty.clone().unwrap_or(Val::Unknown);
            origin.mark(graph, node, ty);
            node
        };
        let (integers, scales) = (read(&names.integers), read(&names.scales));
        let zeros = names.zeros.as_ref().map(read);
        let mut builder = GraphBuilder::new(graph, origin, |_| true);
        let nodes = [Some(integers), zeros, Some(scales)].map(|n| n.and_then(|n| builder.traced(n)));
        weight_expression(&mut builder, nodes, rounded, product.ty.dtype)
    });
    let weight = weight.map_err(|e| decompose_error(module, graph, n, e))?;
    Ok(NodeId::new(weight.id as usize))
}

/// `(integers - zeros) * scales` in f32, rounded to `dtype`, as a matrix.
fn weight_expression(
    builder: &mut dyn Build,
    [integers, zeros, scales]: [Option<Traced>; 3],
    rounded: &RoundedMatrix,
    dtype: DType,
) -> OpResult<Traced> {
    let missing = || OpError::refused("the stored weight is not a tensor".to_string());
    let (integers, scales) = (integers.ok_or_else(missing)?, scales.ok_or_else(missing)?);
    let sizes = |v: &[usize]| Val::List(v.iter().map(|&d| Val::int(d as i64)).collect());
    let [rows, cols] = rounded.shape;
    let integers = match rounded.format {
        WeightFormat::Int8 => integers,
        WeightFormat::Int4 { group } => {
            let low = builder.op(OpId::BitwiseAnd, [(&integers).into(), Val::int(15)])?;
            let high = builder.op(OpId::BitwiseRightShift, [(&integers).into(), Val::int(4)])?;
            let halves = builder.op(OpId::Stack, [list_val(&[low, high]), Val::int(-1)])?;
            builder.op(OpId::Reshape, [halves.into(), sizes(&[rows, cols / group, group])])?
        }
    };
    let mut value = builder.to_dtype(&integers, DType::F32)?;
    if let Some(zeros) = zeros {
        let zeros = builder.to_dtype(&zeros, DType::F32)?;
        value = builder.sub(&value, &zeros)?;
    }
    let scales = builder.to_dtype(&scales, DType::F32)?;
    value = builder.mul(&value, &scales)?;
    let value = builder.to_dtype(&value, dtype)?;
    match rounded.format {
        WeightFormat::Int8 => Ok(value),
        WeightFormat::Int4 { .. } => builder.op(OpId::Reshape, [value.into(), sizes(&[rows, cols])]),
    }
}

/// Makes product `n` read `weight`, whose rows are output features.
fn replace_operand(
    module: &GraphModule,
    graph: &mut Graph,
    n: NodeId,
    product: &WeightProduct,
    weight: NodeId,
) -> Result<(), Diagnostic> {
    let mut operand = weight;
    if !product.by_features {
        let transposed = insert_before(graph, n, |graph, origin| {
            let mut builder = GraphBuilder::new(graph, origin, |_| true);
            let value = builder.traced(weight).map_or(Val::Unknown, Val::Leaf);
            builder.call(OpId::T, vec![value])
        });
        let transposed = transposed.map_err(|e| decompose_error(module, graph, n, e))?;
        operand = transposed.as_leaf().map_or(weight, |t| NodeId::new(t.id as usize));
    }
    set_operand(module, graph, n, product.operand, operand)
}
