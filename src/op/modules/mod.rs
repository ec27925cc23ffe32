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
mod parts;
mod sizes;
mod training;

use self::parts::{count_of, part_argument, part_sources, rnn_weights};
use super::schema::Literal;
use super::{Op, OpError, by_name};
use crate::diag::words::count;
use crate::diag::{Code, nearest};
use crate::op::OpId;
use crate::types::Val;
pub(crate) use classes::all_classes;
use classes::{base_name, forms_of};
pub(super) use constructor::legacy_reduction;
use constructor::{check_values, constructor_args};
pub(crate) use form::TRAINING;
use form::{ArgExpr, Condition, ModuleAttr, Need, ParsedForm};
pub(crate) use sizes::AttributeSizes;
use std::collections::HashMap;
use std::sync::Arc;
pub(crate) use training::depends_on_training;

/// The source of an argument of a module's op.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ArgumentSource {
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
    pub(crate) fn attributes(&self) -> Vec<&Arc<str>> {
        match self {
            ArgumentSource::Attr(a) => vec![a],
            ArgumentSource::List(items) => items.iter().flat_map(ArgumentSource::attributes).collect(),
            ArgumentSource::Input(_) | ArgumentSource::Value(_) => vec![],
        }
    }
}

/// A module call expressed as an op call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModuleCall {
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
pub(crate) fn constructor_params(class: &str) -> Option<Vec<(&'static str, Option<&'static Literal>)>> {
    let c = forms_of(class)?.first()?;
    let params = c.params.iter().filter(|p| p.name != TRAINING);
    Some(params.map(|p| (p.name, p.default.as_ref())).collect())
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
pub(crate) trait Below {
    /// Whether it has a parameter or buffer at this path.
    fn has_attr(&self, path: &str) -> bool;
    /// Whether any of its parameters and buffers is known.
    fn is_known(&self) -> bool;
    /// The module declared at this path.
    fn part(&self, path: &str) -> Option<Constructed<'_>>;
}

/// The op call that calling `module` with `inputs` arguments stands for. `names` are the names of the last arguments,
/// which are keyword arguments.
pub(crate) fn expand_module(
    module: Constructed<'_>,
    inputs: usize,
    names: &[Arc<str>],
    below: &dyn Below,
) -> Result<ModuleCall, OpError> {
    let Constructed { class, args, kwargs } = module;
    let forms = forms_of(class).ok_or_else(|| unknown_class(class))?;
    let arguments = constructor_args(&forms[0], args, kwargs)?;
    check_values(&forms[0], &arguments, args, kwargs)?;
    let form = choose_form(forms, &arguments)?;
    training::can_train(form, &arguments)?;
    let mut call = ModuleCall {
        op: by_name(form.op).unwrap_or_else(|| panic!("module form of {}: unknown op `{}`", form.name, form.op)),
        args: vec![],
        kwargs: vec![],
        inplace: arguments.get("inplace") == Some(&Val::Bool(true)),
        sizes: vec![],
    };
    let mut taken = vec![];
    for (name, expr) in &form.args {
        let source = match expr {
            ArgExpr::Input { .. } => input_source(expr, form.name, inputs, names)?,
            expr => of_module(expr, form, &arguments, below, &mut call.sizes)?,
        };
        if let ArgumentSource::Input(input) = &source {
            taken.push(*input);
        }
        match name {
            Some(n) => call.kwargs.push((n, source)),
            None => call.args.push(source),
        }
    }
    match (0..inputs).find(|i| !taken.contains(i)) {
        Some(i) => Err(surplus_argument(form.name, i, taken.len(), inputs, names)),
        None => Ok(call),
    }
}

/// The input of a call that an expression names; `None` in Python's sense if it is optional and was not given.
fn input_source(expr: &ArgExpr, class: &str, inputs: usize, names: &[Arc<str>]) -> Result<ArgumentSource, OpError> {
    let ArgExpr::Input { index, name, optional } = expr else {
        unreachable!("the caller matched an input");
    };
    match find_input(*index, *name, inputs, names) {
        Some(input) => Ok(ArgumentSource::Input(input)),
        None if *optional => Ok(ArgumentSource::Value(Val::None)),
        None => Err(missing_argument(class, inputs, index + 1)),
    }
}

fn missing_argument(class: &str, inputs: usize, needed: usize) -> OpError {
    let inputs = count(inputs, "argument");
    let title = format!("module `{class}` is called with {inputs}, but requires {needed}");
    OpError::new(Code::E0203, title)
}

/// The sizes of a module's attribute, if they follow from the constructor's arguments.
pub(crate) fn attribute_sizes(module: Constructed<'_>, name: &str) -> Option<Vec<i64>> {
    let form = forms_of(module.class)?.first()?;
    let arguments = constructor_args(form, module.args, module.kwargs).ok()?;
    form.args.iter().find_map(|(_, e)| match e {
        ArgExpr::Attr(a) if a.name == name => sizes::known_shape(a.sizes.as_deref(), &arguments),
        ArgExpr::RnnWeights => {
            let mut all = vec![];
            rnn_weights(form.name, &arguments, &mut all);
            all.into_iter().find(|(n, _)| &**n == name).map(|(_, s)| s)
        }
        _ => None,
    })
}

/// An argument that does not depend on the call's inputs.
fn of_module(
    expr: &ArgExpr,
    form: &ParsedForm,
    arguments: &HashMap<&str, Literal>,
    below: &dyn Below,
    sizes: &mut AttributeSizes,
) -> Result<ArgumentSource, OpError> {
    Ok(match expr {
        ArgExpr::Attr(a) if is_attr_present(a, arguments, below) => {
            let name: Arc<str> = a.name.into();
            sizes.extend(sizes::known_shape(a.sizes.as_deref(), arguments).map(|s| (name.clone(), s)));
            ArgumentSource::Attr(name)
        }
        ArgExpr::Input { .. } | ArgExpr::Attr(..) => ArgumentSource::Value(Val::None),
        ArgExpr::RnnWeights => rnn_weights(form.name, arguments, sizes),
        ArgExpr::Each { count, attributes } => {
            part_sources(count_of(&arguments[count]), attributes, arguments, below, sizes)?
        }
        ArgExpr::Part {
            path,
            class,
            param,
            optional,
        } => ArgumentSource::Value(part_argument(form, path, class, param, *optional, below)?),
        ArgExpr::Param(p) => ArgumentSource::Value(arguments[p].clone()),
        ArgExpr::ListOf(p) => ArgumentSource::Value(match &arguments[p] {
            v @ Val::Int(_) => Val::List(vec![v.clone()]),
            v => v.clone(),
        }),
        ArgExpr::Holds(conditions) => ArgumentSource::Value(Val::Bool(all_hold(conditions, arguments))),
        ArgExpr::Value(v) => ArgumentSource::Value(v.clone()),
    })
}

/// The error for input `i` of a call if the form takes at most `most` inputs.
fn surplus_argument(class: &str, i: usize, most: usize, inputs: usize, names: &[Arc<str>]) -> OpError {
    let title = match i.checked_sub(inputs - names.len()).map(|k| &names[k]) {
        Some(argument) => format!("module `{class}` takes no argument `{argument}`"),
        None => format!(
            "module `{class}` is called with {}, but takes at most {most}",
            count(inputs, "argument")
        ),
    };
    OpError::new(Code::E0203, title)
}

/// The form of a class that the constructor's arguments select.
fn choose_form<'a>(forms: &'a [ParsedForm], arguments: &HashMap<&str, Literal>) -> Result<&'a ParsedForm, OpError> {
    let holds = |f: &&ParsedForm| f.when.as_ref().is_none_or(|(p, v)| arguments[p] == *v);
    forms.iter().find(holds).ok_or_else(|| {
        let (p, v) = forms[0].when.clone().unwrap_or(("", Val::None));
        let only = super::write_literal(&v);
        let title = format!("`{}` is only supported with {p}={only}", forms[0].name);
        OpError::new(Code::E0203, title)
    })
}

/// Whether a module is the one that `ExportedProgram.module()` calls first and that raises if the inputs do not fit the
/// exported program. The text does not contain its checks; the sizes in the graph imply them.
pub(crate) fn is_guards(path: &str) -> bool {
    path == "_guards_fn"
}

/// A call that checks nothing.
pub(crate) fn no_guards() -> Option<ModuleCall> {
    Some(ModuleCall {
        op: OpId::_AssertScalar.op(),
        args: vec![ArgumentSource::Value(Val::Bool(true))],
        kwargs: vec![],
        inplace: false,
        sizes: vec![],
    })
}

/// The input at a position or with a name. Keyword arguments whose names the form does not know are taken in order.
fn find_input(index: usize, name: Option<&str>, inputs: usize, names: &[Arc<str>]) -> Option<usize> {
    let positional = inputs - names.len();
    if index < positional {
        return Some(index);
    }
    match name {
        Some(name) => {
            let by_name = names.iter().position(|n| &**n == name).map(|k| positional + k);
            // A single keyword argument is the input, whatever its name is in the class.
            by_name.or((name == "input" && inputs == 1).then_some(0))
        }
        None => (index < inputs).then_some(index),
    }
}

fn is_attr_present(a: &ModuleAttr, arguments: &HashMap<&str, Literal>, below: &dyn Below) -> bool {
    has_attribute(a, a.name, arguments, below)
}

/// Whether the module has the attribute `a`, at `path`.
fn has_attribute(a: &ModuleAttr, path: &str, arguments: &HashMap<&str, Literal>, below: &dyn Below) -> bool {
    match &a.need {
        Need::Always => true,
        Need::IfThere(Some(conditions)) if !below.is_known() => all_hold(conditions, arguments),
        Need::IfThere(_) => below.has_attr(path),
        Need::When(conditions) => all_hold(conditions, arguments),
        Need::Where(conditions) => all_hold(conditions, arguments) && (!below.is_known() || below.has_attr(path)),
    }
}

fn all_hold(conditions: &[Condition], arguments: &HashMap<&str, Literal>) -> bool {
    let holds = |c: &Condition| c.holds == is_something(arguments.get(c.param));
    conditions.iter().all(holds)
}

fn is_something(v: Option<&Literal>) -> bool {
    v.is_some_and(|v| v.as_int() != Some(0) && !v.is_none())
}

fn unknown_class(class: &str) -> OpError {
    OpError::new(Code::E0201, format!("unknown module class `{class}`"))
}

/// Checks that the class of a module is known and that its constructor accepts the arguments.
pub(crate) fn check_constructed(module: Constructed<'_>) -> Result<(), OpError> {
    let Constructed { class, args, kwargs } = module;
    let forms = forms_of(class).ok_or_else(|| unknown_class(class))?;
    let arguments = constructor_args(&forms[0], args, kwargs)?;
    check_values(&forms[0], &arguments, args, kwargs)?;
    choose_form(forms, &arguments).map(drop)
}

/// Whether an unknown class is a misspelling of a known one: `Linaer`.
pub(crate) fn is_slip(class: &str) -> bool {
    forms_of(class).is_none() && nearest(base_name(class), all_classes()).is_some()
}

#[cfg(test)]
mod tests;
