//! Reads one graph of an archive into a [`Graph`].

use super::json::{Bad, get_list, get_member, get_optional, get_text, read_items, read_union};
use super::loc;
use super::parts::GraphParts;
use super::pt2_scalars::read_dtype;
use super::sym::parse_size;
use crate::graph::{Arg, Graph, Namer, NodeId, Opcode, pyrepr, type_output};
use crate::op::{self, Literal};
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};
use indexmap::IndexMap;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum nesting depth of graphs of higher-order ops.
const MAX_GRAPH_DEPTH: usize = 32;

/// The graphs of higher-order ops found so far.
#[derive(Default)]
pub(super) struct ImportContext {
    /// The graphs by their names in the module.
    pub graphs: IndexMap<Arc<str>, Graph>,
    names: Namer,
    depth: usize,
}

impl ImportContext {
    /// An unused name for a graph.
    pub(super) fn unique_graph_name(&mut self, wish: &str) -> Arc<str> {
        self.names.reserve("main");
        self.names.create(wish).into()
    }

    /// Reads a graph that is an argument and returns its name in the module. Archives name graphs within their parent,
    /// so equal names are made unique here.
    pub(super) fn read_subgraph(&mut self, v: &Value) -> Result<Arg, Bad> {
        let wish = get_text(v, "name")?;
        if self.depth == MAX_GRAPH_DEPTH {
            return Err(Bad::unsupported(format!(
                "graphs nested more than {MAX_GRAPH_DEPTH} deep"
            )));
        }
        self.depth += 1;
        self.names.reserve("main");
        let name: Arc<str> = self.names.create(wish).into();
        let json = get_member(v, "graph")?;
        let mut scope = Scope::new(json, &GraphParts::default())?;
        for (i, input) in get_list(json, "inputs")?.iter().enumerate() {
            scope
                .read_placeholder(input, i)
                .map_err(|e| e.within(format_args!("graph `{wish}`, input {i}")))?;
        }
        scope
            .read_nodes(json, &GraphParts::default(), self)
            .map_err(|e| e.within(format_args!("graph `{wish}`")))?;
        let mut outputs = scope
            .read_outputs(json)
            .map_err(|e| e.within(format_args!("graph `{wish}`")))?;
        let single = get_optional(json, "is_single_tensor_return").and_then(Value::as_bool) == Some(true);
        let result = match outputs.len() {
            1 if single => outputs.remove(0),
            _ => Val::Tuple(outputs),
        };
        let output = scope.graph.set_output(result);
        type_output(&mut scope.graph, output);
        self.depth -= 1;
        scope.graph.attribute = (*name != *wish).then(|| wish.into());
        self.graphs.insert(name.clone(), scope.graph);
        Ok(Val::Graph(name))
    }
}

/// A graph under construction.
pub(super) struct Scope {
    /// The graph built so far.
    pub graph: Graph,
    values: HashMap<String, NodeId>,
    types: HashMap<String, Type>,
}

impl Scope {
    /// An empty graph with the types of the values in `json` and in the extracted parts.
    pub(super) fn new(json: &Value, parts: &GraphParts) -> Result<Scope, Bad> {
        let mut types = HashMap::new();
        for part in parts.tensor_types() {
            let (name, v) = part.map_err(|e| e.within("`tensor_values`"))?;
            let ty = tensor_type(&v).map_err(|e| e.within(format_args!("value `{name}`")))?;
            types.insert(name, Val::Leaf(ty));
        }
        let mut table = |key: &str, read: &dyn Fn(&Value) -> Result<Type, Bad>| -> Result<(), Bad> {
            let Some(values) = get_optional(json, key).and_then(Value::as_object) else {
                return Ok(());
            };
            for (name, v) in values {
                types.insert(
                    name.clone(),
                    read(v).map_err(|e| e.within(format_args!("value `{name}`")))?,
                );
            }
            Ok(())
        };
        table("tensor_values", &|v| tensor_type(v).map(Val::Leaf))?;
        table("sym_int_values", &|v| read_size(v).map(Val::Int))?;
        table("sym_float_values", &|_| Ok(Val::Any(ScalarKind::Float)))?;
        table("sym_bool_values", &|_| Ok(Val::Any(ScalarKind::Bool)))?;
        Ok(Scope {
            graph: Graph::new(),
            values: HashMap::new(),
            types,
        })
    }

    /// The node that computes the value `name`.
    pub(super) fn node_of_value(&self, name: &str) -> Result<NodeId, Bad> {
        self.values
            .get(name)
            .copied()
            .ok_or_else(|| format!("`{name}` is used before it is defined").into())
    }

    /// Creates a node that computes the value `name`. The node has this name, or a similar one if it is not an
    /// identifier.
    fn add_value(
        &mut self,
        op: Opcode,
        target: &str,
        args: Vec<Arg>,
        kwargs: Kwargs,
        name: &str,
    ) -> Result<NodeId, Bad> {
        if self.values.contains_key(name) {
            return Err(format!("`{name}` is defined twice").into());
        }
        let n = self.create_named_node(op, target, args, kwargs, name);
        self.graph.meta_mut(n).ty = self.types.get(name).cloned();
        self.values.insert(name.to_string(), n);
        Ok(n)
    }

    /// Creates a node with exactly this name, or with one derived from it if it is taken or not an identifier.
    fn create_named_node(&mut self, op: Opcode, target: &str, args: Vec<Arg>, kwargs: Kwargs, name: &str) -> NodeId {
        if name.is_ascii()
            && pyrepr::is_identifier(name)
            && let Ok(n) = self.graph.create_named(op, target, args.clone(), kwargs.clone(), name)
        {
            return n;
        }
        self.graph.create_node(op, target, args, kwargs, Some(name))
    }

    /// Reads an input that the caller passes. Returns its name, and its value if tracing specialised it to a constant.
    pub(super) fn read_placeholder(&mut self, input: &Value, index: usize) -> Result<(Arc<str>, Option<Literal>), Bad> {
        let (kind, v) = read_union(input)?;
        let name = match kind {
            "as_tensor" => get_text(v, "name")?,
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => get_text(v, "as_name")?,
            "as_custom_obj" => return Err(Bad::unsupported("an input that is a custom object")),
            _ => {
                let value = super::pt2_scalars::read_constant(input)?;
                return Ok((self.bare_placeholder(&format!("arg{index}"))?, Some(value)));
            }
        };
        Ok((self.bare_placeholder(name)?, None))
    }

    /// Creates a placeholder with this name.
    pub(super) fn bare_placeholder(&mut self, name: &str) -> Result<Arc<str>, Bad> {
        self.add_value(Opcode::Placeholder, name, vec![], vec![], name)?;
        Ok(name.into())
    }

    /// Reads all nodes: those in `json` and the extracted ones.
    pub(super) fn read_nodes(&mut self, json: &Value, parts: &GraphParts, cx: &mut ImportContext) -> Result<(), Bad> {
        let whole = get_list(json, "nodes")?.iter().map(|v| Ok(Cow::Borrowed(v)));
        for (i, v) in whole.chain(parts.nodes().map(|v| v.map(Cow::Owned))).enumerate() {
            let v = v.map_err(|e| e.within(format_args!("node {i}")))?;
            let name = get_optional(&v, "name").and_then(Value::as_str).unwrap_or("");
            self.read_node(&v, cx)
                .map_err(|e| e.within(format_args!("node {i} (`{name}`)")))?;
        }
        Ok(())
    }

    fn read_node(&mut self, v: &Value, cx: &mut ImportContext) -> Result<(), Bad> {
        let target = get_text(v, "target")?;
        if target.starts_with('#') {
            return Err(Bad::unsupported(format!("the operator `{target}` of an extension")));
        }
        let higher_order = target.starts_with("torch.ops.higher_order.");
        let mut args = vec![];
        let mut kwargs: Kwargs = vec![];
        for input in get_list(v, "inputs")? {
            let name = get_optional(input, "name").and_then(Value::as_str).unwrap_or("");
            let value = self
                .read_argument(get_member(input, "arg")?, cx, 0)
                .map_err(|e| e.within(format_args!("argument `{name}`")))?;
            let positional = match get_optional(input, "kind").and_then(Value::as_i64) {
                Some(1) => true,
                Some(2) => false,
                _ => name.is_empty() || (!higher_order && is_positional(target, name)),
            };
            if positional && kwargs.is_empty() {
                args.push(value);
            } else {
                kwargs.push((name.into(), value));
            }
        }
        let first = self.graph.last();
        let called = match target.strip_prefix("_operator.") {
            Some(op) => format!("operator.{op}"),
            None => target.to_string(),
        };
        self.add_call(v, &called, args, kwargs, higher_order)?;
        self.set_locations(v, first);
        Ok(())
    }

    /// Sets the location in the user's Python of the nodes created after `before`.
    fn set_locations(&mut self, v: &Value, before: Option<NodeId>) {
        let Some(metadata) = v.get("metadata") else { return };
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let frame = text("stack_trace").and_then(loc::parse_frames);
        let loc = frame.as_deref().map(loc::user_loc);
        let modules = loc::parse_modules(text("nn_module_stack").unwrap_or_default());
        let function = text("torch_fn").and_then(|f| f.split_once(';'));
        let function = function.map(|(name, what)| (name.into(), what.into()));
        let custom = text("custom").map(loc::parse_annotations).unwrap_or_default();
        let mut next = before.map_or(self.graph.first(), |n| self.graph.next(n));
        while let Some(n) = next {
            let meta = self.graph.meta_mut(n);
            meta.loc = loc.clone();
            meta.modules = modules.clone();
            meta.function = function.clone();
            meta.custom = custom.clone();
            meta.frame = frame.clone();
            next = self.graph.next(n);
        }
    }

    /// Creates the call, and `getitem` nodes if it has several results.
    fn add_call(
        &mut self,
        v: &Value,
        target: &str,
        args: Vec<Arg>,
        kwargs: Kwargs,
        higher_order: bool,
    ) -> Result<(), Bad> {
        let outputs = get_list(v, "outputs")?;
        let wish = get_optional(v, "name")
            .and_then(Value::as_str)
            .filter(|n| !n.is_empty());
        let one_tensor = get_optional(v, "is_hop_single_tensor_return").and_then(Value::as_bool) == Some(true);
        if let ([only], false) = (outputs, higher_order && !one_tensor)
            && let Some(name) = value_name(only)?
        {
            return self
                .add_value(Opcode::CallFunction, target, args, kwargs, name)
                .map(|_| ());
        }
        let n = match wish {
            Some(name) => self.create_named_node(Opcode::CallFunction, target, args, kwargs, name),
            None => self.graph.create_node(Opcode::CallFunction, target, args, kwargs, None),
        };
        let parts = match outputs {
            [only] if !higher_order => match read_union(only)? {
                ("as_none", _) => return Ok(()),
                (kind, v) => read_items(v).map_err(|_| Bad::unsupported(format!("a result of kind `{kind}`")))?,
            },
            _ => outputs,
        };
        let ty = self.add_getitems(n, parts)?;
        self.graph.meta_mut(n).ty = Some(match outputs {
            [only] if !higher_order && only.get("as_tensors").is_some() => Val::List(ty),
            // An op without results returns `None`.
            [] => Val::None,
            _ => Val::Tuple(ty),
        });
        Ok(())
    }

    /// Creates a `getitem` node for each part of a result that is used. Returns the types of all parts.
    fn add_getitems(&mut self, from: NodeId, parts: &[Value]) -> Result<Vec<Type>, Bad> {
        let mut types = vec![];
        for (i, part) in parts.iter().enumerate() {
            let args = vec![Val::Leaf(from), Val::int(i as i64)];
            if let Some(name) = value_name(part)? {
                let unused = format!("{}_unused_{i}", self.graph[from].name());
                types.push(self.types.get(name).cloned().unwrap_or(Val::Unknown));
                // The exporter generates names for results that no node reads.
                if name != unused {
                    self.add_value(Opcode::CallFunction, "operator.getitem", args, vec![], name)?;
                }
                continue;
            }
            match read_union(part)? {
                ("as_none", _) => types.push(Val::None),
                (_, Value::Array(inner)) => {
                    let n = self
                        .graph
                        .create_node(Opcode::CallFunction, "operator.getitem", args, vec![], None);
                    let ty = Val::List(self.add_getitems(n, inner)?);
                    self.graph.meta_mut(n).ty = Some(ty.clone());
                    types.push(ty);
                }
                (kind, _) => return Err(Bad::unsupported(format!("a result of kind `{kind}`"))),
            }
        }
        Ok(types)
    }

    /// Reads the graph's results.
    pub(super) fn read_outputs(&mut self, json: &Value) -> Result<Vec<Arg>, Bad> {
        let outputs = get_list(json, "outputs")?.iter().enumerate();
        let mut cx = ImportContext::default();
        outputs
            .map(|(i, v)| {
                self.read_argument(v, &mut cx, 0)
                    .map_err(|e| e.within(format_args!("output {i}")))
            })
            .collect()
    }
}

type Kwargs = Vec<(Arc<str>, Arg)>;

/// The name of a value that is a single tensor or symbolic number; `None` for other kinds.
pub(super) fn value_name(v: &Value) -> Result<Option<&str>, Bad> {
    // The items of `as_tensors` are plain tensors and not unions.
    if let Some(name) = v.get("name") {
        return Ok(name.as_str());
    }
    Ok(match read_union(v)? {
        ("as_tensor", v) => Some(get_text(v, "name")?),
        ("as_sym_int" | "as_sym_float" | "as_sym_bool", v) => get_optional(v, "as_name").and_then(Value::as_str),
        ("as_name", v) => v.as_str(),
        _ => None,
    })
}

/// Whether an argument in an older archive, which does not record this, is positional. It is if the schema has no
/// default for it.
fn is_positional(target: &str, name: &str) -> bool {
    let path = op::canonical_path(target, false);
    let Some(c) = op::candidates(&path).first().copied() else {
        return !target.starts_with("torch.ops.");
    };
    let param = c.schema().params.iter().find(|p| p.name == name);
    param.is_some_and(|p| p.default.is_none() && !p.keyword_only)
}

/// The type in a tensor's metadata.
pub(super) fn tensor_type(v: &Value) -> Result<TensorType, Bad> {
    let sizes = get_list(v, "sizes")?
        .iter()
        .map(read_size)
        .collect::<Result<Vec<Dim>, Bad>>()?;
    Ok(TensorType::new(read_dtype(get_member(v, "dtype")?)?, sizes))
}

/// A size: `{"as_int": 3}` or `{"as_expr": {"expr_str": "2*s77 + 1"}}`.
pub(super) fn read_size(v: &Value) -> Result<Dim, Bad> {
    match read_union(v)? {
        ("as_int", v) => super::json::read_int(v).map(Dim::Const),
        ("as_expr", v) => {
            let expr = get_text(v, "expr_str")?;
            parse_size(expr).ok_or_else(|| format!("`{expr}` is not a size").into())
        }
        (kind, _) => Err(format!("`{kind}` is not a size").into()),
    }
}
