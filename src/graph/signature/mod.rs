//! Exported programs: what their inputs and results stand for, and the same program with attributes instead.
//!
//! `torch.export` lifts parameters, buffers and constants to inputs of the graph, and new values of buffers and inputs to
//! results; the signature says which is which. [`print(exported_program)`](crate::graph::readable) shows a graph so, and archives
//! hold it so. [`unlift`] undoes it, as `ExportedProgram.module()` does: attributes are read by `get_attr` nodes of the
//! inputs' names, new values are written by `aten.copy_`, and the results are nested as the model nests them.

mod effects;
mod lift;

pub use lift::lift;

use crate::graph::{Arg, Attribute, AttributeKind, DimRange, Graph, GraphModule, NodeId, Opcode};
use crate::op::Literal;
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// What the inputs and results of an exported graph stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// One for each placeholder, in order.
    pub inputs: Vec<InputSpec>,
    /// One for each result, in order.
    pub outputs: Vec<OutputSpec>,
    /// The ranges of sizes as torch prints them: `s40` and `VR[2, int_oo]`.
    pub ranges: Vec<(Arc<str>, Arc<str>)>,
    /// How the model nests the results that its user sees, which are numbered here; a tuple where that is not known.
    pub results: Option<Val<usize>>,
}

/// What an input stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// The placeholder.
    pub name: Arc<str>,
    /// torch's word: `USER_INPUT`, `PARAMETER`, `BUFFER`, `CONSTANT_TENSOR`, `TOKEN`.
    pub kind: Arc<str>,
    /// The path of the attribute.
    pub target: Option<Arc<str>>,
    /// Whether a buffer is saved with the module.
    pub persistent: Option<bool>,
    /// The value that tracing fixed.
    pub constant: Option<Literal>,
}

/// What a result stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// The node; empty for a constant.
    pub name: Arc<str>,
    /// torch's word: `USER_OUTPUT`, `BUFFER_MUTATION`, `USER_INPUT_MUTATION`.
    pub kind: Arc<str>,
    /// The buffer, parameter or input that it is the new value of.
    pub target: Option<Arc<str>>,
}

impl InputSpec {
    /// What kind of attribute the input is; `None` if the caller gives it.
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

/// Makes attributes of the lifted inputs of the entry graph, if it has a signature, and writes of the results that are
/// new values. The error says where graph and signature disagree.
pub fn unlift(module: &mut GraphModule) -> Result<(), String> {
    let Some(mut signature) = module.entry_mut().and_then(|g| g.signature.take()) else {
        return Ok(());
    };
    declare_ranges(module, &signature);
    let Some(graph) = module.entry_mut() else { return Ok(()) };
    effects::without_tokens(graph, &mut signature)?;
    let mut attributes = vec![];
    unlift_inputs(graph, &signature, &mut attributes)?;
    unlift_outputs(graph, &signature)?;
    for n in graph.find_nodes(Opcode::GetAttr, None) {
        if graph[n].users().len() == 0 {
            // It has no users, which is the one thing that could fail. The exporter lifts all attributes there are.
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
    made: &mut Vec<(Arc<str>, Attribute)>,
) -> Result<(), String> {
    let nodes = graph.placeholders();
    if nodes.len() != signature.inputs.len() {
        let (a, b) = (signature.inputs.len(), nodes.len());
        return Err(format!("the signature has {a} inputs, the graph {b}"));
    }
    for (&n, spec) in nodes.iter().zip(&signature.inputs) {
        let Some(kind) = spec.attribute_kind() else {
            if let Some(v) = &spec.constant {
                graph.set_args(n, vec![v.map(|l| -> NodeId { match *l {} })]);
            }
            continue;
        };
        let Some(path) = &spec.target else {
            return Err(format!("the signature does not say which attribute `{}` is", spec.name));
        };
        graph.set_target(n, Opcode::GetAttr, path);
        let attribute = Attribute {
            kind,
            ty: graph[n].meta.ty.clone(),
            value: None,
            span: graph[n].meta.span,
        };
        made.push((path.clone(), attribute));
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
        return Err(format!("the signature has {a} outputs, the graph {b}"));
    }
    let mut results = vec![];
    for (i, (spec, value)) in signature.outputs.iter().zip(values).enumerate() {
        if spec.is_users() {
            results.push(value);
            continue;
        }
        let target = written_node(graph, spec).ok_or_else(|| match &spec.target {
            Some(t) => format!("no input is called `{t}`"),
            None => format!("output {i} of the signature is a `{}`", spec.kind),
        })?;
        let args = vec![Val::Leaf(target), value];
        let _ = graph.inserting_before(Some(output), |g| {
            g.call_function("torch.ops.aten.copy_.default", args, vec![])
        });
    }
    let result = match &signature.results {
        Some(nesting) => {
            nest_results(nesting, &results).ok_or("the results are nested otherwise than the signature says")?
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

/// Gives the output node its type: that of its argument.
pub fn type_output(graph: &mut Graph, output: NodeId) {
    let ty = |n: &NodeId| -> Result<Type, std::convert::Infallible> {
        Ok(graph[*n].meta.ty.clone().unwrap_or(Val::Unknown))
    };
    let ty = graph[output].args().first().map(|v| v.try_map(&mut |n| ty(n)));
    if let Some(Ok(ty)) = ty {
        graph.meta_mut(output).ty = Some(ty);
    }
}

/// The bounds of sizes that the signature's ranges give and nothing else does.
fn declare_ranges(module: &mut GraphModule, signature: &Signature) {
    let mut found: HashMap<Arc<str>, DimRange> = HashMap::new();
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
            found.insert(name.clone(), range);
        }
    }
    for (name, _) in &signature.ranges {
        if let Some(range) = found.remove(name) {
            module.dims.entry(name.clone()).or_insert(range);
        }
    }
}

/// The tracer takes every size for at least 2, because 0 and 1 would be traced on their own; the program runs at those
/// sizes too (`_check_input_constraints_for_graph` lets them pass).
pub fn traced_minimum(min: i64) -> i64 {
    if min <= 2 { 0 } else { min }
}
