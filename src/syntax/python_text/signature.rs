//! The signature and the ranges that `print(exported_program)` prints after the class.

use super::text_of;
use super::tree::{Arg, Expr, ExprKind, Spec};
use crate::syntax::ast;
use std::sync::Arc;

/// Converts the lines of a signature.
pub(super) fn lower_specs(list: Vec<Spec>) -> Vec<ast::Spec> {
    let name = |i: super::tree::Ident| ast::Name::new(i.text, i.span);
    let convert_spec = |s: Spec| {
        let field = |key: &str| s.fields.iter().find(|(k, _)| *k.text == *key).map(|(_, v)| v);
        ast::Spec {
            target: field("target").and_then(text_of),
            persistent: field("persistent").and_then(|v| match v.kind {
                ExprKind::Bool(b) => Some(b),
                _ => None,
            }),
            name: s.name.map(name),
            kind: name(s.kind),
        }
    };
    list.into_iter().map(convert_spec).collect()
}

/// The ranges of sizes, as text: `s40` and `VR[2, int_oo]`.
pub(super) fn read_ranges(text: &str, e: Option<&Expr>) -> Vec<(Arc<str>, Arc<str>)> {
    let Some(ExprKind::Dict(entries)) = e.map(|e| &e.kind) else {
        return vec![];
    };
    let source = |e: &Expr| Arc::from(&text[e.span.range()]);
    entries.iter().map(|(k, v)| (source(k), source(v))).collect()
}

/// The lines of a signature that torch before 2.6 prints as
/// `ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 1>, arg=TensorArgument(name='p_w'),
/// target='w', …)], …)`.
pub(crate) fn specs_of(value: &Expr) -> Vec<Spec> {
    let mut out = vec![];
    for list in ["input_specs", "output_specs"] {
        let Some(ExprKind::List(items)) = keyword_arg(value, list).map(|e| &e.kind) else {
            continue;
        };
        out.extend(items.iter().filter_map(spec_of));
    }
    out
}

fn spec_of(item: &Expr) -> Option<Spec> {
    let ident = |text: Arc<str>, e: &Expr| super::tree::Ident { text, span: e.span };
    let kind = keyword_arg(item, "kind")?;
    let ExprKind::Object(text) = &kind.kind else {
        return None;
    };
    let word = text.split('.').nth(1)?.split(':').next()?;
    let arg = keyword_arg(item, "arg")?;
    let name = keyword_arg(arg, "name").and_then(|n| Some(ident(text_of(n)?, n)));
    let target = keyword_arg(item, "target").and_then(text_of).map(|t| {
        let key = ident("target".into(), item);
        (key, super::tree::string(t, item.span))
    });
    Some(Spec {
        name,
        kind: ident(word.into(), kind),
        fields: target.into_iter().collect(),
    })
}

/// The keyword argument `name` of a call.
fn keyword_arg<'a>(e: &'a Expr, name: &str) -> Option<&'a Expr> {
    let ExprKind::Call(_, args) = &e.kind else { return None };
    args.iter().find_map(|a| match a {
        Arg::Keyword(k, v) if *k.text == *name => Some(v),
        _ => None,
    })
}
