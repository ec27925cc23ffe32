//! Visits every span of a tree, to move pieces that were parsed separately, and to compare trees without spans.

use super::ast::*;
use crate::source::Span;

type F<'f> = &'f mut dyn FnMut(&mut Span);

fn visit_name(n: &mut Name, f: F) {
    f(&mut n.span);
}

/// Every span of a value.
pub(super) fn visit_value(v: &mut Value, f: F) {
    f(&mut v.span);
    match &mut v.kind {
        ValueKind::List(x) | ValueKind::Tuple(x) => x.iter_mut().for_each(|x| visit_value(x, f)),
        ValueKind::Dict(x) => x.iter_mut().for_each(|(k, x)| {
            visit_value(k, f);
            visit_value(x, f);
        }),
        ValueKind::Slice(x) | ValueKind::Range(x) => x.iter_mut().for_each(|x| visit_value(x, f)),
        ValueKind::Unary(_, a) => visit_value(a, f),
        ValueKind::Binary(_, a, b) => {
            visit_value(a, f);
            visit_value(b, f);
        }
        ValueKind::Call(n, args) => {
            visit_name(n, f);
            visit_args(args, f);
        }
        ValueKind::Bound(b) => {
            visit_name(&mut b.name, f);
            b.ty.iter_mut().for_each(|t| visit_type(t, f));
            b.value.iter_mut().for_each(|v| visit_value(v, f));
        }
        _ => {}
    }
}

/// Every span of a type.
pub(super) fn visit_type(t: &mut Type, f: F) {
    f(&mut t.span);
    match &mut t.kind {
        TypeKind::Tensor { dtype, shape } => {
            visit_name(dtype, f);
            shape.iter_mut().flatten().for_each(|v| visit_value(v, f));
        }
        TypeKind::Tuple(x) | TypeKind::List(x) => x.iter_mut().for_each(|t| visit_type(t, f)),
        TypeKind::Dict(x) => x.iter_mut().for_each(|(k, t)| {
            visit_value(k, f);
            visit_type(t, f);
        }),
        TypeKind::Size(v) => visit_value(v, f),
        TypeKind::Word(_) | TypeKind::Python(_) | TypeKind::OptionalTensor | TypeKind::Unknown => {}
    }
}

/// Every span of a call's arguments.
pub(super) fn visit_args(a: &mut Args, f: F) {
    a.positional.iter_mut().for_each(|v| visit_value(v, f));
    a.keyword.iter_mut().for_each(|(k, v)| {
        visit_name(k, f);
        visit_value(v, f);
    });
}

fn visit_body(b: &mut Body, f: F) {
    f(&mut b.open);
    f(&mut b.close);
    b.stmts.iter_mut().for_each(|s| visit_stmt(s, f));
}

fn visit_stmt(s: &mut Stmt, f: F) {
    f(&mut s.span);
    s.name.iter_mut().for_each(|n| visit_name(n, f));
    s.ty.iter_mut().for_each(|t| visit_type(t, f));
    s.loc.iter_mut().for_each(|l| f(&mut l.span));
    if let Some(o) = &mut s.origin {
        o.frame.iter_mut().chain(&mut o.scope).for_each(|n| visit_name(n, f));
    }
    match &mut s.op {
        Op::Placeholder { target, default } => {
            visit_name(target, f);
            default.iter_mut().for_each(|v| visit_value(v, f));
        }
        Op::GetAttr { target } => visit_name(target, f),
        Op::Call { target, args, .. } => {
            visit_name(target, f);
            visit_args(args, f);
        }
        Op::Output { value } => visit_value(value, f),
    }
}

/// Every span of a file.
pub(super) fn visit_file(file: &mut File, f: F) {
    f(&mut file.span);
    file.comments.iter_mut().for_each(|c| f(&mut c.span));
    file.items.iter_mut().for_each(|i| visit_item(i, f));
}

fn visit_signature(s: &mut Signature, f: F) {
    s.specs.iter_mut().for_each(|s| {
        s.name.iter_mut().for_each(|n| visit_name(n, f));
        visit_name(&mut s.kind, f);
    });
    f(&mut s.span);
}

fn visit_graph(g: &mut Graph, f: F) {
    g.name.iter_mut().for_each(|n| visit_name(n, f));
    g.attribute.iter_mut().for_each(|n| visit_name(n, f));
    g.updates.iter_mut().for_each(|u| match u {
        Update::Buffer(n) | Update::Input(n) => visit_name(n, f),
    });
    let called = g
        .called
        .iter_mut()
        .flat_map(|c| c.args.iter_mut().chain(c.kwargs.iter_mut().flatten()));
    called.for_each(|n| visit_name(n, f));
    visit_body(&mut g.body, f);
    g.signature.iter_mut().for_each(|s| visit_signature(s, f));
    f(&mut g.span);
}

fn visit_rewrite(r: &mut Rewrite, f: F) {
    visit_name(&mut r.name, f);
    r.params.iter_mut().for_each(|p| match p {
        RewriteParam::Node(n, ty) => {
            visit_name(n, f);
            ty.iter_mut().for_each(|t| visit_type(t, f));
        }
        RewriteParam::Rest(n) | RewriteParam::Literal(n) => visit_name(n, f),
    });
    visit_body(&mut r.pattern, f);
    visit_body(&mut r.replacement, f);
    r.condition.iter_mut().for_each(|v| visit_value(v, f));
    f(&mut r.span);
}

fn visit_item(item: &mut Item, f: F) {
    match item {
        Item::Weights(x) => {
            visit_name(&mut x.path, f);
            f(&mut x.span);
        }
        Item::Module(x) => visit_module(x, f),
        Item::Const(x) => visit_const(x, f),
        Item::Tensor(x) => {
            visit_name(&mut x.name, f);
            visit_type(&mut x.ty, f);
            f(&mut x.span);
        }
        Item::Dim(x) => {
            visit_name(&mut x.name, f);
            f(&mut x.span);
        }
        Item::Guard(x) => {
            visit_value(&mut x.condition, f);
            f(&mut x.span);
        }
        Item::Pointwise(x) => {
            visit_name(&mut x.schema, f);
            visit_name(&mut x.expr, f);
            f(&mut x.span);
        }
        Item::Graph(x) => visit_graph(x, f),
        Item::Signature(x) => visit_signature(x, f),
        Item::Frame(x) => visit_frame(x, f),
        Item::Scope(x) => visit_scope(x, f),
        Item::Rewrite(x) => visit_rewrite(x, f),
    }
}

fn visit_module(x: &mut ModuleDecl, f: F) {
    visit_name(&mut x.name, f);
    visit_name(&mut x.class, f);
    visit_args(&mut x.args, f);
    f(&mut x.span);
}

fn visit_const(x: &mut ConstDecl, f: F) {
    visit_name(&mut x.name, f);
    visit_type(&mut x.ty, f);
    x.value.iter_mut().for_each(|v| visit_value(v, f));
    f(&mut x.span);
}

fn visit_frame(x: &mut FrameDecl, f: F) {
    visit_name(&mut x.name, f);
    x.parent.iter_mut().for_each(|n| visit_name(n, f));
    f(&mut x.place.span);
    f(&mut x.span);
}

fn visit_scope(x: &mut ScopeDecl, f: F) {
    visit_name(&mut x.name, f);
    x.parent.iter_mut().for_each(|n| visit_name(n, f));
    visit_name(&mut x.path, f);
    visit_name(&mut x.class, f);
    f(&mut x.span);
}
