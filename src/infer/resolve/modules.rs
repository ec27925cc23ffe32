//! Calls of modules as calls of ops.

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::infer::resolved::{Callee, Operand, Resolved, attribute_type, declared_attribute, kwarg_refs, weight_of};
use crate::infer::{report, unknown};
use crate::op;
use crate::op::modules::{ArgumentSource, Below, Constructed, ModuleCall};
use crate::types::{DType, Type, Val};
use std::sync::Arc;

/// The value and type of one argument of the op that a module call stands for.
fn source_value(
    s: &ArgumentSource,
    inputs: &[(Val<Operand>, Type)],
    attr: &dyn Fn(&str) -> (Arc<str>, Type),
) -> (Val<Operand>, Type) {
    match s {
        ArgumentSource::Input(i) => inputs[*i].clone(),
        ArgumentSource::Attr(name) => {
            let (path, ty) = attr(name);
            (Val::Leaf(Operand::Attr(path)), ty)
        }
        ArgumentSource::Value(v) => (op::lift_literal(v), op::lift_literal(v)),
        ArgumentSource::List(items) => {
            let (values, types) = items.iter().map(|s| source_value(s, inputs, attr)).unzip();
            (Val::List(values), Val::List(types))
        }
    }
}

/// The attributes and modules that the file declares below a module.
struct DeclaredBelow<'a> {
    module: &'a GraphModule,
    path: &'a str,
}

impl Below for DeclaredBelow<'_> {
    fn has_attr(&self, path: &str) -> bool {
        self.module.attributes.contains_key(&*format!("{}.{path}", self.path))
    }

    fn is_known(&self) -> bool {
        let inside = |name: &str| name.strip_prefix(self.path).is_some_and(|r| r.starts_with('.'));
        self.module.attributes.keys().any(|k| inside(k))
    }

    fn part(&self, path: &str) -> Option<Constructed<'_>> {
        let decl = self.module.modules.get(&*format!("{}.{path}", self.path))?;
        Some(decl.constructed())
    }
}

/// The dtype of weights that have no declaration: the `dtype` of the constructor, else that of the first float input
/// (torch computes with one dtype), else torch's default.
fn weights_dtype(module: &GraphModule, path: &str, inputs: &[(Val<Operand>, Type)]) -> DType {
    let decl = module.modules.get(path);
    let named = decl.into_iter().flat_map(|d| &d.kwargs).find_map(|(k, v)| match v {
        Val::DType(d) if &**k == "dtype" => Some(*d),
        _ => None,
    });
    let floats = |(_, t): &(_, Type)| t.as_leaf().map(|t| t.dtype).filter(|d| d.is_float());
    named.or_else(|| inputs.iter().find_map(floats)).unwrap_or(DType::F32)
}

/// All arguments of a call with their types, the keyword arguments last.
fn values_and_types(r: Resolved) -> Vec<(Val<Operand>, Type)> {
    let values = r.args.into_iter().chain(r.kwargs.into_iter().map(|(_, v)| v));
    let types = r.arg_types.into_iter().chain(r.kwarg_types.into_iter().map(|(_, t)| t));
    values.zip(types).collect()
}

/// Resolves a module call to the op it stands for.
pub(super) fn module_call(
    module: &GraphModule,
    graph: &Graph,
    node: NodeId,
    module_args: Resolved,
) -> Result<Resolved, Diagnostic> {
    let path = graph[node].target();
    let names: Vec<Arc<str>> = module_args.kwargs.iter().map(|(k, _)| k.clone()).collect();
    let inputs = values_and_types(module_args);
    let call = expand_call(module, graph, node, inputs.len(), &names)?;
    let dtype = weights_dtype(module, path, &inputs);
    let attr = |name: &str| module_attribute(module, &call, dtype, path, name);
    let value = |s: &ArgumentSource| source_value(s, &inputs, &attr);
    let (args, arg_types): (Vec<_>, Vec<_>) = call.args.iter().map(value).unzip();
    let (mut kwargs, mut kwarg_types) = (vec![], vec![]);
    for (name, s) in &call.kwargs {
        let (v, t) = value(s);
        kwargs.push((Arc::from(*name), v));
        kwarg_types.push((Arc::from(*name), t));
    }
    let candidate = op::Candidate {
        op: call.op,
        form: None,
    };
    let mut spelling = candidate
        .bind_checked(&arg_types, &kwarg_refs(&kwarg_types))
        .map_err(|e| report::bind_error(graph, node, call.op.name, candidate, e))?;
    spelling.inplace |= call.inplace;
    Ok(Resolved {
        callee: Callee::Op(spelling),
        args,
        kwargs,
        arg_types,
        kwarg_types,
        out: vec![],
    })
}

/// The path and type of attribute `name` of the module at `path`. Weights that are not declared have the sizes that follow
/// from the module's class, and `dtype`.
fn module_attribute(module: &GraphModule, call: &ModuleCall, dtype: DType, path: &str, name: &str) -> (Arc<str>, Type) {
    let path: Arc<str> = format!("{path}.{name}").into();
    let sizes = call.sizes.iter().find(|(n, _)| &**n == name);
    let ty = match (declared_attribute(module, &path), sizes) {
        (Some(ty), _) => ty,
        (None, Some((_, sizes))) => weight_of(dtype, sizes),
        (None, None) => attribute_type(module, &path),
    };
    (path, ty)
}

/// The op call for a node that calls a module with `inputs` arguments, the last of them with these names.
fn expand_call(
    module: &GraphModule,
    graph: &Graph,
    node: NodeId,
    inputs: usize,
    names: &[Arc<str>],
) -> Result<ModuleCall, Diagnostic> {
    let path = graph[node].target();
    if op::modules::is_guards(path)
        && let Some(call) = op::modules::no_guards()
    {
        return Ok(call);
    }
    let decl = module.modules.get(path);
    let decl = decl.ok_or_else(|| unknown::unknown_module(graph, node))?;
    op::modules::expand_module(decl.constructed(), inputs, names, &DeclaredBelow { module, path }).map_err(|e| {
        match op::modules::check_constructed(decl.constructed()) {
            Err(e) => unknown::declaration_error(module, path, e),
            Ok(()) => unknown::module_call(graph, node, decl.span, e),
        }
    })
}
