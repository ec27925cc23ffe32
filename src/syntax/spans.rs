//! Visits every span of a tree, to move pieces that were parsed separately, and to compare trees without spans.

use super::ast::*;
use crate::source::Span;

type F<'f> = &'f mut dyn FnMut(&mut Span);

fn of_name(n: &mut Name, f: F) {
    f(&mut n.span);
}

/// Every span of a value.
pub(super) fn of_value(v: &mut Value, f: F) {
    f(&mut v.span);
    match &mut v.kind {
        ValueKind::List(x) | ValueKind::Tuple(x) => x.iter_mut().for_each(|x| of_value(x, f)),
        ValueKind::Dict(x) => x.iter_mut().for_each(|(k, x)| {
            of_value(k, f);
            of_value(x, f);
        }),
        ValueKind::Slice(x) | ValueKind::Range(x) => x.iter_mut().for_each(|x| of_value(x, f)),
        ValueKind::Unary(_, a) => of_value(a, f),
        ValueKind::Binary(_, a, b) => {
            of_value(a, f);
            of_value(b, f);
        }
        ValueKind::Call(n, args) => {
            of_name(n, f);
            of_args(args, f);
        }
        ValueKind::Bound(b) => {
            of_name(&mut b.name, f);
            b.ty.iter_mut().for_each(|t| of_type(t, f));
            b.value.iter_mut().for_each(|v| of_value(v, f));
        }
        _ => {}
    }
}

/// Every span of a type.
pub(super) fn of_type(t: &mut Type, f: F) {
    f(&mut t.span);
    match &mut t.kind {
        TypeKind::Tensor { dtype, shape } => {
            of_name(dtype, f);
            shape.iter_mut().flatten().for_each(|v| of_value(v, f));
        }
        TypeKind::Tuple(x) | TypeKind::List(x) => x.iter_mut().for_each(|t| of_type(t, f)),
        TypeKind::Dict(x) => x.iter_mut().for_each(|(k, t)| {
            of_value(k, f);
            of_type(t, f);
        }),
        TypeKind::Size(v) => of_value(v, f),
        TypeKind::Word(_) | TypeKind::Python(_) | TypeKind::OptionalTensor | TypeKind::Unknown => {}
    }
}

/// Every span of a call's arguments.
pub(super) fn of_args(a: &mut Args, f: F) {
    a.positional.iter_mut().for_each(|v| of_value(v, f));
    a.keyword.iter_mut().for_each(|(k, v)| {
        of_name(k, f);
        of_value(v, f);
    });
}

fn of_body(b: &mut Body, f: F) {
    f(&mut b.open);
    f(&mut b.close);
    b.stmts.iter_mut().for_each(|s| of_stmt(s, f));
}

fn of_stmt(s: &mut Stmt, f: F) {
    f(&mut s.span);
    s.name.iter_mut().for_each(|n| of_name(n, f));
    s.ty.iter_mut().for_each(|t| of_type(t, f));
    s.loc.iter_mut().for_each(|l| f(&mut l.span));
    if let Some(o) = &mut s.origin {
        o.frame.iter_mut().chain(&mut o.scope).for_each(|n| of_name(n, f));
    }
    match &mut s.op {
        Op::Placeholder { target, default } => {
            of_name(target, f);
            default.iter_mut().for_each(|v| of_value(v, f));
        }
        Op::GetAttr { target } => of_name(target, f),
        Op::Call { target, args, .. } => {
            of_name(target, f);
            of_args(args, f);
        }
        Op::Output { value } => of_value(value, f),
    }
}

/// Every span of a file.
pub(super) fn of_file(file: &mut File, f: F) {
    f(&mut file.span);
    file.comments.iter_mut().for_each(|c| f(&mut c.span));
    file.items.iter_mut().for_each(|i| of_item(i, f));
}

fn of_signature(s: &mut Signature, f: F) {
    s.specs.iter_mut().for_each(|s| {
        s.name.iter_mut().for_each(|n| of_name(n, f));
        of_name(&mut s.kind, f);
    });
    f(&mut s.span);
}

fn of_graph(g: &mut Graph, f: F) {
    g.name.iter_mut().for_each(|n| of_name(n, f));
    g.attribute.iter_mut().for_each(|n| of_name(n, f));
    g.updates.iter_mut().for_each(|u| match u {
        Update::Buffer(n) | Update::Input(n) => of_name(n, f),
    });
    let called = g
        .called
        .iter_mut()
        .flat_map(|c| c.args.iter_mut().chain(c.kwargs.iter_mut().flatten()));
    called.for_each(|n| of_name(n, f));
    of_body(&mut g.body, f);
    g.signature.iter_mut().for_each(|s| of_signature(s, f));
    f(&mut g.span);
}

fn of_rewrite(r: &mut Rewrite, f: F) {
    of_name(&mut r.name, f);
    r.params.iter_mut().for_each(|p| match p {
        RewriteParam::Node(n, ty) => {
            of_name(n, f);
            ty.iter_mut().for_each(|t| of_type(t, f));
        }
        RewriteParam::Rest(n) | RewriteParam::Literal(n) => of_name(n, f),
    });
    of_body(&mut r.pattern, f);
    of_body(&mut r.replacement, f);
    r.condition.iter_mut().for_each(|v| of_value(v, f));
    f(&mut r.span);
}

fn of_item(item: &mut Item, f: F) {
    match item {
        Item::Weights(x) => {
            of_name(&mut x.path, f);
            f(&mut x.span);
        }
        Item::Module(x) => {
            of_name(&mut x.name, f);
            of_name(&mut x.class, f);
            of_args(&mut x.args, f);
            f(&mut x.span);
        }
        Item::Const(x) => {
            of_name(&mut x.name, f);
            of_type(&mut x.ty, f);
            x.value.iter_mut().for_each(|v| of_value(v, f));
            f(&mut x.span);
        }
        Item::Tensor(x) => {
            of_name(&mut x.name, f);
            of_type(&mut x.ty, f);
            f(&mut x.span);
        }
        Item::Dim(x) => {
            of_name(&mut x.name, f);
            f(&mut x.span);
        }
        Item::Guard(x) => {
            of_value(&mut x.condition, f);
            f(&mut x.span);
        }
        Item::Pointwise(x) => {
            of_name(&mut x.schema, f);
            of_name(&mut x.expr, f);
            f(&mut x.span);
        }
        Item::Graph(x) => of_graph(x, f),
        Item::Signature(x) => of_signature(x, f),
        Item::Frame(x) => {
            of_name(&mut x.name, f);
            x.parent.iter_mut().for_each(|n| of_name(n, f));
            f(&mut x.place.span);
            f(&mut x.span);
        }
        Item::Scope(x) => {
            of_name(&mut x.name, f);
            x.parent.iter_mut().for_each(|n| of_name(n, f));
            of_name(&mut x.path, f);
            of_name(&mut x.class, f);
            f(&mut x.span);
        }
        Item::Rewrite(x) => of_rewrite(x, f),
    }
}
