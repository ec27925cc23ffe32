//! Prints graphs as FXIR. `parse` and [`build`](crate::graph::build) restore the graphs from the text.

use super::origins::{Origins, to_ast_loc};
use super::{NOWHERE, constants, unplaced_name};
use crate::graph::{Arg, Attribute, AttributeKind, Graph, GraphModule, ModuleDecl, Mutation, NodeId, Opcode, lift};
use crate::syntax::ast::{self, Item, Op, Stmt, TypeKind, Update, ValueKind};
use crate::syntax::format;
use crate::syntax::resolve::is_torch_symbol;
use crate::types::{Dim, TensorType, Type, Val};
use std::collections::BTreeSet;
use std::sync::Arc;

pub use super::constants::INLINE_ELEMENTS;

/// The canonical FXIR text of a module: its declarations, then its graphs.
pub fn print(module: &GraphModule) -> String {
    let mut file = ast::File {
        items: module_items(module),
        ..ast::File::default()
    };
    let mut origins = Origins::default();
    for (name, g) in &module.graphs {
        file.items.push(graph_item(name, g, Some(&mut origins)));
    }
    file.items.extend(exported_item(module));
    file.items.extend(origins.into_items());
    format(&file, "")
}

/// The FXIR text of one graph. Of the nodes' origins, it has only the lines.
pub fn print_graph(name: &str, graph: &Graph) -> String {
    let file = ast::File {
        items: vec![graph_item(name, graph, None)],
        ..ast::File::default()
    };
    format(&file, "")
}

/// The FXIR text of one node's statement.
pub fn print_node(graph: &Graph, n: NodeId) -> String {
    node_statement(graph, n, None).to_string()
}

/// Whether the attribute has a value that [`print()`] does not write in the text, so that a weights file must store it.
pub fn is_stored(attribute: &Attribute) -> bool {
    let is_inline = |t| attribute.kind == AttributeKind::Constant && constants::write_tensor(t).is_some();
    attribute.value.as_ref().is_some_and(|t| !is_inline(t))
}

fn module_items(m: &GraphModule) -> Vec<Item> {
    let span = NOWHERE;
    let mut items = vec![];
    if let Some((path, _)) = &m.weights {
        items.push(Item::Weights(ast::Weights {
            path: unplaced_name(path),
            span,
        }));
    }
    for (n, d) in &m.dims {
        items.push(Item::Dim(ast::DimDecl {
            name: unplaced_name(n),
            min: d.min,
            max: d.max,
            span,
        }));
    }
    for g in &m.guards {
        let condition = unplaced_value(ValueKind::Name(g.to_string().into()));
        items.push(Item::Guard(ast::GuardDecl { condition, span }));
    }
    // A size that occurs only in arguments has to be declared; otherwise it would not be recognised as a size.
    for n in sizes_of_arguments(m) {
        if !m.dims.contains_key(&*n) && !is_torch_symbol(&n) {
            let (name, min, max) = (unplaced_name(&n), 0, None);
            items.push(Item::Dim(ast::DimDecl { name, min, max, span }));
        }
    }
    for decl in m.ops.values() {
        let (schema, expr) = (unplaced_name(&decl.schema), unplaced_name(&decl.expr));
        items.push(Item::Pointwise(ast::PointwiseDecl { schema, expr, span }));
    }
    items.extend(m.modules.iter().map(|(path, decl)| module_item(path, decl)));
    items.extend(m.attributes.iter().filter_map(|(n, a)| attribute_item(n, a)));
    items
}

fn module_item(path: &str, decl: &ModuleDecl) -> Item {
    let keyword = decl.kwargs.iter().map(|(k, v)| (unplaced_name(k), literal_value(v)));
    let args = ast::Args {
        positional: decl.args.iter().map(literal_value).collect(),
        keyword: keyword.collect(),
    };
    Item::Module(ast::ModuleDecl {
        name: unplaced_name(path),
        class: unplaced_name(&decl.class),
        args,
        span: NOWHERE,
    })
}

/// Calls `leaf` for every leaf and `f` for every size of a value.
fn visit_dims<T>(v: &Val<T>, leaf: &mut dyn FnMut(&T), f: &mut dyn FnMut(&Dim)) {
    match v {
        Val::Int(d) => f(d),
        Val::Leaf(t) => leaf(t),
        Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| visit_dims(x, leaf, f)),
        Val::Dict(v) => v.iter().for_each(|(_, x)| visit_dims(x, leaf, f)),
        Val::Slice(v) | Val::Range(v) => v.iter().for_each(|x| visit_dims(x, leaf, f)),
        _ => {}
    }
}

/// The names of sizes that occur in arguments but in no type.
fn sizes_of_arguments(m: &GraphModule) -> BTreeSet<String> {
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
        ty.iter().for_each(|t| visit_dims(t, &mut tensor, &mut |_| {}));
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
                .for_each(|v| visit_dims(v, &mut |_| {}, &mut size));
        }
    }
    &used - &typed
}

/// The declaration of an attribute; `None` if neither its type nor its value is known.
fn attribute_item(n: &str, a: &Attribute) -> Option<Item> {
    let ty = a.ty.clone().or_else(|| a.value.as_ref().map(|t| Val::Leaf(t.ty())))?;
    let (name, ty, span) = (unplaced_name(n), type_of(&ty), NOWHERE);
    Some(match a.kind {
        AttributeKind::Constant => Item::Const(ast::ConstDecl {
            name,
            ty,
            value: a.value.as_ref().and_then(constants::write_tensor),
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

/// The signature of the exported program, if the entry graph still matches it.
fn exported_item(m: &GraphModule) -> Option<Item> {
    lift(&mut m.clone()).ok()?;
    let s = m.exported.as_ref()?;
    let spec = |n: &str, kind: &Arc<str>, target: &Option<Arc<str>>, persistent| ast::Spec {
        name: (!n.is_empty()).then(|| unplaced_name(n)),
        kind: unplaced_name(kind),
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
        Mutation::Buffer(b) => Update::Buffer(unplaced_name(b)),
        Mutation::Input(i) => Update::Input(unplaced_name(i)),
    });
    Item::Graph(ast::Graph {
        name: Some(unplaced_name(n)),
        attribute: g.attribute.as_deref().map(unplaced_name),
        updates: updates.collect(),
        called: g.called.as_ref().filter(|c| c.matches_inputs(g)).map(|c| {
            let names = |list: &[String]| list.iter().map(|n| unplaced_name(n)).collect();
            ast::Called {
                args: names(&c.args),
                kwargs: c.kwargs.as_deref().map(names),
            }
        }),
        body: ast::Body {
            stmts: g.iter().map(|n| node_statement(g, n, origins.as_deref_mut())).collect(),
            ..ast::Body::default()
        },
        dialect: ast::Dialect::Fxir,
        signature: None,
        span: NOWHERE,
    })
}

fn node_operation(g: &Graph, n: NodeId) -> Op {
    let node = &g[n];
    let value = |v: &Arg| to_ast_value(v, &|n| ValueKind::Node(g[*n].name().into()));
    let target = unplaced_name(node.target());
    let call = |kind| Op::Call {
        kind,
        target: target.clone(),
        args: ast::Args {
            positional: node.args().iter().map(value).collect(),
            keyword: node
                .kwargs()
                .iter()
                .map(|(k, v)| (unplaced_name(k), value(v)))
                .collect(),
        },
    };
    match node.op() {
        Opcode::Placeholder => Op::Placeholder {
            target,
            default: node.args().first().map(value),
        },
        Opcode::GetAttr => Op::GetAttr { target },
        Opcode::CallFunction => call(ast::CallKind::Function),
        Opcode::CallMethod => call(ast::CallKind::Method),
        Opcode::CallModule => call(ast::CallKind::Module),
        Opcode::Output => Op::Output {
            value: node.args().first().map_or(unplaced_value(ValueKind::None), value),
        },
    }
}

fn node_statement(g: &Graph, n: NodeId, origins: Option<&mut Origins>) -> Stmt {
    let node = &g[n];
    let ty = statement_type(g, n);
    // An output needs no name if parsing would give it the same one.
    let anonymous = node.op() == Opcode::Output && node.name() == "output" && ty.is_none();
    Stmt {
        name: (!anonymous).then(|| unplaced_name(node.name())),
        ty,
        op: node_operation(g, n),
        loc: node.meta.loc.as_ref().map(to_ast_loc),
        origin: origins.and_then(|o| o.origin_of(&node.meta)),
        torch: None,
        span: NOWHERE,
    }
}

/// The type of a node if it is known, else its Python annotation.
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

fn unplaced_value(kind: ValueKind) -> ast::Value {
    ast::Value::new(kind, NOWHERE)
}

fn literal_value(v: &crate::op::Literal) -> ast::Value {
    to_ast_value(v, &|n| match *n {})
}

/// Converts a value of a graph to its form in the syntax tree. Sizes are written in their normal form.
fn to_ast_value<T>(v: &Val<T>, leaf: &dyn Fn(&T) -> ValueKind) -> ast::Value {
    let convert = |x: &Val<T>| to_ast_value(x, leaf);
    let seq = |v: &[Val<T>]| v.iter().map(convert).collect::<Vec<_>>();
    let three = |v: &[Val<T>; 3]| Box::new([convert(&v[0]), convert(&v[1]), convert(&v[2])]);
    unplaced_value(match v {
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
        Val::Dict(v) => ValueKind::Dict(v.iter().map(|(k, x)| (convert(k), convert(x))).collect()),
        Val::Slice(v) => ValueKind::Slice(three(v)),
        Val::Range(v) => ValueKind::Range(three(v)),
        Val::Opaque(s) => ValueKind::Opaque(s.clone()),
        // Occurs in types, and for values with a reported error.
        Val::Any(_) | Val::Unknown => ValueKind::Unknown,
    })
}

/// Converts an inferred type to its form in the syntax tree, using its text.
fn type_of(ty: &Type) -> ast::Type {
    let kind = match ty {
        Val::Tuple(v) => TypeKind::Tuple(v.iter().map(type_of).collect()),
        Val::Dict(v) => {
            let key = |k: &Type| match k {
                Val::Str(s) => unplaced_value(ValueKind::Str(s.clone())),
                Val::Int(d) => unplaced_value(ValueKind::Int(d.as_const().unwrap_or_default())),
                k => unplaced_value(ValueKind::Str(k.to_string().into())),
            };
            TypeKind::Dict(v.iter().map(|(k, t)| (key(k), type_of(t))).collect())
        }
        ty => TypeKind::Word(Arc::from(ty.to_string())),
    };
    ast::Type { kind, span: NOWHERE }
}
