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
//! * `@each num_layers of layers.*.weight layers.*.bias?`: the list of the attributes of each part, of which there are as many
//!   as a constructor parameter says or is long; `@each num_layers of layers.* is TransformerEncoderLayer` are the attributes
//!   that this class's own form names;
//! * `%layers.0 is TransformerEncoderLayer.nhead`: the constructor argument of a part that the file declares as a module of
//!   that class; with a `?` it may be missing and is `None` then;
//! * a constructor parameter by name, or a literal.
//!
//! A class may have two forms: the one that ends in `when param='value'` holds for that value, the other otherwise.

mod form;

use super::schema::Literal;
use super::{Op, OpError, all, by_name};
use crate::diag::{Code, nearest};
use crate::types::Val;
use form::{Class, Expr, Need, PartAttributes};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

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

impl Source {
    /// The attributes in it.
    pub fn attributes(&self) -> Vec<&Arc<str>> {
        match self {
            Source::Attr(a) => vec![a],
            Source::List(items) => items.iter().flat_map(Source::attributes).collect(),
            Source::Input(_) | Source::Value(_) => vec![],
        }
    }
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
        let c = form::parse(form.text).unwrap_or_else(|what| panic!("module form {:?}: {what}", form.text));
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

/// A module as its class and the arguments of the constructor.
#[derive(Clone, Copy, Debug)]
pub struct Constructed<'a> {
    /// The class.
    pub class: &'a str,
    /// Positional constructor arguments.
    pub args: &'a [Literal],
    /// Keyword constructor arguments.
    pub kwargs: &'a [(Arc<str>, Literal)],
}

/// What is known of the modules and attributes below a module.
pub trait Below {
    /// Whether it has a parameter or buffer at this path.
    fn has_attr(&self, path: &str) -> bool;
    /// The module that is declared at this path.
    fn part(&self, path: &str) -> Option<Constructed<'_>>;
}

/// The op that calling `module` with `inputs` arguments means. `names` are those of the last arguments, which are keyword
/// arguments.
pub fn expand(
    module: Constructed<'_>,
    inputs: usize,
    names: &[Arc<str>],
    below: &dyn Below,
) -> Result<ModuleCall, OpError> {
    let Constructed { class, args, kwargs } = module;
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
                    let (class, needed) = (form.name, at + 1);
                    let what = format!("module `{class}` is called with {inputs} arguments but needs {needed}");
                    return Err(OpError::new(Code::E0203, what));
                }
            },
            expr => of_module(expr, form, &given, below)?,
        };
        match name {
            Some(n) => call.kwargs.push((n, source)),
            None => call.args.push(source),
        }
    }
    match (0..inputs).find(|i| !taken.contains(i)) {
        None => Ok(call),
        Some(i) => Err(surplus(form.name, i, taken.len(), inputs, names)),
    }
}

/// What an argument is that does not depend on the call's inputs.
fn of_module(expr: &Expr, form: &Class, given: &HashMap<&str, Literal>, below: &dyn Below) -> Result<Source, OpError> {
    Ok(match expr {
        Expr::Attr(a, need) if wanted(need, a, given, below) => Source::Attr((*a).into()),
        Expr::Input { .. } | Expr::Attr(..) => Source::Value(Val::None),
        Expr::RnnWeights => rnn_weights(given),
        Expr::Each { count, of } => each(count_of(&given[count]), of, below)?,
        Expr::Part {
            path,
            class,
            param,
            optional,
        } => Source::Value(part_argument(form, path, class, param, *optional, below)?),
        Expr::Param(p) => Source::Value(given[p].clone()),
        Expr::Value(v) => Source::Value(v.clone()),
    })
}

/// Input `i` of a call is one that the form, which takes `most`, has no use for.
fn surplus(class: &str, i: usize, most: usize, inputs: usize, names: &[Arc<str>]) -> OpError {
    let what = match i.checked_sub(inputs - names.len()).map(|k| &names[k]) {
        Some(argument) => format!("module `{class}` takes no argument `{argument}`"),
        None => format!("module `{class}` is called with {inputs} arguments but takes {most}"),
    };
    OpError::new(Code::E0203, what)
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

/// Whether a module is the one that `ExportedProgram.module()` calls first, which raises where the inputs are none that the
/// program was exported for. No text holds what it checks; the sizes of the graph say the same.
pub fn is_guards(path: &str) -> bool {
    path == "_guards_fn"
}

/// The call that checks nothing.
pub fn no_guards() -> Option<ModuleCall> {
    Some(ModuleCall {
        op: by_name("_assert_scalar")?,
        args: vec![Source::Value(Val::Bool(true))],
        kwargs: vec![],
        inplace: false,
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

/// How many parts a constructor's argument says there are: a number, or the length of a list.
fn count_of(v: &Literal) -> usize {
    let n = v.items().map(<[_]>::len);
    n.unwrap_or_else(|| v.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
}

/// The most parts of a kind that a module may have: more would be a mistake in the file.
const MOST_PARTS: usize = 1024;

/// The attributes of every part.
fn each(count: usize, of: &PartAttributes, below: &dyn Below) -> Result<Source, OpError> {
    if count > MOST_PARTS {
        return Err(OpError::new(
            Code::E0203,
            format!("a module of {count} parts; at most {MOST_PARTS} are known"),
        ));
    }
    let paths: Vec<(String, bool)> = match of {
        PartAttributes::Paths(paths) => paths.iter().map(|(p, optional)| (p.to_string(), *optional)).collect(),
        PartAttributes::OfClass { path, class } => {
            let named = CLASSES[class][0].args.iter().filter_map(|(_, e)| match e {
                Expr::Attr(a, need) => Some((format!("{path}.{a}"), !matches!(need, Need::Always))),
                _ => None,
            });
            named.collect()
        }
    };
    let source = |i: usize, (path, optional): &(String, bool)| {
        let path = path.replace('*', &i.to_string());
        match *optional && !below.has_attr(&path) {
            true => Source::Value(Val::None),
            false => Source::Attr(path.into()),
        }
    };
    let parts = (0..count).flat_map(|i| paths.iter().map(move |p| source(i, p)));
    Ok(Source::List(parts.collect()))
}

/// The constructor argument `param` of the part at `path`, which must be of `class`. What stands beside it under other numbers
/// (`layers.1` beside `layers.0`) must be constructed as it is, because one op computes them all.
fn part_argument(
    form: &Class,
    path: &str,
    class: &'static str,
    param: &str,
    optional: bool,
    below: &dyn Below,
) -> Result<Literal, OpError> {
    let fail = |what: String| {
        let help =
            format!("declare it as `module PATH.{path} = {class}(…)`; torch2fxir.py writes other parts as graphs");
        Err(OpError::new(Code::E0203, format!("`{}`: {what}", form.name)).help(help))
    };
    let forms = &CLASSES[class];
    let Some(part) = below.part(path) else {
        if !optional {
            return fail(format!("its part `{path}` is not declared"));
        }
        let default = forms[0]
            .params
            .iter()
            .find(|p| p.name == param)
            .and_then(|p| p.default.clone());
        let there = below.has_attr(&format!("{path}.weight"));
        return Ok(default.filter(|_| there).unwrap_or(Val::None));
    };
    let arguments = |part: Constructed<'_>| constructor_args(&forms[0], part.args, part.kwargs);
    if base_name(part.class) != class {
        return fail(format!("its part `{path}` is a `{}`, not a `{class}`", part.class));
    }
    let given = arguments(part)?;
    if let Some(stem) = path.strip_suffix('0') {
        for i in 1..MOST_PARTS {
            let Some(other) = below.part(&format!("{stem}{i}")) else {
                break;
            };
            if base_name(other.class) != class || arguments(other)? != given {
                return fail(format!("`{stem}{i}` is not constructed as `{path}` is"));
            }
        }
    }
    Ok(given[param].clone())
}

fn wanted(need: &Need, attr: &str, given: &HashMap<&str, Literal>, below: &dyn Below) -> bool {
    match need {
        Need::Always => true,
        Need::IfThere => below.has_attr(attr),
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
    if let (Some(size_average), Some(reduce)) = (out.get("size_average"), out.get("reduce"))
        && let Some(v) = legacy_reduction(size_average.as_int(), reduce.as_int())
    {
        out.insert("reduction", v);
    }
    Ok(out)
}

/// The reduction that the deprecated arguments `size_average` and `reduce` of a loss ask for; `None` if neither is given.
pub(super) fn legacy_reduction(size_average: Option<i64>, reduce: Option<i64>) -> Option<Literal> {
    size_average.or(reduce)?;
    Some(Val::str(match (size_average.unwrap_or(1), reduce.unwrap_or(1)) {
        (_, 0) => "none",
        (0, _) => "sum",
        _ => "mean",
    }))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A module that has every attribute and no part that is declared.
    struct Everything;

    impl Below for Everything {
        fn has_attr(&self, _: &str) -> bool {
            true
        }

        fn part(&self, _: &str) -> Option<Constructed<'_>> {
            None
        }
    }

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
        let c = form::parse("Foo(a, b=[1, 2], *, bias=True) = reshape(input, @w, @b if bias, $1?, 'x', a)").unwrap();
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
        assert!(form::parse("Foo(a) = reshape(input, @b if bias)").is_err());
    }

    #[test]
    fn constructor_errors_say_what_is_wrong() {
        let of = |class, args: &[Literal], kwargs: &[(Arc<str>, Literal)], inputs| {
            expand(Constructed { class, args, kwargs }, inputs, &[], &Everything)
        };
        let e = of("Flaten", &[], &[], 1).unwrap_err();
        assert_eq!((e.code, e.help.len()), (Code::E0201, 1));
        let e = of("Unflatten", &[Val::int(1)], &[], 1).unwrap_err();
        assert_eq!(
            e.title,
            "`Unflatten`: constructor argument `unflattened_size` is missing"
        );
        let e = of("Flatten", &[], &[("start".into(), Val::int(1))], 1).unwrap_err();
        assert!(e.title.contains("has no constructor parameter `start`"), "{}", e.title);
        let e = of("Flatten", &[], &[], 2).unwrap_err();
        assert_eq!(e.title, "module `Flatten` is called with 2 arguments but takes 1");
        let ok = of("torch.nn.modules.flatten.Flatten", &[], &[], 1).unwrap();
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
