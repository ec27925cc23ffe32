//! Module classes as calls of ops.
//!
//! A row declares in one line how a class of `torch.nn` uses it ([`ModuleForm`](super::ModuleForm)):
//!
//! ```text
//! Linear(in_features, out_features, bias=True) = linear(input, @weight, @bias if bias)
//! ```
//!
//! On the left are the constructor's parameters with torch's defaults (a `*` before those that are keyword-only); on the right is
//! an op by its canonical name. Its arguments, by position or by name, are
//!
//! * `input` or `$0`, `$1`, …: the inputs of the module call. `$1?` is optional; `$1:mask?` may also be given as the keyword
//!   argument `mask`.
//! * `@weight`: the module's attribute. `@weight?` may be missing. `@bias if bias` is present if the constructor's arguments say so
//!   (`and` joins several conditions, `not kdim` is one) and is `None` otherwise. `@bias? if bias` is present if the weights contain
//!   it or, if the weights are unknown, if the constructor's arguments say so. `@bias? where bias` is present if the constructor's
//!   arguments say so, unless the weights are known and do not contain it.
//! * `@weight[out_channels, in_channels // groups, *kernel_size:2]`: an attribute whose sizes follow from the constructor's
//!   arguments. `@num_batches_tracked[]` is a counter.
//! * `@rnn_weights`: the list of weights and biases of a recurrent module, by layer and direction.
//! * `@each num_layers of layers.*.weight layers.*.bias?`: the list of the attributes of each part. The number of parts is the
//!   value or the length of a constructor parameter. `@each num_layers of layers.* is TransformerEncoderLayer` lists the attributes
//!   in this class's own form.
//! * `%layers.0 is TransformerEncoderLayer.nhead`: the constructor argument of a part that the file declares as a module of that
//!   class. With a `?` it may be missing and is then `None`.
//! * a constructor parameter by name, or a literal. `[normalized_shape]` is a list that may be written as its single item.
//! * `?track_running_stats and not training`: whether this condition holds. `training` is a parameter of every class, false by
//!   default.
//!
//! A class may have two forms: the one that ends in `when param='value'` is used for that value, the other one otherwise.

mod classes;
mod constructor;
mod form;
mod sizes;
mod training;

use super::schema::Literal;
use super::{Op, OpError, by_name};
use crate::diag::words::count;
use crate::diag::{Code, nearest};
use crate::op::OpId;
use crate::types::Val;
pub use classes::all_classes;
use classes::{base_name, expect_forms, forms_of};
pub(super) use constructor::legacy_reduction;
use constructor::{check_values, constructor_args};
pub use form::TRAINING;
use form::{ArgExpr, Condition, ModuleAttr, Need, ParsedForm, PartAttributes};
pub use sizes::AttributeSizes;
use std::collections::HashMap;
use std::sync::Arc;
pub use training::depends_on_training;

/// The source of an argument of a module's op.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentSource {
    /// Input `n` of the call.
    Input(usize),
    /// The module's parameter or buffer of this name.
    Attr(Arc<str>),
    /// A constant.
    Value(Literal),
    /// A list of sources.
    List(Vec<ArgumentSource>),
}

impl ArgumentSource {
    /// The attributes that it contains.
    pub fn attributes(&self) -> Vec<&Arc<str>> {
        match self {
            ArgumentSource::Attr(a) => vec![a],
            ArgumentSource::List(items) => items.iter().flat_map(ArgumentSource::attributes).collect(),
            ArgumentSource::Input(_) | ArgumentSource::Value(_) => vec![],
        }
    }
}

/// A module call expressed as an op call.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleCall {
    /// The row.
    pub op: &'static Op,
    /// Positional arguments.
    pub args: Vec<ArgumentSource>,
    /// Keyword arguments.
    pub kwargs: Vec<(&'static str, ArgumentSource)>,
    /// Whether the module was constructed with `inplace=True` and so writes its result to its input.
    pub inplace: bool,
    /// The sizes of the module's attributes that follow from the constructor's arguments.
    pub sizes: AttributeSizes,
}

/// The constructor parameters of `class` in order, each with its default.
pub fn constructor_params(class: &str) -> Option<Vec<(&'static str, Option<&'static Literal>)>> {
    let c = forms_of(class)?.first()?;
    let own = c.params.iter().filter(|p| p.name != TRAINING);
    Some(own.map(|p| (p.name, p.default.as_ref())).collect())
}

/// A module's class and its constructor arguments.
#[derive(Clone, Copy, Debug)]
pub struct Constructed<'a> {
    /// The class.
    pub class: &'a str,
    /// Positional constructor arguments.
    pub args: &'a [Literal],
    /// Keyword constructor arguments.
    pub kwargs: &'a [(Arc<str>, Literal)],
}

/// What is known about the attributes and modules below a module.
pub trait Below {
    /// Whether it has a parameter or buffer at this path.
    fn has_attr(&self, path: &str) -> bool;
    /// Whether any of its parameters and buffers is known.
    fn is_known(&self) -> bool;
    /// The module declared at this path.
    fn part(&self, path: &str) -> Option<Constructed<'_>>;
}

/// The op call that calling `module` with `inputs` arguments stands for. `names` are the names of the last arguments,
/// which are keyword arguments.
pub fn expand_module(
    module: Constructed<'_>,
    inputs: usize,
    names: &[Arc<str>],
    below: &dyn Below,
) -> Result<ModuleCall, OpError> {
    let Constructed { class, args, kwargs } = module;
    let forms = forms_of(class).ok_or_else(|| unknown_class(class))?;
    let given = constructor_args(&forms[0], args, kwargs)?;
    check_values(&forms[0], &given, args, kwargs)?;
    let form = choose_form(forms, &given)?;
    training::can_train(form, &given)?;
    let op = by_name(form.op).unwrap_or_else(|| panic!("module form of {}: unknown op `{}`", form.name, form.op));
    let mut call = ModuleCall {
        op,
        args: vec![],
        kwargs: vec![],
        inplace: given.get("inplace") == Some(&Val::Bool(true)),
        sizes: vec![],
    };
    let mut taken = vec![];
    for (name, expr) in &form.args {
        let source = match expr {
            ArgExpr::Input { at, name, optional } => match find_input(*at, *name, inputs, names) {
                Some(i) => {
                    taken.push(i);
                    ArgumentSource::Input(i)
                }
                None if *optional => ArgumentSource::Value(Val::None),
                None => return Err(missing_argument(form.name, inputs, at + 1)),
            },
            expr => of_module(expr, form, &given, below, &mut call.sizes)?,
        };
        match name {
            Some(n) => call.kwargs.push((n, source)),
            None => call.args.push(source),
        }
    }
    match (0..inputs).find(|i| !taken.contains(i)) {
        None => Ok(call),
        Some(i) => Err(surplus_argument(form.name, i, taken.len(), inputs, names)),
    }
}

fn missing_argument(class: &str, inputs: usize, needed: usize) -> OpError {
    let given = count(inputs, "argument");
    let what = format!("module `{class}` is called with {given}, but requires {needed}");
    OpError::new(Code::E0203, what)
}

/// The sizes of a module's attribute, if they follow from the constructor's arguments.
pub fn attribute_sizes(module: Constructed<'_>, name: &str) -> Option<Vec<i64>> {
    let form = forms_of(module.class)?.first()?;
    let given = constructor_args(form, module.args, module.kwargs).ok()?;
    form.args.iter().find_map(|(_, e)| match e {
        ArgExpr::Attr(a) if a.name == name => sizes::known_shape(a.sizes.as_deref(), &given),
        ArgExpr::RnnWeights => {
            let mut all = vec![];
            rnn_weights(form.name, &given, &mut all);
            all.into_iter().find(|(n, _)| &**n == name).map(|(_, s)| s)
        }
        _ => None,
    })
}

/// An argument that does not depend on the call's inputs.
fn of_module(
    expr: &ArgExpr,
    form: &ParsedForm,
    given: &HashMap<&str, Literal>,
    below: &dyn Below,
    sizes: &mut AttributeSizes,
) -> Result<ArgumentSource, OpError> {
    Ok(match expr {
        ArgExpr::Attr(a) if is_attr_present(a, given, below) => {
            let name: Arc<str> = a.name.into();
            sizes.extend(sizes::known_shape(a.sizes.as_deref(), given).map(|s| (name.clone(), s)));
            ArgumentSource::Attr(name)
        }
        ArgExpr::Input { .. } | ArgExpr::Attr(..) => ArgumentSource::Value(Val::None),
        ArgExpr::RnnWeights => rnn_weights(form.name, given, sizes),
        ArgExpr::Each { count, of } => part_sources(count_of(&given[count]), of, given, below, sizes)?,
        ArgExpr::Part {
            path,
            class,
            param,
            optional,
        } => ArgumentSource::Value(part_argument(form, path, class, param, *optional, below)?),
        ArgExpr::Param(p) => ArgumentSource::Value(given[p].clone()),
        ArgExpr::ListOf(p) => ArgumentSource::Value(match &given[p] {
            v @ Val::Int(_) => Val::List(vec![v.clone()]),
            v => v.clone(),
        }),
        ArgExpr::Holds(conditions) => ArgumentSource::Value(Val::Bool(all_hold(conditions, given))),
        ArgExpr::Value(v) => ArgumentSource::Value(v.clone()),
    })
}

/// The error for input `i` of a call if the form takes at most `most` inputs.
fn surplus_argument(class: &str, i: usize, most: usize, inputs: usize, names: &[Arc<str>]) -> OpError {
    let what = match i.checked_sub(inputs - names.len()).map(|k| &names[k]) {
        Some(argument) => format!("module `{class}` takes no argument `{argument}`"),
        None => format!(
            "module `{class}` is called with {}, but takes at most {most}",
            count(inputs, "argument")
        ),
    };
    OpError::new(Code::E0203, what)
}

/// The form of a class that the constructor's arguments select.
fn choose_form<'a>(forms: &'a [ParsedForm], given: &HashMap<&str, Literal>) -> Result<&'a ParsedForm, OpError> {
    let holds = |f: &&ParsedForm| f.when.as_ref().is_none_or(|(p, v)| given[p] == *v);
    forms.iter().find(holds).ok_or_else(|| {
        let (p, v) = forms[0].when.clone().unwrap_or(("", Val::None));
        let only = super::write_literal(&v);
        let what = format!("`{}` is only supported with {p}={only}", forms[0].name);
        OpError::new(Code::E0203, what)
    })
}

/// Whether a module is the one that `ExportedProgram.module()` calls first and that raises if the inputs do not fit the
/// exported program. The text does not contain its checks; the sizes in the graph imply them.
pub fn is_guards(path: &str) -> bool {
    path == "_guards_fn"
}

/// A call that checks nothing.
pub fn no_guards() -> Option<ModuleCall> {
    Some(ModuleCall {
        op: OpId::_AssertScalar.op(),
        args: vec![ArgumentSource::Value(Val::Bool(true))],
        kwargs: vec![],
        inplace: false,
        sizes: vec![],
    })
}

/// The input at a position or with a name. Keyword arguments whose names the form does not know are taken in order.
fn find_input(at: usize, name: Option<&str>, inputs: usize, names: &[Arc<str>]) -> Option<usize> {
    let positional = inputs - names.len();
    if at < positional {
        return Some(at);
    }
    match name {
        Some(name) => {
            let by_name = names.iter().position(|n| &**n == name).map(|k| positional + k);
            // A single keyword argument is the input, whatever its name is in the class.
            by_name.or((name == "input" && inputs == 1).then_some(0))
        }
        None => (at < inputs).then_some(at),
    }
}

/// Lists `weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0`, then those of the reverse direction, then the next
/// layer's.
fn rnn_weights(class: &str, given: &HashMap<&str, Literal>, sizes: &mut AttributeSizes) -> ArgumentSource {
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
            for k in &kinds {
                let name: Arc<str> = format!("{k}_l{layer}{suffix}").into();
                sizes.extend(sizes::recurrent_shape(class, k, layer, given).map(|s| (name.clone(), s)));
                list.push(ArgumentSource::Attr(name));
            }
        }
    }
    ArgumentSource::List(list)
}

/// The number of parts that a constructor argument gives: a number, or the length of a list.
fn count_of(v: &Literal) -> usize {
    let n = v.items().map(<[_]>::len);
    n.unwrap_or_else(|| v.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
}

/// The maximum number of parts of one kind. More indicates a mistake in the file.
const MOST_PARTS: usize = 1024;

/// The attributes of all parts.
fn part_sources(
    count: usize,
    of: &PartAttributes,
    given: &HashMap<&str, Literal>,
    below: &dyn Below,
    sizes: &mut AttributeSizes,
) -> Result<ArgumentSource, OpError> {
    if count > MOST_PARTS {
        return Err(OpError::new(
            Code::E0203,
            format!("the module has {count} parts; the limit is {MOST_PARTS}"),
        ));
    }
    let (path, class) = match of {
        PartAttributes::Paths(paths) => {
            let source = |i: usize, (path, optional): &(&str, bool)| {
                let path = path.replace('*', &i.to_string());
                match *optional && !below.has_attr(&path) {
                    true => ArgumentSource::Value(Val::None),
                    false => ArgumentSource::Attr(path.into()),
                }
            };
            let parts = (0..count).flat_map(|i| paths.iter().map(move |p| source(i, p)));
            return Ok(ArgumentSource::List(parts.collect()));
        }
        PartAttributes::OfClass { path, class } => (path, &expect_forms(class)[0]),
    };
    let mut list = vec![];
    for i in 0..count {
        let path = path.replace('*', &i.to_string());
        // A part that is not declared separately is constructed from the arguments of the whole.
        let part = below
            .part(&path)
            .map(|p| constructor_args(class, p.args, p.kwargs))
            .transpose()?;
        let given = part.as_ref().unwrap_or(given);
        for (_, e) in &class.args {
            let ArgExpr::Attr(a) = e else { continue };
            let name: Arc<str> = format!("{path}.{}", a.name).into();
            if !is_there(a, &name, given, below) {
                list.push(ArgumentSource::Value(Val::None));
                continue;
            }
            sizes.extend(sizes::known_shape(a.sizes.as_deref(), given).map(|s| (name.clone(), s)));
            list.push(ArgumentSource::Attr(name));
        }
    }
    Ok(ArgumentSource::List(list))
}

/// The constructor argument `param` of the part at `path`, which must be of class `class`. Its siblings under other
/// numbers (`layers.1` for `layers.0`) must be constructed alike, because one op computes them all.
fn part_argument(
    form: &ParsedForm,
    path: &str,
    class: &'static str,
    param: &str,
    optional: bool,
    below: &dyn Below,
) -> Result<Literal, OpError> {
    let fail = |what: String| {
        let help = format!(
            "declare it as `module PATH.{path} = {class}(…)`; torch2fxir.py writes parts of other classes as graphs"
        );
        Err(OpError::new(Code::E0203, format!("`{}`: {what}", form.name)).help(help))
    };
    let forms = expect_forms(class);
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
                return fail(format!("`{stem}{i}` has different constructor arguments from `{path}`"));
            }
        }
    }
    Ok(given[param].clone())
}

fn is_attr_present(a: &ModuleAttr, given: &HashMap<&str, Literal>, below: &dyn Below) -> bool {
    is_there(a, a.name, given, below)
}

/// Whether the module has the attribute `a`, at `path`.
fn is_there(a: &ModuleAttr, path: &str, given: &HashMap<&str, Literal>, below: &dyn Below) -> bool {
    match &a.need {
        Need::Always => true,
        Need::IfThere(Some(conditions)) if !below.is_known() => all_hold(conditions, given),
        Need::IfThere(_) => below.has_attr(path),
        Need::When(conditions) => all_hold(conditions, given),
        Need::Where(conditions) => all_hold(conditions, given) && (!below.is_known() || below.has_attr(path)),
    }
}

fn all_hold(conditions: &[Condition], given: &HashMap<&str, Literal>) -> bool {
    let holds = |c: &Condition| c.holds == is_something(given.get(c.param));
    conditions.iter().all(holds)
}

fn is_something(v: Option<&Literal>) -> bool {
    v.is_some_and(|v| v.as_int() != Some(0) && !v.is_none())
}

fn unknown_class(class: &str) -> OpError {
    OpError::new(Code::E0201, format!("unknown module class `{class}`"))
}

/// Checks that the class of a module is known and that its constructor accepts the arguments.
pub fn check_constructed(module: Constructed<'_>) -> Result<(), OpError> {
    let Constructed { class, args, kwargs } = module;
    let forms = forms_of(class).ok_or_else(|| unknown_class(class))?;
    let given = constructor_args(&forms[0], args, kwargs)?;
    check_values(&forms[0], &given, args, kwargs)?;
    choose_form(forms, &given).map(drop)
}

/// Whether an unknown class is a misspelling of a known one: `Linaer`.
pub fn is_slip(class: &str) -> bool {
    forms_of(class).is_none() && nearest(base_name(class), all_classes()).is_some()
}

#[cfg(test)]
mod tests;
