//! One graph of an archive as a [`Graph`].

use super::json::{Bad, get, items, list, optional, text, union};
use super::loc;
use super::parts::Parts;
use super::pt2_scalars::dtype;
use super::sym::parse_size;
use crate::graph::{Arg, Graph, Namer, NodeId, Opcode, pyrepr, type_output};
use crate::op::{self, Literal};
use crate::types::{Dim, Kind, TensorType, Type, Val};
use indexmap::IndexMap;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// How deep graphs of higher-order ops may nest.
const MAX_GRAPH_DEPTH: usize = 32;

/// The graphs of higher-order ops found so far.
#[derive(Default)]
pub(super) struct Context {
    /// By their names in the module.
    pub graphs: IndexMap<Arc<str>, Graph>,
    names: Namer,
    depth: usize,
}

impl Context {
    /// A name that no graph has.
    pub fn name(&mut self, wish: &str) -> Arc<str> {
        self.names.reserve("main");
        self.names.create(wish).into()
    }

    /// Reads a graph that is an argument and gives its name in the module. Archives name graphs within their parent:
    /// equal names become different ones here.
    pub fn graph(&mut self, v: &Value) -> Result<Arg, Bad> {
        let wish = text(v, "name")?;
        if self.depth == MAX_GRAPH_DEPTH {
            return Err(Bad::unsupported(format!(
                "graphs nested more than {MAX_GRAPH_DEPTH} deep"
            )));
        }
        self.depth += 1;
        self.names.reserve("main");
        let name: Arc<str> = self.names.create(wish).into();
        let json = get(v, "graph")?;
        let mut scope = Scope::new(json, &Parts::default())?;
        for (i, input) in list(json, "inputs")?.iter().enumerate() {
            scope
                .placeholder(input, i)
                .map_err(|e| e.within(format_args!("graph `{wish}`, input {i}")))?;
        }
        scope
            .nodes(json, &Parts::default(), self)
            .map_err(|e| e.within(format_args!("graph `{wish}`")))?;
        let mut outputs = scope
            .outputs(json)
            .map_err(|e| e.within(format_args!("graph `{wish}`")))?;
        let single = optional(json, "is_single_tensor_return").and_then(Value::as_bool) == Some(true);
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
    /// What has been built.
    pub graph: Graph,
    values: HashMap<String, NodeId>,
    types: HashMap<String, Type>,
}

impl Scope {
    /// An empty graph that knows the types of the values of `json` and of what was taken out of it.
    pub fn new(json: &Value, parts: &Parts) -> Result<Scope, Bad> {
        let mut types = HashMap::new();
        for part in parts.tensors() {
            let (name, v) = part.map_err(|e| e.within("`tensor_values`"))?;
            let ty = tensor_type(&v).map_err(|e| e.within(format_args!("value `{name}`")))?;
            types.insert(name, Val::Leaf(ty));
        }
        let mut table = |key: &str, read: &dyn Fn(&Value) -> Result<Type, Bad>| -> Result<(), Bad> {
            let Some(values) = optional(json, key).and_then(Value::as_object) else {
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
        table("sym_int_values", &|v| size(v).map(Val::Int))?;
        table("sym_float_values", &|_| Ok(Val::Any(Kind::Float)))?;
        table("sym_bool_values", &|_| Ok(Val::Any(Kind::Bool)))?;
        Ok(Scope {
            graph: Graph::new(),
            values: HashMap::new(),
            types,
        })
    }

    /// The node that computes the value `name`.
    pub fn value(&self, name: &str) -> Result<NodeId, Bad> {
        self.values
            .get(name)
            .copied()
            .ok_or_else(|| format!("`{name}` is used before it is defined").into())
    }

    /// A node called `name` (or something near it, if that is not an identifier) that computes the value `name`.
    fn add(&mut self, op: Opcode, target: &str, args: Vec<Arg>, kwargs: Kwargs, name: &str) -> Result<NodeId, Bad> {
        if self.values.contains_key(name) {
            return Err(format!("`{name}` is defined twice").into());
        }
        let n = self.named(op, target, args, kwargs, name);
        self.graph.meta_mut(n).ty = self.types.get(name).cloned();
        self.values.insert(name.to_string(), n);
        Ok(n)
    }

    /// A node of exactly this name, or of one made from it if it is not an identifier or taken.
    fn named(&mut self, op: Opcode, target: &str, args: Vec<Arg>, kwargs: Kwargs, name: &str) -> NodeId {
        if name.is_ascii()
            && pyrepr::is_identifier(name)
            && let Ok(n) = self.graph.create_named(op, target, args.clone(), kwargs.clone(), name)
        {
            return n;
        }
        self.graph.create_node(op, target, args, kwargs, Some(name))
    }

    /// An input that the caller gives: its name, and its value if tracing fixed it.
    pub fn placeholder(&mut self, input: &Value, index: usize) -> Result<(Arc<str>, Option<Literal>), Bad> {
        let (kind, v) = union(input)?;
        let name = match kind {
            "as_tensor" => text(v, "name")?,
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => text(v, "as_name")?,
            "as_custom_obj" => return Err(Bad::unsupported("an input that is a custom object")),
            _ => {
                let value = super::pt2_scalars::constant(input)?;
                return Ok((self.bare_placeholder(&format!("arg{index}"))?, Some(value)));
            }
        };
        Ok((self.bare_placeholder(name)?, None))
    }

    /// A placeholder of this name.
    pub fn bare_placeholder(&mut self, name: &str) -> Result<Arc<str>, Bad> {
        self.add(Opcode::Placeholder, name, vec![], vec![], name)?;
        Ok(name.into())
    }

    /// All nodes: those of `json`, and those that were taken out of it.
    pub fn nodes(&mut self, json: &Value, parts: &Parts, cx: &mut Context) -> Result<(), Bad> {
        let whole = list(json, "nodes")?.iter().map(|v| Ok(Cow::Borrowed(v)));
        for (i, v) in whole.chain(parts.nodes().map(|v| v.map(Cow::Owned))).enumerate() {
            let v = v.map_err(|e| e.within(format_args!("node {i}")))?;
            let name = optional(&v, "name").and_then(Value::as_str).unwrap_or("");
            self.node(&v, cx)
                .map_err(|e| e.within(format_args!("node {i} (`{name}`)")))?;
        }
        Ok(())
    }

    fn node(&mut self, v: &Value, cx: &mut Context) -> Result<(), Bad> {
        let target = text(v, "target")?;
        if target.starts_with('#') {
            return Err(Bad::unsupported(format!("the operator `{target}` of an extension")));
        }
        let higher_order = target.starts_with("torch.ops.higher_order.");
        let mut args = vec![];
        let mut kwargs: Kwargs = vec![];
        for input in list(v, "inputs")? {
            let name = optional(input, "name").and_then(Value::as_str).unwrap_or("");
            let value = self
                .argument(get(input, "arg")?, cx, 0)
                .map_err(|e| e.within(format_args!("argument `{name}`")))?;
            let positional = match optional(input, "kind").and_then(Value::as_i64) {
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
        self.call(v, &called, args, kwargs, higher_order)?;
        self.locate(v, first);
        Ok(())
    }

    /// Gives the new nodes after `before` their place in the user's Python.
    fn locate(&mut self, v: &Value, before: Option<NodeId>) {
        let Some(metadata) = v.get("metadata") else { return };
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let frame = text("stack_trace").and_then(loc::frames);
        let loc = frame.as_deref().map(loc::users);
        let modules = loc::modules(text("nn_module_stack").unwrap_or_default());
        let function = text("torch_fn").and_then(|f| f.split_once(';'));
        let function = function.map(|(name, what)| (name.into(), what.into()));
        let custom = text("custom").map(loc::annotations).unwrap_or_default();
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

    /// The call itself, and `getitem` nodes for the results of a call that has several.
    fn call(&mut self, v: &Value, target: &str, args: Vec<Arg>, kwargs: Kwargs, higher_order: bool) -> Result<(), Bad> {
        let outputs = list(v, "outputs")?;
        let wish = optional(v, "name").and_then(Value::as_str).filter(|n| !n.is_empty());
        let one_tensor = optional(v, "is_hop_single_tensor_return").and_then(Value::as_bool) == Some(true);
        if let ([only], false) = (outputs, higher_order && !one_tensor)
            && let Some(name) = value_name(only)?
        {
            return self.add(Opcode::CallFunction, target, args, kwargs, name).map(|_| ());
        }
        let n = match wish {
            Some(name) => self.named(Opcode::CallFunction, target, args, kwargs, name),
            None => self.graph.create_node(Opcode::CallFunction, target, args, kwargs, None),
        };
        let parts = match outputs {
            [only] if !higher_order => match union(only)? {
                ("as_none", _) => return Ok(()),
                (kind, v) => items(v).map_err(|_| Bad::unsupported(format!("a result of kind `{kind}`")))?,
            },
            _ => outputs,
        };
        let ty = self.getitems(n, parts)?;
        self.graph.meta_mut(n).ty = Some(match outputs {
            [only] if !higher_order && only.get("as_tensors").is_some() => Val::List(ty),
            // An op without results gives None.
            [] => Val::None,
            _ => Val::Tuple(ty),
        });
        Ok(())
    }

    /// A `getitem` node for each part of a result that is used, and the types of all parts.
    fn getitems(&mut self, from: NodeId, parts: &[Value]) -> Result<Vec<Type>, Bad> {
        let mut types = vec![];
        for (i, part) in parts.iter().enumerate() {
            let args = vec![Val::Leaf(from), Val::int(i as i64)];
            if let Some(name) = value_name(part)? {
                let unused = format!("{}_unused_{i}", self.graph[from].name());
                types.push(self.types.get(name).cloned().unwrap_or(Val::Unknown));
                // The exporter invents names for results that no node reads.
                if name != unused {
                    self.add(Opcode::CallFunction, "operator.getitem", args, vec![], name)?;
                }
                continue;
            }
            match union(part)? {
                ("as_none", _) => types.push(Val::None),
                (_, Value::Array(inner)) => {
                    let n = self
                        .graph
                        .create_node(Opcode::CallFunction, "operator.getitem", args, vec![], None);
                    let ty = Val::List(self.getitems(n, inner)?);
                    self.graph.meta_mut(n).ty = Some(ty.clone());
                    types.push(ty);
                }
                (kind, _) => return Err(Bad::unsupported(format!("a result of kind `{kind}`"))),
            }
        }
        Ok(types)
    }

    /// The graph's results.
    pub fn outputs(&mut self, json: &Value) -> Result<Vec<Arg>, Bad> {
        let outputs = list(json, "outputs")?.iter().enumerate();
        let mut cx = Context::default();
        outputs
            .map(|(i, v)| {
                self.argument(v, &mut cx, 0)
                    .map_err(|e| e.within(format_args!("output {i}")))
            })
            .collect()
    }
}

type Kwargs = Vec<(Arc<str>, Arg)>;

/// The name of a value that is one tensor or one symbolic number; `None` for other kinds.
pub(super) fn value_name(v: &Value) -> Result<Option<&str>, Bad> {
    // The items of `as_tensors` are not unions but tensors themselves.
    if let Some(name) = v.get("name") {
        return Ok(name.as_str());
    }
    Ok(match union(v)? {
        ("as_tensor", v) => Some(text(v, "name")?),
        ("as_sym_int" | "as_sym_float" | "as_sym_bool", v) => optional(v, "as_name").and_then(Value::as_str),
        ("as_name", v) => v.as_str(),
        _ => None,
    })
}

/// Whether an argument of an older archive, which does not say, is positional: if the schema gives it no default.
fn is_positional(target: &str, name: &str) -> bool {
    let path = op::canonical_path(target, false);
    let Some(c) = op::candidates(&path).first().copied() else {
        return !target.starts_with("torch.ops.");
    };
    let param = c.schema().params.iter().find(|p| p.name == name);
    param.is_some_and(|p| p.default.is_none() && !p.keyword_only)
}

/// The type that a tensor's metadata says.
pub(super) fn tensor_type(v: &Value) -> Result<TensorType, Bad> {
    let sizes = list(v, "sizes")?.iter().map(size).collect::<Result<Vec<Dim>, Bad>>()?;
    Ok(TensorType::new(dtype(get(v, "dtype")?)?, sizes))
}

/// A size: `{"as_int": 3}` or `{"as_expr": {"expr_str": "2*s77 + 1"}}`.
pub(super) fn size(v: &Value) -> Result<Dim, Bad> {
    match union(v)? {
        ("as_int", v) => super::json::int(v).map(Dim::Const),
        ("as_expr", v) => {
            let expr = text(v, "expr_str")?;
            parse_size(expr).ok_or_else(|| format!("`{expr}` is not a size").into())
        }
        (kind, _) => Err(format!("`{kind}` is not a size").into()),
    }
}
