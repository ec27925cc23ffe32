//! Graphs as FXIR: `parse` and [`build`](crate::graph::build) of the text give the graphs back.

use super::origins::{Origins, place};
use super::{NOWHERE, constants, name};
use crate::graph::{Arg, Attribute, AttributeKind, Graph, GraphModule, Mutation, NodeId, Opcode, lift};
use crate::syntax::ast::{self, Item, Op, Stmt, TypeKind, Update, ValueKind};
use crate::syntax::format;
use crate::syntax::resolve::is_torch_symbol;
use crate::types::{Dim, TensorType, Type, Val};
use std::collections::BTreeSet;
use std::sync::Arc;

pub use super::constants::INLINE_ELEMENTS;

/// The canonical FXIR text of a module: what it refers to, then its graphs.
pub fn print(module: &GraphModule) -> String {
    let mut file = ast::File {
        items: declarations(module),
        ..ast::File::default()
    };
    let mut origins = Origins::default();
    for (name, g) in &module.graphs {
        file.items.push(graph_item(name, g, Some(&mut origins)));
    }
    file.items.extend(exported(module));
    file.items.extend(origins.items());
    format(&file, "")
}

/// The FXIR text of one graph, with the lines that its nodes came from and no more of where that was.
pub fn print_graph(name: &str, graph: &Graph) -> String {
    let file = ast::File {
        items: vec![graph_item(name, graph, None)],
        ..ast::File::default()
    };
    format(&file, "")
}

/// The FXIR text of one node's statement.
pub fn print_node(graph: &Graph, n: NodeId) -> String {
    statement(graph, n, None).to_string()
}

/// Whether the attribute has a value that [`print()`] does not write out: a weights file has to hold it.
pub fn is_stored(attribute: &Attribute) -> bool {
    let is_inline = |t| attribute.kind == AttributeKind::Constant && constants::write(t).is_some();
    attribute.value.as_ref().is_some_and(|t| !is_inline(t))
}

fn declarations(m: &GraphModule) -> Vec<Item> {
    let span = NOWHERE;
    let mut items = vec![];
    if let Some((path, _)) = &m.weights {
        items.push(Item::Weights(ast::Weights { path: name(path), span }));
    }
    for (n, d) in &m.dims {
        items.push(Item::Dim(ast::DimDecl {
            name: name(n),
            min: d.min,
            max: d.max,
            span,
        }));
    }
    for g in &m.guards {
        let condition = at(ValueKind::Name(g.to_string().into()));
        items.push(Item::Guard(ast::GuardDecl { condition, span }));
    }
    // A size that only arguments name would not be known for one.
    for n in sizes_of_arguments(m) {
        if !m.dims.contains_key(&*n) && !is_torch_symbol(&n) {
            let (name, min, max) = (name(&n), 0, None);
            items.push(Item::Dim(ast::DimDecl { name, min, max, span }));
        }
    }
    for decl in m.ops.values() {
        let (schema, expr) = (name(&decl.schema), name(&decl.expr));
        items.push(Item::Pointwise(ast::PointwiseDecl { schema, expr, span }));
    }
    for (n, decl) in &m.modules {
        let keyword = decl.kwargs.iter().map(|(k, v)| (name(k), literal(v)));
        let args = ast::Args {
            positional: decl.args.iter().map(literal).collect(),
            keyword: keyword.collect(),
        };
        items.push(Item::Module(ast::ModuleDecl {
            name: name(n),
            class: name(&decl.class),
            args,
            span,
        }));
    }
    items.extend(m.attributes.iter().filter_map(|(n, a)| attribute(n, a)));
    items
}

/// The names of the sizes in arguments that stand in no type.
fn sizes_of_arguments(m: &GraphModule) -> BTreeSet<String> {
    fn visit<T>(v: &Val<T>, leaf: &mut dyn FnMut(&T), f: &mut dyn FnMut(&Dim)) {
        match v {
            Val::Int(d) => f(d),
            Val::Leaf(t) => leaf(t),
            Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| visit(x, leaf, f)),
            Val::Dict(v) => v.iter().for_each(|(_, x)| visit(x, leaf, f)),
            Val::Slice(v) | Val::Range(v) => v.iter().for_each(|x| visit(x, leaf, f)),
            _ => {}
        }
    }
    let mut used = BTreeSet::new();
    let mut typed = BTreeSet::new();
    let mut note = |ty: &Option<Type>| {
        let mut tensor = |t: &TensorType| {
            let sizes = t.shape.iter().flatten();
            sizes.for_each(|d| {
                d.visit_vars(&mut |n| {
                    typed.insert(n.to_string());
                })
            });
        };
        ty.iter().for_each(|t| visit(t, &mut tensor, &mut |_| {}));
    };
    m.attributes.values().for_each(|a| note(&a.ty));
    for g in m.graphs.values() {
        for n in g.iter() {
            note(&g[n].meta.ty);
            let kwargs = g[n].kwargs().iter().map(|(_, v)| v);
            let mut size = |d: &Dim| {
                d.visit_vars(&mut |n| {
                    used.insert(n.to_string());
                })
            };
            g[n].args()
                .iter()
                .chain(kwargs)
                .for_each(|v| visit(v, &mut |_| {}, &mut size));
        }
    }
    &used - &typed
}

/// The declaration of an attribute; `None` if nothing is known of it.
fn attribute(n: &str, a: &Attribute) -> Option<Item> {
    let ty = a.ty.clone().or_else(|| a.value.as_ref().map(|t| Val::Leaf(t.ty())))?;
    let (name, ty, span) = (name(n), type_of(&ty), NOWHERE);
    Some(match a.kind {
        AttributeKind::Constant => Item::Const(ast::ConstDecl {
            name,
            ty,
            value: a.value.as_ref().and_then(constants::write),
            span,
        }),
        kind => Item::Tensor(ast::TensorDecl {
            buffer: kind == AttributeKind::Buffer,
            name,
            ty,
            span,
        }),
    })
}

/// What the entry graph was exported as, if it is still the program that was exported.
fn exported(m: &GraphModule) -> Option<Item> {
    lift(&mut m.clone()).ok()?;
    let s = m.exported.as_ref()?;
    let spec = |n: &str, kind: &Arc<str>, target: &Option<Arc<str>>, persistent| ast::Spec {
        name: (!n.is_empty()).then(|| name(n)),
        kind: name(kind),
        target: target.clone(),
        persistent,
    };
    let inputs = s.inputs.iter().map(|i| spec(&i.name, &i.kind, &i.target, i.persistent));
    let outputs = s.outputs.iter().map(|o| spec(&o.name, &o.kind, &o.target, None));
    Some(Item::Signature(ast::Signature {
        specs: inputs.chain(outputs).collect(),
        ranges: s.ranges.clone(),
        span: NOWHERE,
    }))
}

fn graph_item(n: &str, g: &Graph, mut origins: Option<&mut Origins>) -> Item {
    let updates = g.mutations.iter().map(|m| match m {
        Mutation::Buffer(b) => Update::Buffer(name(b)),
        Mutation::Input(i) => Update::Input(name(i)),
    });
    Item::Graph(ast::Graph {
        name: Some(name(n)),
        attribute: g.attribute.as_deref().map(name),
        updates: updates.collect(),
        called: g.called.as_ref().filter(|c| c.fits(g)).map(|c| {
            let names = |list: &[String]| list.iter().map(|n| name(n)).collect();
            ast::Called {
                args: names(&c.args),
                kwargs: c.kwargs.as_deref().map(names),
            }
        }),
        body: ast::Body {
            stmts: g.iter().map(|n| statement(g, n, origins.as_deref_mut())).collect(),
            ..ast::Body::default()
        },
        dialect: ast::Dialect::Fxir,
        signature: None,
        span: NOWHERE,
    })
}

fn statement(g: &Graph, n: NodeId, origins: Option<&mut Origins>) -> Stmt {
    let node = &g[n];
    let value = |v: &Arg| value(v, &|n| ValueKind::Node(g[*n].name().into()));
    let target = name(node.target());
    let call = |kind| Op::Call {
        kind,
        target: target.clone(),
        args: ast::Args {
            positional: node.args().iter().map(value).collect(),
            keyword: node.kwargs().iter().map(|(k, v)| (name(k), value(v))).collect(),
        },
    };
    let op = match node.op() {
        Opcode::Placeholder => Op::Placeholder {
            target,
            default: node.args().first().map(value),
        },
        Opcode::GetAttr => Op::GetAttr { target },
        Opcode::CallFunction => call(ast::CallKind::Function),
        Opcode::CallMethod => call(ast::CallKind::Method),
        Opcode::CallModule => call(ast::CallKind::Module),
        Opcode::Output => Op::Output {
            value: node.args().first().map_or(at(ValueKind::None), value),
        },
    };
    let ty = statement_type(g, n);
    // An output needs no name where reading the text would give it the same.
    let anonymous = node.op() == Opcode::Output && node.name() == "output" && ty.is_none();
    Stmt {
        name: (!anonymous).then(|| name(node.name())),
        ty,
        op,
        loc: node.meta.loc.as_ref().map(place),
        origin: origins.and_then(|o| o.of(&node.meta)),
        torch: None,
        span: NOWHERE,
    }
}

/// The type that is known, or else the Python annotation.
fn statement_type(g: &Graph, n: NodeId) -> Option<ast::Type> {
    match (&g[n].meta.ty, &g.text(n).annotation) {
        (Some(ty), _) if *ty != Val::Unknown => Some(type_of(ty)),
        (_, Some(a)) => Some(ast::Type {
            kind: TypeKind::python(a.clone()),
            span: NOWHERE,
        }),
        _ => None,
    }
}

fn at(kind: ValueKind) -> ast::Value {
    ast::Value::new(kind, NOWHERE)
}

fn literal(v: &crate::op::Literal) -> ast::Value {
    value(v, &|n| match *n {})
}

/// A value of a graph as one of the tree. Sizes are written by their own normal form.
fn value<T>(v: &Val<T>, leaf: &dyn Fn(&T) -> ValueKind) -> ast::Value {
    let one = |x: &Val<T>| value(x, leaf);
    let seq = |v: &[Val<T>]| v.iter().map(one).collect::<Vec<_>>();
    let three = |v: &[Val<T>; 3]| Box::new([one(&v[0]), one(&v[1]), one(&v[2])]);
    at(match v {
        Val::Leaf(t) => leaf(t),
        Val::None => ValueKind::None,
        Val::Bool(b) => ValueKind::Bool(*b),
        Val::Int(d) => match d.as_const() {
            Some(i) => ValueKind::Int(i),
            None => ValueKind::Name(d.to_string().into()),
        },
        Val::Float(x) => ValueKind::Float(*x),
        Val::Complex(re, im) => ValueKind::Complex(*re, *im),
        Val::Str(s) => ValueKind::Str(s.clone()),
        Val::DType(d) => ValueKind::Name(d.short_name().into()),
        Val::Device(s) => ValueKind::Device(s.clone()),
        Val::TorchName(n) => ValueKind::Name(format!("torch.{n}").into()),
        Val::Ellipsis => ValueKind::Ellipsis,
        Val::Graph(n) => ValueKind::Graph(n.clone()),
        Val::List(v) => ValueKind::List(seq(v)),
        Val::Tuple(v) => ValueKind::Tuple(seq(v)),
        Val::Dict(v) => ValueKind::Dict(v.iter().map(|(k, x)| (one(k), one(x))).collect()),
        Val::Slice(v) => ValueKind::Slice(three(v)),
        Val::Range(v) => ValueKind::Range(three(v)),
        Val::Opaque(s) => ValueKind::Opaque(s.clone()),
        // Of types, and of values that an error was reported for.
        Val::Any(_) | Val::Unknown => ValueKind::Unknown,
    })
}

/// A type of inference as one of the tree, by its own text.
fn type_of(ty: &Type) -> ast::Type {
    let kind = match ty {
        Val::Tuple(v) => TypeKind::Tuple(v.iter().map(type_of).collect()),
        Val::Dict(v) => {
            let key = |k: &Type| match k {
                Val::Str(s) => at(ValueKind::Str(s.clone())),
                Val::Int(d) => at(ValueKind::Int(d.as_const().unwrap_or_default())),
                k => at(ValueKind::Str(k.to_string().into())),
            };
            TypeKind::Dict(v.iter().map(|(k, t)| (key(k), type_of(t))).collect())
        }
        ty => TypeKind::Word(Arc::from(ty.to_string())),
    };
    ast::Type { kind, span: NOWHERE }
}
