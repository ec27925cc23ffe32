//! From a node to the op or graph it calls.
//!
//! [`resolve_node`] is the one way in which stages see a node as a call of a canonical op: functions, methods and
//! modules, whatever their spelling, become a row of the op table with one argument per parameter.

use super::{arg_type, attribute_type, report};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op::modules::{Below, Constructed, Source};
use crate::op::{self, Call, ParamType, Spelling};
use crate::types::{DType, TensorType, Type, Val};
use std::sync::Arc;

/// What stands for a value in a resolved call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A node's value.
    Node(NodeId),
    /// An item of a node's value, which is a list or tuple (of such, for more than one index).
    Item(NodeId, Vec<usize>),
    /// An attribute of the called module: a parameter or buffer by path.
    Attr(Arc<str>),
}

/// What a node calls.
#[derive(Clone, Debug)]
pub enum Callee {
    /// An op of the table.
    Op(Spelling),
    /// A graph of the same file.
    Graph(Arc<str>),
}

/// A call with its arguments and their types.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What is called.
    pub callee: Callee,
    /// Positional arguments; for a module these are the op's.
    pub args: Vec<Val<Operand>>,
    /// Keyword arguments.
    pub kwargs: Vec<(Arc<str>, Val<Operand>)>,
    /// The types of `args`.
    pub arg_types: Vec<Type>,
    /// The types of `kwargs`.
    pub kwarg_types: Vec<(Arc<str>, Type)>,
    /// The tensors of `out=` and its like (not among `kwargs`), to which the results are written, one each.
    pub out: Vec<(Operand, Type)>,
}

fn refs<T>(kwargs: &[(Arc<str>, Val<T>)]) -> Vec<(&str, &Val<T>)> {
    kwargs.iter().map(|(k, v)| (&**k, v)).collect()
}

impl Resolved {
    /// The op, if it is one.
    pub fn op(&self) -> Option<&'static op::Op> {
        match &self.callee {
            Callee::Op(s) => Some(s.op),
            Callee::Graph(_) => None,
        }
    }

    /// Whether the result is written to the first parameter.
    pub fn inplace(&self) -> bool {
        matches!(&self.callee, Callee::Op(s) if s.inplace)
    }

    /// Whether the result has memory of its own although its op may give its operand's.
    pub fn copies(&self) -> bool {
        matches!(&self.callee, Callee::Op(s) if s.copies)
    }

    /// The operand that the result is written to: the first parameter of an in-place call, or the first of `out`.
    pub fn written(&self) -> Option<Operand> {
        if let Some((o, _)) = self.out.first() {
            return Some(o.clone());
        }
        if !self.inplace() {
            return None;
        }
        self.call()?.args.first()?.as_leaf().cloned()
    }

    /// The call with types as arguments: what rules and meanings look at.
    pub fn types(&self) -> Option<Call<TensorType>> {
        match &self.callee {
            Callee::Op(s) => Some(s.apply(&self.arg_types, &refs(&self.kwarg_types))),
            Callee::Graph(_) => None,
        }
    }

    /// The call with operands as arguments. Values that inference knows (sizes, numbers, dtypes) are written out, and a
    /// node whose value is a list of tensors stands as the list of its items, except for parameters of any type.
    pub fn call(&self) -> Option<Call<Operand>> {
        let Callee::Op(s) = &self.callee else { return None };
        let expanded = |apart: bool| {
            let args: Vec<_> = self
                .args
                .iter()
                .zip(&self.arg_types)
                .map(|(a, t)| expand(a, t, apart))
                .collect();
            let kwargs: Vec<_> = self
                .kwargs
                .iter()
                .zip(&self.kwarg_types)
                .map(|((k, a), (_, t))| (k.clone(), expand(a, t, apart)))
                .collect();
            s.apply(&args, &refs(&kwargs))
        };
        let mut call = expanded(true);
        if s.op.schema.params.iter().any(|p| p.ty == ParamType::Any) {
            let whole = expanded(false);
            for ((a, p), w) in call.args.iter_mut().zip(&s.op.schema.params).zip(whole.args) {
                if p.ty == ParamType::Any {
                    *a = w;
                }
            }
        }
        Some(call)
    }

    /// The call with arguments of any kind, given for each operand.
    pub fn apply<T: Clone>(&self, f: &mut dyn FnMut(&Operand) -> Val<T>) -> Option<Call<T>> {
        let Callee::Op(s) = &self.callee else { return None };
        let args: Vec<Val<T>> = self.args.iter().map(|a| map(a, f)).collect();
        let kwargs: Vec<(Arc<str>, Val<T>)> = self.kwargs.iter().map(|(k, a)| (k.clone(), map(a, f))).collect();
        Some(s.apply(&args, &refs(&kwargs)))
    }
}

/// Maps every leaf to a value.
pub fn map<T, U>(v: &Val<T>, f: &mut dyn FnMut(&T) -> Val<U>) -> Val<U> {
    let r: Result<Val<U>, std::convert::Infallible> = v.try_map(&mut |t| Ok(f(t)));
    match r {
        Ok(v) => v,
    }
}

/// Whether the value holds no operand and nothing unknown.
pub fn is_value<T>(v: &Val<T>) -> bool {
    match v {
        Val::Leaf(_) | Val::Unknown | Val::Any(_) => false,
        Val::Int(d) => d.as_const().is_some(),
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_value),
        Val::Dict(v) => v.iter().all(|(_, x)| is_value(x)),
        Val::Slice(v) | Val::Range(v) => v.iter().all(is_value),
        _ => true,
    }
}

/// An argument with known values written out and, if `apart`, lists of tensors taken apart.
fn expand(arg: &Val<Operand>, ty: &Type, apart: bool) -> Val<Operand> {
    let seq = |v: &[Val<Operand>], t: &[Type]| v.iter().zip(t).map(|(v, t)| expand(v, t, apart)).collect();
    match (arg, ty) {
        (Val::Leaf(o), t) => expand_leaf(o, t, apart),
        (Val::List(v), Val::List(t)) => Val::List(seq(v, t)),
        (Val::Tuple(v), Val::Tuple(t)) => Val::Tuple(seq(v, t)),
        (Val::Dict(v), Val::Dict(t)) => Val::Dict(
            v.iter()
                .zip(t)
                .map(|((k, v), (_, t))| (k.clone(), expand(v, t, apart)))
                .collect(),
        ),
        (Val::Slice(v), Val::Slice(t)) => Val::Slice(Box::new([0, 1, 2].map(|i| expand(&v[i], &t[i], apart)))),
        (Val::Range(v), Val::Range(t)) => Val::Range(Box::new([0, 1, 2].map(|i| expand(&v[i], &t[i], apart)))),
        _ => arg.clone(),
    }
}

fn expand_leaf(o: &Operand, ty: &Type, apart: bool) -> Val<Operand> {
    if is_value(ty) {
        return ty.map(|_| unreachable!("a value holds no tensors"));
    }
    let item = |i: usize| match o {
        Operand::Node(n) => Some(Operand::Item(*n, vec![i])),
        Operand::Item(n, path) => Some(Operand::Item(*n, [&path[..], &[i]].concat())),
        Operand::Attr(_) => None,
    };
    let items = |v: &[Type]| -> Option<Vec<Val<Operand>>> {
        v.iter()
            .enumerate()
            .map(|(i, t)| item(i).map(|o| expand_leaf(&o, t, apart)))
            .collect()
    };
    match ty {
        Val::List(v) if apart => items(v).map(Val::List),
        Val::Tuple(v) if apart => items(v).map(Val::Tuple),
        _ => None,
    }
    .unwrap_or_else(|| Val::Leaf(o.clone()))
}

/// The graph of the same file that a node calls, and how many leading arguments are not the graph's: those of a wrapper
/// such as `wrap_with_set_grad_enabled(False, @graph, …)`, which changes nothing here. A graph does not call itself: in a
/// graph named `softmax`, `softmax` is the op.
pub fn graph_callee(module: &GraphModule, caller: &str, graph: &Graph, node: NodeId) -> Option<(Arc<str>, usize)> {
    let n = &graph[node];
    if n.op() != Opcode::CallFunction || n.target() == caller {
        return None;
    }
    if let Some((name, _)) = module.graphs.get_key_value(n.target()) {
        return Some((name.clone(), 0));
    }
    let at = match op::canonical_path(n.target(), false).strip_prefix("higher_order.")? {
        "wrap_with_set_grad_enabled" => 1,
        // What autocast does when it is on is not in the graph.
        "wrap_with_autocast" if n.args().get(2) == Some(&Val::Bool(false)) => 4,
        "wrap" | "tag_activation_checkpoint" => 0,
        _ => return None,
    };
    match n.args().get(at) {
        Some(Val::Graph(name)) => module.graphs.get_key_value(name).map(|(k, _)| (k.clone(), at + 1)),
        _ => None,
    }
}

/// What a call node calls, by the types stored in the nodes.
pub fn resolve_node(module: &GraphModule, graph: &Graph, node: NodeId) -> Result<Resolved, Diagnostic> {
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    resolve_with(module, "", graph, node, &ty)
}

/// What a call node calls, when `ty` gives the types of nodes. `caller` is the name of `graph` (empty if not known).
pub fn resolve_with(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    node: NodeId,
    ty: &dyn Fn(NodeId) -> Type,
) -> Result<Resolved, Diagnostic> {
    resolve_plain(module, caller, graph, node, ty).map_err(|d| match d.code {
        Code::E0201 => report::suggest(module, graph, node, d),
        _ => d,
    })
}

/// [`resolve_with`], without a search for what an unknown name may be meant for.
pub(super) fn resolve_plain(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    node: NodeId,
    ty: &dyn Fn(NodeId) -> Type,
) -> Result<Resolved, Diagnostic> {
    let n = &graph[node];
    let operand = |a: &Arg| a.map(|&n| Operand::Node(n));
    let args: Vec<_> = n.args().iter().map(operand).collect();
    let kwargs: Vec<_> = n.kwargs().iter().map(|(k, v)| (k.clone(), operand(v))).collect();
    let arg_types: Vec<_> = n.args().iter().map(|a| arg_type(a, ty)).collect();
    let kwarg_types: Vec<_> = n.kwargs().iter().map(|(k, v)| (k.clone(), arg_type(v, ty))).collect();
    let mut resolved = Resolved {
        callee: Callee::Graph("".into()),
        args,
        kwargs,
        arg_types,
        kwarg_types,
        out: vec![],
    };
    let path = match n.op() {
        Opcode::CallModule => {
            take_out(&mut resolved, "out");
            return module_call(module, graph, node, resolved);
        }
        Opcode::CallMethod => op::canonical_path(n.target(), true),
        _ => {
            if let Some((name, skip)) = graph_callee(module, caller, graph, node) {
                resolved.callee = Callee::Graph(name);
                resolved.args.drain(..skip);
                resolved.arg_types.drain(..skip);
                return Ok(resolved);
            }
            op::canonical_path(n.target(), false)
        }
    };
    if path.contains(".tensor_split") {
        constants_as_ints(module, graph, &mut resolved);
    }
    let writing = op::outs::writing(&path).filter(|_| !op::is_spelling(&path));
    take_out(&mut resolved, writing.map_or("out", |w| w.names));
    let path = match writing {
        Some(w) if !resolved.out.is_empty() => w.packet.to_string(),
        _ => path,
    };
    let (args, kwargs) = (&resolved.arg_types, refs(&resolved.kwarg_types));
    let found = match module.declared_op(&path) {
        Some(op) => op::resolve_among(&[op::Candidate { op, form: None }], args, &kwargs),
        None => op::resolve(&path, args, &kwargs),
    };
    match found {
        Ok(s) => {
            resolved.callee = Callee::Op(s);
            Ok(resolved)
        }
        Err(None) => Err(report::unknown_op(graph, node)),
        Err(Some((candidate, e))) => Err(report::bind_error(graph, node, &path, candidate, e)),
    }
}

/// Copies of a constant that graphs of torch.export read it by.
const COPIES: [&str; 5] = [
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.alias.default",
];

/// The whole numbers of a constant tensor of one dim or none, as torch.fx arguments have them.
fn constant_ints<U>(module: &GraphModule, graph: &Graph, node: NodeId) -> Option<Val<U>> {
    let mut n = &graph[node];
    for _ in 0..COPIES.len() {
        if !COPIES.contains(&&*op::canonical_path(n.target(), false)) {
            break;
        }
        n = &graph[*n.args().first()?.as_leaf()?];
    }
    if n.op() != Opcode::GetAttr {
        return None;
    }
    let a = module.attributes.get(n.target())?;
    let value = a
        .value
        .as_ref()
        .filter(|v| v.dtype() == DType::I64 && v.numel() <= MOST_PARTS)?;
    let ints = |i: usize| Val::int(value.get(i).to_i64());
    match value.shape() {
        [] => Some(ints(0)),
        [n] => Some(Val::List((0..*n).map(ints).collect())),
        _ => None,
    }
}

/// The most parts that a constant may split a tensor into.
const MOST_PARTS: usize = 1 << 16;

/// Writes constant tensors that say how to split as the numbers they hold: the number of results depends on them.
fn constants_as_ints(module: &GraphModule, graph: &Graph, resolved: &mut Resolved) {
    let args = resolved.args.iter_mut().zip(&mut resolved.arg_types).skip(1);
    let kwargs = resolved.kwargs.iter_mut().zip(&mut resolved.kwarg_types);
    let kwargs = kwargs.filter(|((k, _), _)| k.contains("sections"));
    for (v, t) in args.chain(kwargs.map(|((_, v), (_, t))| (v, t))) {
        if let Val::Leaf(Operand::Node(n)) = v
            && let (Some(ints), Some(ty)) = (constant_ints(module, graph, *n), constant_ints(module, graph, *n))
        {
            (*v, *t) = (ints, ty);
        }
    }
}

/// The value and type of one argument of the op a module's call stands for.
fn source_value(
    s: &Source,
    inputs: &[(Val<Operand>, Type)],
    module: &GraphModule,
    attr: &dyn Fn(&str) -> Arc<str>,
) -> (Val<Operand>, Type) {
    match s {
        Source::Input(i) => inputs[*i].clone(),
        Source::Attr(name) => {
            let path = attr(name);
            let ty = attribute_type(module, &path);
            (Val::Leaf(Operand::Attr(path)), ty)
        }
        Source::Value(v) => (op::lift(v), op::lift(v)),
        Source::List(items) => {
            let (values, types) = items.iter().map(|s| source_value(s, inputs, module, attr)).unzip();
            (Val::List(values), Val::List(types))
        }
    }
}

/// What the file declares below a module.
struct Declared<'a> {
    module: &'a GraphModule,
    path: &'a str,
}

impl Below for Declared<'_> {
    fn has_attr(&self, path: &str) -> bool {
        self.module.attributes.contains_key(&*format!("{}.{path}", self.path))
    }

    fn part(&self, path: &str) -> Option<Constructed<'_>> {
        let decl = self.module.modules.get(&*format!("{}.{path}", self.path))?;
        Some(decl.constructed())
    }
}

/// A module's call as the op it stands for.
fn module_call(module: &GraphModule, graph: &Graph, node: NodeId, given: Resolved) -> Result<Resolved, Diagnostic> {
    let n = &graph[node];
    let path = n.target();
    let attr = |name: &str| -> Arc<str> { format!("{path}.{name}").into() };
    let names: Vec<Arc<str>> = given.kwargs.iter().map(|(k, _)| k.clone()).collect();
    let values = given.args.into_iter().chain(given.kwargs.into_iter().map(|(_, v)| v));
    let types = given
        .arg_types
        .into_iter()
        .chain(given.kwarg_types.into_iter().map(|(_, t)| t));
    let inputs: Vec<(Val<Operand>, Type)> = values.zip(types).collect();
    let below = Declared { module, path };
    let guards = || op::modules::is_guards(path).then(op::modules::no_guards).flatten();
    let call = match (guards(), module.modules.get(path)) {
        (Some(call), _) => call,
        (None, Some(decl)) => op::modules::expand(decl.constructed(), inputs.len(), &names, &below)
            .map_err(|e| report::module_error(graph, node, decl.span, e))?,
        (None, None) => return Err(report::unknown_module(graph, node)),
    };
    let value = |s: &Source| source_value(s, &inputs, module, &attr);
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
        .bind(&arg_types, &refs(&kwarg_types), true)
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

/// Moves the arguments called `names` (`out`, a tensor or several; `values indices`), if all are there, from the keyword
/// arguments to their own place: schemas do not have them.
fn take_out(resolved: &mut Resolved, names: &str) {
    let at = |resolved: &Resolved, name: &str| resolved.kwargs.iter().position(|(k, _)| &**k == name);
    let Some(found) = names.split(' ').map(|n| at(resolved, n)).collect::<Option<Vec<_>>>() else {
        return;
    };
    let mut out = vec![];
    for &i in &found {
        match (&resolved.kwargs[i].1, &resolved.kwarg_types[i].1) {
            (Val::None, _) if found.len() == 1 => {}
            (Val::Leaf(o), t @ (Val::Leaf(_) | Val::Unknown)) => out.push((o.clone(), t.clone())),
            (v, Val::List(types) | Val::Tuple(types)) => {
                for (v, t) in v.items().unwrap_or_default().iter().zip(types) {
                    let (Val::Leaf(o), Val::Leaf(_) | Val::Unknown) = (v, t) else {
                        return;
                    };
                    out.push((o.clone(), t.clone()));
                }
            }
            _ => return,
        }
    }
    resolved.out = out;
    let mut keep = (0..resolved.kwargs.len()).map(|i| !found.contains(&i));
    resolved.kwargs.retain(|_| keep.next() == Some(true));
    let mut keep = (0..resolved.kwarg_types.len()).map(|i| !found.contains(&i));
    resolved.kwarg_types.retain(|_| keep.next() == Some(true));
}
