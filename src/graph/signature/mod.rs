//! Exported programs: the meaning of their inputs and results, and conversion to a program with attributes.
//!
//! `torch.export` lifts parameters, buffers and constants to inputs of the graph, and new values of buffers and inputs
//! to results. The signature records which is which. [`print(exported_program)`](crate::graph::readable) and archives
//! have this form. [`unlift`] reverts it, as `ExportedProgram.module()` does: `get_attr` nodes with the names of the
//! inputs read attributes, `aten.copy_` writes new values, and the results have the nesting of the model's.

mod effects;
mod lift;
mod subclasses;

pub use lift::lift;
pub(crate) use subclasses::MAX_PART_DEPTH;

use crate::diag::words::count;
use crate::graph::{Arg, Attribute, AttributeKind, DimRange, Graph, GraphModule, NodeId, Opcode};
use crate::op::Literal;
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// The meaning of the inputs and results of an exported graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// One for each placeholder, in order.
    pub inputs: Vec<InputSpec>,
    /// One for each result, in order.
    pub outputs: Vec<OutputSpec>,
    /// The ranges of sizes, as torch prints them: `s40` and `VR[2, int_oo]`.
    pub ranges: Vec<(Arc<str>, Arc<str>)>,
    /// The nesting of the user's results, which are numbered here; a tuple if it is not known.
    pub results: Option<Val<usize>>,
}

/// The meaning of an input.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// The placeholder.
    pub name: Arc<str>,
    /// torch's name of the kind: `USER_INPUT`, `PARAMETER`, `BUFFER`, `CONSTANT_TENSOR`, `TOKEN`.
    pub kind: Arc<str>,
    /// The path of the attribute.
    pub target: Option<Arc<str>>,
    /// Whether a buffer is saved with the module.
    pub persistent: Option<bool>,
    /// The constant value that tracing specialised the input to.
    pub constant: Option<Literal>,
}

/// The meaning of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// The name of the node; empty for a constant.
    pub name: Arc<str>,
    /// torch's name of the kind: `USER_OUTPUT`, `BUFFER_MUTATION`, `USER_INPUT_MUTATION`.
    pub kind: Arc<str>,
    /// The buffer, parameter or input that this is the new value of.
    pub target: Option<Arc<str>>,
}

impl InputSpec {
    /// The kind of the attribute that the input was lifted from; `None` if the caller passes the input.
    pub fn attribute_kind(&self) -> Option<AttributeKind> {
        match &*self.kind {
            "PARAMETER" => Some(AttributeKind::Parameter),
            "BUFFER" => Some(AttributeKind::Buffer),
            "CONSTANT_TENSOR" => Some(AttributeKind::Constant),
            _ => None,
        }
    }
}

impl OutputSpec {
    /// Whether the user sees the result.
    pub fn is_users(&self) -> bool {
        matches!(&*self.kind, "USER_OUTPUT" | "LOSS_OUTPUT")
    }
}

/// If the entry graph has a signature, turns its lifted inputs into attributes, and results that are new values into
/// writes. The error says where graph and signature disagree.
pub fn unlift(module: &mut GraphModule) -> Result<(), String> {
    let Some(mut signature) = module.entry_mut().and_then(|g| g.signature.take()) else {
        return Ok(());
    };
    declare_ranges(module, &signature);
    let Some(graph) = module.entry_mut() else { return Ok(()) };
    effects::without_tokens(graph, &mut signature)?;
    subclasses::split_inputs(graph, &mut signature);
    let mut attributes = vec![];
    unlift_inputs(graph, &signature, &mut attributes)?;
    unlift_outputs(graph, &signature)?;
    for n in graph.find_nodes(Opcode::GetAttr, None) {
        if graph[n].users().len() == 0 {
            // Erasing fails only for nodes with users, and this one has none. The exporter lifts all attributes, even
            // unused ones.
            let _ = graph.erase_node(n);
        }
    }
    for (path, attribute) in attributes {
        module.attributes.entry(path).or_insert(attribute);
    }
    module.exported = Some(signature);
    Ok(())
}

fn unlift_inputs(
    graph: &mut Graph,
    signature: &Signature,
    created: &mut Vec<(Arc<str>, Attribute)>,
) -> Result<(), String> {
    let nodes = graph.placeholders();
    if nodes.len() != signature.inputs.len() {
        let (a, b) = (signature.inputs.len(), nodes.len());
        return Err(format!(
            "the signature has {}, but the graph has {b}",
            count(a, "input")
        ));
    }
    for (&n, spec) in nodes.iter().zip(&signature.inputs) {
        let Some(kind) = spec.attribute_kind() else {
            if let Some(v) = &spec.constant {
                graph.set_args(n, vec![v.map(|l| -> NodeId { match *l {} })]);
            }
            continue;
        };
        let Some(path) = &spec.target else {
            return Err(format!("the signature does not name the attribute for `{}`", spec.name));
        };
        graph.set_target(n, Opcode::GetAttr, path);
        let attribute = Attribute {
            kind,
            ty: graph[n].meta.ty.clone(),
            value: None,
            span: graph[n].meta.span,
        };
        created.push((path.clone(), attribute));
    }
    Ok(())
}

fn unlift_outputs(graph: &mut Graph, signature: &Signature) -> Result<(), String> {
    let Some(output) = graph.output() else { return Ok(()) };
    let values: Vec<Arg> = match graph[output].args().first() {
        Some(Val::Tuple(v) | Val::List(v)) => v.clone(),
        Some(v) => vec![v.clone()],
        None => vec![],
    };
    if values.len() != signature.outputs.len() {
        let (a, b) = (signature.outputs.len(), values.len());
        return Err(format!(
            "the signature has {}, but the graph has {b}",
            count(a, "output")
        ));
    }
    let mut results = vec![];
    for (i, (spec, value)) in signature.outputs.iter().zip(values).enumerate() {
        if spec.is_users() {
            results.push(value);
            continue;
        }
        let target = written_node(graph, spec).ok_or_else(|| match &spec.target {
            Some(t) => format!("unknown input `{t}`"),
            None => format!("output {i} of the signature is a `{}`", spec.kind),
        })?;
        let args = vec![Val::Leaf(target), value];
        let _ = graph.inserting_before(Some(output), |g| {
            g.call_function("torch.ops.aten.copy_.default", args, vec![])
        });
    }
    let result = match &signature.results {
        Some(nesting) => {
            nest_results(nesting, &results).ok_or("the nesting of the results does not match the signature")?
        }
        None => Val::Tuple(results),
    };
    graph.set_args(output, vec![result]);
    type_output(graph, output);
    Ok(())
}

/// The node whose value a result replaces.
fn written_node(graph: &Graph, spec: &OutputSpec) -> Option<NodeId> {
    let target = spec.target.as_deref()?;
    match &*spec.kind {
        "BUFFER_MUTATION" | "PARAMETER_MUTATION" => graph.find_nodes(Opcode::GetAttr, Some(target)).first().copied(),
        "USER_INPUT_MUTATION" => graph.find(target),
        _ => None,
    }
}

fn nest_results(nesting: &Val<usize>, results: &[Arg]) -> Option<Arg> {
    nesting.try_map(&mut |&i| results.get(i).cloned().ok_or(())).ok()
}

/// Sets the type of the output node to that of its argument.
pub(crate) fn type_output(graph: &mut Graph, output: NodeId) {
    let ty = |n: &NodeId| -> Result<Type, std::convert::Infallible> {
        Ok(graph[*n].meta.ty.clone().unwrap_or(Val::Unknown))
    };
    let ty = graph[output].args().first().map(|v| v.try_map(&mut |n| ty(n)));
    if let Some(Ok(ty)) = ty {
        graph.meta_mut(output).ty = Some(ty);
    }
}

/// Declares the bounds of sizes that only the signature's ranges have.
fn declare_ranges(module: &mut GraphModule, signature: &Signature) {
    let mut ranges: HashMap<Arc<str>, DimRange> = HashMap::new();
    for (name, range) in &signature.ranges {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let bounds = range
            .strip_prefix("VR[")
            .and_then(|r| r.strip_suffix(']'))
            .and_then(|r| r.split_once(", "));
        if let (true, Some((min, max))) = (plain, bounds) {
            let range = DimRange {
                min: traced_minimum(min.parse().unwrap_or(0)),
                max: max.parse().ok(),
                span: None,
            };
            ranges.insert(name.clone(), range);
        }
    }
    for (name, _) in &signature.ranges {
        if let Some(range) = ranges.remove(name) {
            module.dims.entry(name.clone()).or_insert(range);
        }
    }
}

/// The tracer assumes that every size is at least 2, because it specialises 0 and 1. The program also runs at those
/// sizes (`_check_input_constraints_for_graph` accepts them).
pub(crate) fn traced_minimum(min: i64) -> i64 {
    if min <= 2 { 0 } else { min }
}
