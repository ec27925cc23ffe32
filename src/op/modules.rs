//! Module classes as calls of ops.
//!
//! A row says in a line how a class of `torch.nn` uses it ([`ModuleForm`](super::ModuleForm)):
//!
//! ```text
//! Linear(in_features, out_features, bias=True) = linear(input, @weight, @bias if bias)
//! ```
//!
//! On the left are the constructor's parameters with torch's defaults (a `*` before those that are keyword-only), on the
//! right an op by its canonical name. Its arguments, by position or by name, are
//!
//! * `input` or `$0`, `$1`, …: what the module is called with; `$1?` may be left out, `$1:mask?` may also be given as the
//!   keyword argument `mask`;
//! * `@weight`: the module's attribute; `@weight?` may be missing; `@bias if bias` is there when the constructor's
//!   arguments say so (`and` joins several) and is `None` otherwise;
//! * `@rnn_weights`: the list of weights and biases of a recurrent module, by layer and direction;
//! * a constructor parameter by name, or a literal.
//!
//! A class may have two forms: the one that ends in `when param='value'` holds for that value, the other otherwise.

use super::schema::{Literal, parse_literal};
use super::{Op, OpError, all, by_name};
use crate::diag::{Code, nearest};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// A parsed form.
#[derive(Debug)]
struct Class {
    name: &'static str,
    params: Vec<Param>,
    op: &'static str,
    args: Vec<(Option<&'static str>, Expr)>,
    when: Option<(&'static str, Literal)>,
}

#[derive(Debug)]
struct Param {
    name: &'static str,
    default: Option<Literal>,
    keyword_only: bool,
}

#[derive(Debug, Clone)]
enum Expr {
    Input {
        at: usize,
        name: Option<&'static str>,
        optional: bool,
    },
    Attr(&'static str, Need),
    RnnWeights,
    Param(&'static str),
    Value(Literal),
}

#[derive(Debug, Clone)]
enum Need {
    Always,
    IfThere,
    When(Vec<&'static str>),
}

/// Where an argument of a module's op comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Input `n` of the call.
    Input(usize),
    /// The module's parameter or buffer of this name.
    Attr(Arc<str>),
    /// A value.
    Value(Literal),
    /// A list.
    List(Vec<Source>),
}

/// A module call as an op call.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleCall {
    /// The row.
    pub op: &'static Op,
    /// Positional arguments.
    pub args: Vec<Source>,
    /// Keyword arguments.
    pub kwargs: Vec<(&'static str, Source)>,
    /// The module was constructed with `inplace=True`: it writes its result to its input.
    pub inplace: bool,
}

/// Forms by class, those with a condition first.
static CLASSES: LazyLock<HashMap<&'static str, Vec<Class>>> = LazyLock::new(|| {
    let mut classes: HashMap<_, Vec<Class>> = HashMap::new();
    for form in all().iter().flat_map(|op| &op.modules) {
        let c = parse(form.text).unwrap_or_else(|what| panic!("module form {:?}: {what}", form.text));
        classes.entry(c.name).or_default().push(c);
    }
    classes.values_mut().for_each(|v| v.sort_by_key(|c| c.when.is_none()));
    classes
});

/// Every class there is a form of.
pub fn classes() -> impl Iterator<Item = &'static str> {
    CLASSES.keys().copied()
}

/// The constructor parameters of `class` in order, each with its default.
pub fn constructor(class: &str) -> Option<Vec<(&'static str, Option<&'static Literal>)>> {
    let c = CLASSES.get(base_name(class))?.first()?;
    Some(c.params.iter().map(|p| (p.name, p.default.as_ref())).collect())
}

/// `Linear` of `torch.nn.modules.linear.Linear`.
fn base_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// The op that calling a module of `class`, constructed with `args` and `kwargs`, with `inputs` arguments means. `names`
/// are those of the last arguments, which are keyword arguments. `has_attr` tells whether the module has a parameter or
/// buffer of a name.
pub fn expand(
    class: &str,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
    inputs: usize,
    names: &[Arc<str>],
    has_attr: &dyn Fn(&str) -> bool,
) -> Result<ModuleCall, OpError> {
    let forms = CLASSES.get(base_name(class)).ok_or_else(|| unknown_class(class))?;
    let given = constructor_args(&forms[0], args, kwargs)?;
    let form = chosen(forms, &given)?;
    let op = by_name(form.op).unwrap_or_else(|| panic!("module form of {}: no op `{}`", form.name, form.op));
    let mut call = ModuleCall {
        op,
        args: vec![],
        kwargs: vec![],
        inplace: given.get("inplace") == Some(&Val::Bool(true)),
    };
    let mut taken = vec![];
    for (name, expr) in &form.args {
        let source = match expr {
            Expr::Input { at, name, optional } => match find_input(*at, *name, inputs, names) {
                Some(i) => {
                    taken.push(i);
                    Source::Input(i)
                }
                None if *optional => Source::Value(Val::None),
                None => {
                    let what = format!(
                        "module `{}` is called with {inputs} arguments but needs {}",
                        form.name,
                        at + 1
                    );
                    return Err(OpError::new(Code::E0203, what));
                }
            },
            Expr::Attr(a, need) if wanted(need, a, &given, has_attr) => Source::Attr((*a).into()),
            Expr::Attr(..) => Source::Value(Val::None),
            Expr::RnnWeights => rnn_weights(&given),
            Expr::Param(p) => Source::Value(given[p].clone()),
            Expr::Value(v) => Source::Value(v.clone()),
        };
        match name {
            Some(n) => call.kwargs.push((n, source)),
            None => call.args.push(source),
        }
    }
    match (0..inputs).find(|i| !taken.contains(i)) {
        None => Ok(call),
        Some(i) => {
            let name = form.name;
            let what = match i.checked_sub(inputs - names.len()).map(|k| &names[k]) {
                Some(argument) => format!("module `{name}` takes no argument `{argument}`"),
                None => format!(
                    "module `{name}` is called with {inputs} arguments but takes {}",
                    taken.len()
                ),
            };
            Err(OpError::new(Code::E0203, what))
        }
    }
}

/// The form of a class that its constructor's arguments choose.
fn chosen<'a>(forms: &'a [Class], given: &HashMap<&str, Literal>) -> Result<&'a Class, OpError> {
    let holds = |f: &&Class| f.when.as_ref().is_none_or(|(p, v)| given[p] == *v);
    forms.iter().find(holds).ok_or_else(|| {
        let (p, v) = forms[0].when.clone().unwrap_or(("", Val::None));
        let only = super::write_literal(&v);
        let what = format!("`{}` is known only with {p}={only}", forms[0].name);
        OpError::new(Code::E0203, what)
    })
}

/// The input at a position, or of a name. Keyword arguments that the form has no name for stand in order.
fn find_input(at: usize, name: Option<&str>, inputs: usize, names: &[Arc<str>]) -> Option<usize> {
    let positional = inputs - names.len();
    if at < positional {
        return Some(at);
    }
    match name {
        Some(name) => {
            let by_name = names.iter().position(|n| &**n == name).map(|k| positional + k);
            // A lone keyword argument is the input, whatever the class calls it.
            by_name.or((name == "input" && inputs == 1).then_some(0))
        }
        None => (at < inputs).then_some(at),
    }
}

/// `weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0`, then those of the reverse direction, then the next layer.
fn rnn_weights(given: &HashMap<&str, Literal>) -> Source {
    let int = |name: &str| given.get(name).and_then(Val::as_int).unwrap_or(0);
    let mut kinds = vec!["weight_ih", "weight_hh"];
    if int("bias") != 0 {
        kinds.extend(["bias_ih", "bias_hh"]);
    }
    if int("proj_size") > 0 {
        kinds.push("weight_hr");
    }
    let suffixes: &[&str] = if int("bidirectional") != 0 {
        &["", "_reverse"]
    } else {
        &[""]
    };
    let mut list = vec![];
    for layer in 0..int("num_layers").clamp(1, 1024) {
        for suffix in suffixes {
            list.extend(
                kinds
                    .iter()
                    .map(|k| Source::Attr(format!("{k}_l{layer}{suffix}").into())),
            );
        }
    }
    Source::List(list)
}

fn wanted(need: &Need, attr: &str, given: &HashMap<&str, Literal>, has_attr: &dyn Fn(&str) -> bool) -> bool {
    match need {
        Need::Always => true,
        Need::IfThere => has_attr(attr),
        Need::When(params) => params
            .iter()
            .all(|p| given[p].as_int() != Some(0) && !given[p].is_none()),
    }
}

fn unknown_class(class: &str) -> OpError {
    let e = OpError::new(Code::E0201, format!("unknown module class `{class}`"));
    match nearest(base_name(class), classes()) {
        Some(n) => e.help(format!("a class with a similar name exists: `{n}`")),
        None => e,
    }
}

/// The value of every constructor parameter.
fn constructor_args(
    form: &Class,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
) -> Result<HashMap<&'static str, Literal>, OpError> {
    let fail = |what: String| OpError::new(Code::E0203, format!("`{}`: {what}", form.name)).help(signature(form));
    let positional = form.params.iter().filter(|p| !p.keyword_only);
    let max = positional.clone().count();
    if args.len() > max {
        return Err(fail(format!(
            "takes {max} constructor arguments but {} are given",
            args.len()
        )));
    }
    let mut out: HashMap<&'static str, Literal> = positional.zip(args).map(|(p, v)| (p.name, v.clone())).collect();
    for (name, v) in kwargs {
        let Some(p) = form.params.iter().find(|p| p.name == &**name) else {
            // Where and how weights are stored does not concern the graph.
            if matches!(&**name, "device" | "dtype") {
                continue;
            }
            let hint = nearest(name, form.params.iter().map(|p| p.name));
            let hint = hint.map_or(String::new(), |n| format!("; `{n}` is one"));
            return Err(fail(format!("has no constructor parameter `{name}`{hint}")));
        };
        if out.insert(p.name, v.clone()).is_some() {
            return Err(fail(format!("constructor parameter `{name}` is given twice")));
        }
    }
    for p in &form.params {
        if !out.contains_key(p.name) {
            let v = p.default.clone();
            out.insert(
                p.name,
                v.ok_or_else(|| fail(format!("constructor argument `{}` is missing", p.name)))?,
            );
        }
    }
    Ok(out)
}

fn signature(form: &Class) -> String {
    let mut parts: Vec<String> = vec![];
    for p in &form.params {
        if p.keyword_only && !parts.contains(&"*".to_string()) {
            parts.push("*".into());
        }
        parts.push(match &p.default {
            Some(d) => format!("{}={}", p.name, super::write_literal(d)),
            None => p.name.into(),
        });
    }
    format!("the constructor is `{}({})`", form.name, parts.join(", "))
}

fn parse(text: &'static str) -> Result<Class, String> {
    let (left, right) = text.split_once(") = ").ok_or("expected `Class(…) = op(…)`")?;
    let (name, params) = left.split_once('(').ok_or("expected a class")?;
    let (right, when) = match right.split_once(") when ") {
        Some((r, w)) => (r, Some(w.split_once('=').ok_or("expected `when param=value`")?)),
        None => (right.strip_suffix(')').ok_or("expected `)` at the end")?, None),
    };
    let (op, args) = right.split_once('(').ok_or("expected an op")?;
    let mut class = Class {
        name: name.trim(),
        params: vec![],
        op: op.trim(),
        args: vec![],
        when: when.map(|(p, v)| parse_literal(v).map(|v| (p, v))).transpose()?,
    };
    let mut keyword_only = false;
    for p in pieces(params) {
        if p == "*" {
            keyword_only = true;
            continue;
        }
        let (name, default) = match p.split_once('=') {
            Some((n, d)) => (n.trim(), Some(parse_literal(d.trim())?)),
            None => (p, None),
        };
        class.params.push(Param {
            name,
            default,
            keyword_only,
        });
    }
    for a in pieces(args) {
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

/// The pieces between top-level commas.
fn pieces(text: &'static str) -> Vec<&'static str> {
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

fn parse_expr(class: &Class, e: &'static str) -> Result<Expr, String> {
    let known = |p: &str| class.params.iter().any(|q| q.name == p);
    if e == "input" {
        return Ok(Expr::Input {
            at: 0,
            name: Some("input"),
            optional: false,
        });
    }
    if e == "@rnn_weights" {
        return Ok(Expr::RnnWeights);
    }
    if let Some(n) = e.strip_prefix('$') {
        let (n, optional) = match n.strip_suffix('?') {
            Some(n) => (n, true),
            None => (n, false),
        };
        let (n, name) = match n.split_once(':') {
            Some((n, name)) => (n, Some(name)),
            None => (n, None),
        };
        let at = n.parse().map_err(|_| format!("bad input {e:?}"))?;
        return Ok(Expr::Input { at, name, optional });
    }
    if let Some(a) = e.strip_prefix('@') {
        if let Some(a) = a.strip_suffix('?') {
            return Ok(Expr::Attr(a, Need::IfThere));
        }
        return match a.split_once(" if ") {
            Some((a, when)) => {
                let when: Vec<_> = when.split(" and ").map(str::trim).collect();
                match when.iter().find(|p| !known(p)) {
                    Some(p) => Err(format!("no constructor parameter {p:?}")),
                    None => Ok(Expr::Attr(a.trim(), Need::When(when))),
                }
            }
            None => Ok(Expr::Attr(a, Need::Always)),
        };
    }
    if known(e) {
        return Ok(Expr::Param(e));
    }
    parse_literal(e).map(Expr::Value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_an_op_and_its_parameters() {
        for form in CLASSES.values().flatten() {
            let op = by_name(form.op).unwrap_or_else(|| panic!("{}: no op `{}`", form.name, form.op));
            let positional = op.schema.params.iter().filter(|p| !p.keyword_only).count();
            let by_position = form.args.iter().filter(|(n, _)| n.is_none()).count();
            assert!(
                by_position <= positional,
                "{}: too many arguments for `{}`",
                form.name,
                op.name
            );
            for (n, _) in &form.args {
                if let Some(n) = n {
                    assert!(
                        op.schema.index_of(n).is_some(),
                        "{}: `{}` has no parameter `{n}`",
                        form.name,
                        op.name
                    );
                }
            }
        }
    }

    #[test]
    fn forms_are_parsed_and_expanded() {
        let c = parse("Foo(a, b=[1, 2], *, bias=True) = reshape(input, @w, @b if bias, $1?, 'x', a)").unwrap();
        assert_eq!((c.name, c.op, c.params.len(), c.args.len()), ("Foo", "reshape", 3, 6));
        assert!(matches!(c.args[2].1, Expr::Attr("b", Need::When(_))));
        assert!(matches!(
            c.args[3].1,
            Expr::Input {
                at: 1,
                name: None,
                optional: true
            }
        ));
        assert!(parse("Foo(a) = reshape(input, @b if bias)").is_err());
    }

    #[test]
    fn constructor_errors_say_what_is_wrong() {
        let attrs = |_: &str| true;
        let e = expand("Flaten", &[], &[], 1, &[], &attrs).unwrap_err();
        assert_eq!((e.code, e.help.len()), (Code::E0201, 1));
        let e = expand("Unflatten", &[Val::int(1)], &[], 1, &[], &attrs).unwrap_err();
        assert_eq!(
            e.title,
            "`Unflatten`: constructor argument `unflattened_size` is missing"
        );
        let e = expand("Flatten", &[], &[("start".into(), Val::int(1))], 1, &[], &attrs).unwrap_err();
        assert!(e.title.contains("has no constructor parameter `start`"), "{}", e.title);
        let e = expand("Flatten", &[], &[], 2, &[], &attrs).unwrap_err();
        assert_eq!(e.title, "module `Flatten` is called with 2 arguments but takes 1");
        let ok = expand("torch.nn.modules.flatten.Flatten", &[], &[], 1, &[], &attrs).unwrap();
        assert_eq!(
            ok.args,
            [
                Source::Input(0),
                Source::Value(Val::int(1)),
                Source::Value(Val::int(-1))
            ]
        );
    }
}
