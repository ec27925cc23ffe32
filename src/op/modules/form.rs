//! Parses the text of module forms.

use super::sizes::Size;
use crate::op::schema::{Literal, parse_literal};

/// A parameter that all classes have here, the mode that `module.train()` sets in torch.
pub(crate) const TRAINING: &str = "training";

/// A parsed form.
#[derive(Debug)]
pub(super) struct ParsedForm {
    pub(super) name: &'static str,
    pub(super) params: Vec<ConstructorParam>,
    pub(super) op: &'static str,
    pub(super) args: Vec<(Option<&'static str>, ArgExpr)>,
    pub(super) when: Option<(&'static str, Literal)>,
}

#[derive(Debug)]
pub(super) struct ConstructorParam {
    pub(super) name: &'static str,
    pub(super) default: Option<Literal>,
    pub(super) keyword_only: bool,
}

#[derive(Debug, Clone)]
pub(super) enum ArgExpr {
    Input {
        index: usize,
        name: Option<&'static str>,
        optional: bool,
    },
    Attr(ModuleAttr),
    RnnWeights,
    /// Attributes of each of a number of parts.
    Each {
        count: &'static str,
        attributes: PartAttributes,
    },
    /// A constructor argument of a part of the module that is declared separately; `None` for a missing optional part.
    Part {
        path: &'static str,
        class: &'static str,
        param: &'static str,
        optional: bool,
    },
    Param(&'static str),
    /// A constructor argument that is a list, or a single item of one.
    ListOf(&'static str),
    /// Whether conditions hold.
    Holds(Vec<Condition>),
    Value(Literal),
}

/// An attribute of the module.
#[derive(Debug, Clone)]
pub(super) struct ModuleAttr {
    pub(super) name: &'static str,
    pub(super) need: Need,
    /// Its sizes, if the form declares them; for some attributes only a weights file knows them. An empty list means a
    /// counter.
    pub(super) sizes: Option<Vec<Size>>,
}

/// The attributes of a part; `*` in a path stands for the part's number.
#[derive(Debug, Clone)]
pub(super) enum PartAttributes {
    /// Attributes by path. The bool says whether the attribute is optional and `None` if missing.
    Paths(Vec<(&'static str, bool)>),
    /// The attributes in the form of the part's class, below this path.
    OfClass { path: &'static str, class: &'static str },
}

#[derive(Debug, Clone)]
pub(super) enum Need {
    Always,
    /// Present if the weights contain it. If the weights are unknown, present if these conditions hold.
    IfThere(Option<Vec<Condition>>),
    When(Vec<Condition>),
    /// Present if these conditions hold, unless the weights are known and do not contain it.
    Where(Vec<Condition>),
}

/// `bias`, or `not kdim`: whether a constructor parameter is truthy.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) param: &'static str,
    pub(super) holds: bool,
}

/// Parses the constructor's parameters. Every module also has a training mode.
fn parse_params(text: &'static str) -> Result<Vec<ConstructorParam>, String> {
    let mut params = vec![];
    let mut keyword_only = false;
    for p in split_top_level(text) {
        if p == "*" {
            keyword_only = true;
            continue;
        }
        let (name, default) = match p.split_once('=') {
            Some((n, d)) => (n.trim(), Some(parse_literal(d.trim())?)),
            None => (p, None),
        };
        params.push(ConstructorParam {
            name,
            default,
            keyword_only,
        });
    }
    params.push(ConstructorParam {
        name: TRAINING,
        default: Some(Literal::Bool(false)),
        keyword_only: true,
    });
    Ok(params)
}

/// Parses a form.
pub(super) fn parse(text: &'static str) -> Result<ParsedForm, String> {
    let (left, right) = text.split_once(") = ").ok_or("expected `Class(…) = op(…)`")?;
    let (name, params) = left.split_once('(').ok_or("expected a class")?;
    let (right, when) = match right.split_once(") when ") {
        Some((r, w)) => (r, Some(w.split_once('=').ok_or("expected `when param=value`")?)),
        None => (right.strip_suffix(')').ok_or("expected `)` at the end")?, None),
    };
    let (op, args) = right.split_once('(').ok_or("expected an op")?;
    let mut class = ParsedForm {
        name: name.trim(),
        params: parse_params(params)?,
        op: op.trim(),
        args: vec![],
        when: when.map(|(p, v)| parse_literal(v).map(|v| (p, v))).transpose()?,
    };
    for a in split_top_level(args) {
        // A string literal may hold a `=`, but no form has one.
        let (name, expr) = match a.split_once('=') {
            Some((n, e)) => (Some(n.trim()), e.trim()),
            None => (None, a),
        };
        let expr = parse_expr(&class, expr)?;
        class.args.push((name, expr));
    }
    Ok(class)
}

/// Splits at top-level commas.
fn split_top_level(text: &'static str) -> Vec<&'static str> {
    let (mut depth, mut start, mut out) = (0, 0, vec![]);
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out.retain(|p| !p.is_empty());
    out
}

/// The attributes `text` of `count` parts.
fn parse_each(count: &'static str, text: &'static str) -> ArgExpr {
    let attributes = match text.split_once(" is ") {
        Some((path, class)) => PartAttributes::OfClass { path, class },
        None => PartAttributes::Paths(text.split(' ').map(strip_optional).collect()),
    };
    ArgExpr::Each { count, attributes }
}

/// An input by its number and optional name: `1`, `1:name`, `1?`.
fn parse_input(text: &'static str) -> Option<ArgExpr> {
    let (text, optional) = strip_optional(text);
    let (number, name) = match text.split_once(':') {
        Some((number, name)) => (number, Some(name)),
        None => (text, None),
    };
    let index = number.parse().ok()?;
    Some(ArgExpr::Input { index, name, optional })
}

/// A constructor argument of a part: the source is `Class.param`.
fn parse_part(path: &'static str, source: &'static str) -> Result<ArgExpr, String> {
    let (class, param) = source.split_once('.').ok_or("expected `Class.param`")?;
    let (param, optional) = strip_optional(param);
    Ok(ArgExpr::Part {
        path,
        class,
        param,
        optional,
    })
}

fn parse_expr(class: &ParsedForm, e: &'static str) -> Result<ArgExpr, String> {
    let known = |p: &str| class.params.iter().any(|q| q.name == p);
    if e == "input" {
        return Ok(ArgExpr::Input {
            index: 0,
            name: Some("input"),
            optional: false,
        });
    }
    if e == "@rnn_weights" {
        return Ok(ArgExpr::RnnWeights);
    }
    if let Some((count, attributes)) = e.strip_prefix("@each ").and_then(|e| e.split_once(" of ")) {
        return match known(count) {
            true => Ok(parse_each(count, attributes)),
            false => Err(format!("unknown constructor parameter {count:?}")),
        };
    }
    if let Some((path, source)) = e.strip_prefix('%').and_then(|e| e.split_once(" is ")) {
        return parse_part(path, source);
    }
    if let Some(n) = e.strip_prefix('$') {
        return parse_input(n).ok_or_else(|| format!("bad input {e:?}"));
    }
    if let Some(a) = e.strip_prefix('@') {
        return parse_attribute(a, known);
    }
    if let Some(c) = e.strip_prefix('?') {
        return parse_conditions(c, &known).map(ArgExpr::Holds);
    }
    if known(e) {
        return Ok(ArgExpr::Param(e));
    }
    match bracketed(e).filter(|p| known(p)) {
        Some(p) => Ok(ArgExpr::ListOf(p)),
        None => parse_literal(e).map(ArgExpr::Value),
    }
}

/// The text in a pair of square brackets.
fn bracketed(e: &'static str) -> Option<&'static str> {
    e.strip_prefix('[')?.strip_suffix(']')
}

/// Splits off the `?` that marks an optional name.
fn strip_optional(name: &'static str) -> (&'static str, bool) {
    name.strip_suffix('?').map_or((name, false), |n| (n, true))
}

/// `weight`, `weight?`, `bias[out_features] if bias and …`; `known` tells the constructor's parameters.
fn parse_attribute(a: &'static str, known: impl Fn(&str) -> bool) -> Result<ArgExpr, String> {
    let (a, when, only_where) = match (a.split_once(" if "), a.split_once(" where ")) {
        (Some((a, when)), _) => (a, Some(parse_conditions(when, &known)?), false),
        (None, Some((a, when))) => (a, Some(parse_conditions(when, &known)?), true),
        (None, None) => (a, None, false),
    };
    let (name, sizes) = match a.trim().split_once('[') {
        Some((name, sizes)) => {
            let sizes = sizes.strip_suffix(']').ok_or("expected `]` after sizes")?;
            let sizes = split_top_level(sizes).into_iter().map(|s| Size::parse(s, &known));
            (name, Some(sizes.collect::<Result<_, _>>()?))
        }
        None => (a.trim(), None),
    };
    let (name, need) = match (strip_optional(name), when) {
        ((name, true), Some(when)) if only_where => (name, Need::Where(when)),
        ((name, true), when) => (name, Need::IfThere(when)),
        ((name, false), Some(when)) => (name, Need::When(when)),
        ((name, false), None) => (name, Need::Always),
    };
    Ok(ArgExpr::Attr(ModuleAttr { name, need, sizes }))
}

fn parse_conditions(text: &'static str, known: &impl Fn(&str) -> bool) -> Result<Vec<Condition>, String> {
    let parse_one = |text: &'static str| {
        let text = text.trim();
        let (param, holds) = text.strip_prefix("not ").map_or((text, true), |p| (p, false));
        match known(param) {
            true => Ok(Condition { param, holds }),
            false => Err(format!("unknown constructor parameter {param:?}")),
        }
    };
    text.split(" and ").map(parse_one).collect()
}
