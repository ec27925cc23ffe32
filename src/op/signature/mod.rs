//! torch's own signatures of the table's spellings, and the check of arguments against them.
//!
//! A row's schema says what fxc computes, and often covers several overloads. The files here say what torch *accepts*: `python.txt`
//! has the signatures of its functions and methods, `aten.txt` those of its ATen overloads; `tools/signatures.py` writes both. A
//! call is checked against them by torch's rules before it is bound to a row: functions and methods by those of the Python argument
//! parser ([`python`]), overloads by those of the dispatcher ([`overload`]). The rules differ: a bool is not accepted as a dim of
//! `torch.sum`, but it is for `aten.sum.dim_IntList`.
//!
//! torch's functions that are written in Python do not check their arguments themselves: `written.txt` has their parameters with
//! the types that the functions they call accept. If a function is in none of the files, the row's own schemas decide.

mod overload;
mod python;

use super::bind::{BindError, lift_literal};
use super::schema::{Literal, Param, ParamList, ParamType, Schema};
use crate::diag::nearest;
use crate::types::{ScalarKind, TensorType, Type, Val};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

static PYTHON: &str = include_str!("python.txt");
static WRITTEN: &str = include_str!("written.txt");
static MODULES: &str = include_str!("modules.txt");
static ATEN: &str = include_str!("aten.txt");

/// Signatures, keyed by the address and the length of their text.
type ParsedSignatures = HashMap<(usize, usize), Arc<[Schema]>>;

/// Signatures that have been parsed.
static PARSED: LazyLock<RwLock<ParsedSignatures>> = LazyLock::new(Default::default);

/// The arguments of a call. For a method, the first one is its receiver, which signatures do not list.
#[derive(Clone, Copy)]
struct GivenArgs<'a> {
    args: &'a [Type],
    kwargs: &'a [(&'a str, &'a Type)],
    method: bool,
    /// Whether the function is written in Python. Then parameters have no alternative names, and a list cannot be given
    /// as several arguments.
    written: bool,
}

/// The reason why a signature does not fit, and how close it is: 2 points for each argument that it accepts, 1 for each
/// argument of the wrong type whose name or position it has.
struct Misfit {
    fitting: usize,
    error: BindError,
}

/// The offset of the first line whose path is not `below`. Lines are sorted by path.
fn partition_offset(text: &str, below: impl Fn(&str) -> bool) -> usize {
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = (low + high) / 2;
        let start = text[..middle].rfind('\n').map_or(0, |i| i + 1);
        let line = text[start..].split('\n').next().unwrap_or_default();
        if below(line.split('(').next().unwrap_or_default()) {
            low = start + line.len() + 1;
        } else {
            high = start;
        }
    }
    low
}

/// The lines of the spelling `path`. For a packet (`aten.add`), the lines of all its overloads.
fn lines_of_path(text: &'static str, path: &str) -> &'static str {
    let prefix = format!("{path}.");
    let packet = path.starts_with("aten.") && path.matches('.').count() == 1;
    let (start, end) = match packet {
        true => (
            partition_offset(text, |p| p < prefix.as_str()),
            partition_offset(text, |p| p < prefix.as_str() || p.starts_with(&prefix)),
        ),
        false => (
            partition_offset(text, |p| p < path),
            partition_offset(text, |p| p <= path),
        ),
    };
    &text[start..end]
}

/// torch's signatures of the spelling `path`, in the order in which torch tries them, and whether the function is
/// written in Python. The list is empty if no signature is known.
fn signatures_of(path: &str) -> (Arc<[Schema]>, bool) {
    if path.starts_with("aten.") {
        return (parse_cached(lines_of_path(ATEN, path)), false);
    }
    match lines_of_path(PYTHON, path) {
        "" => (parse_cached(lines_of_path(WRITTEN, path)), true),
        lines => (parse_cached(lines), false),
    }
}

fn parse_cached(text: &'static str) -> Arc<[Schema]> {
    let key = (text.as_ptr() as usize, text.len());
    if let Some(known) = PARSED.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return known.clone();
    }
    let schemas: Arc<[Schema]> = text.lines().map(|l| Schema::parse(&format!("{l} -> ()"))).collect();
    let mut table = PARSED.write().unwrap_or_else(PoisonError::into_inner);
    table.insert(key, schemas.clone());
    schemas
}

/// torch's overloads of an ATen packet (`aten.gt`) that do not write to an argument `out`, each schema named by its
/// path.
pub(crate) fn overloads(packet: &str) -> Vec<Schema> {
    let writes = |s: &Schema| s.params.iter().any(|p| p.keyword_only && p.ty == ParamType::Tensor);
    let all = parse_cached(lines_of_path(ATEN, packet));
    all.iter().filter(|s| !writes(s)).cloned().collect()
}

/// torch's signatures of the spelling `path` as shown in messages.
pub(crate) fn texts(path: &str) -> Vec<String> {
    let (all, _) = signatures_of(path);
    all.iter()
        .map(|s| format!("{}{}", s.name, ParamList(&s.params)))
        .collect()
}

/// Ops whose `Tensor` parameters accept numbers (torch's `should_allow_numbers_as_tensors`).
const NUMBERS: &str = "add div divide floor_divide mul multiply sub subtract true_divide iadd isub imul truediv itruediv floordiv \
                       ifloordiv radd rsub rmul rdiv rtruediv rfloordiv rpow rmod rlshift rrshift";

/// Checks the arguments by torch's signatures for the spelling `path`. Returns an error if torch rejects them, and
/// `false` if no signature is known.
pub(super) fn check_call(path: &str, args: &[Type], kwargs: &[(&str, &Type)]) -> Result<bool, BindError> {
    if let Some(name) = path.strip_prefix("operator.") {
        return check_operator(name, args, kwargs);
    }
    // Most calls use bare canonical names, for which there is no signature to look up.
    if !["aten.", "torch.", "Tensor."]
        .iter()
        .any(|family| path.starts_with(family))
    {
        return Ok(false);
    }
    let (known, written) = signatures_of(path);
    let aten = path.starts_with("aten.");
    let name = match aten {
        true => path.split('.').nth(1).unwrap_or_default(),
        false => path.rsplit('.').next().unwrap_or_default(),
    };
    let name = name.trim_start_matches("__").trim_end_matches('_');
    let numbers = NUMBERS.split(' ').any(|n| n == name);
    let method = path.starts_with("Tensor.");
    let given = GivenArgs {
        args,
        kwargs,
        method,
        written,
    };
    let fits = if aten { overload::check_fit } else { python::check_fit };
    let mut worst: Option<Misfit> = None;
    for signature in known.iter() {
        match fits(signature, given, numbers) {
            Ok(()) => return Ok(true),
            Err(e) if worst.as_ref().is_none_or(|w| e.fitting > w.fitting) => worst = Some(e),
            Err(_) => {}
        }
    }
    worst.map_or(Ok(false), |w| Err(w.error))
}

/// Checks the constructor arguments of a module class, if its signature is known.
pub(super) fn check_constructor(
    class: &str,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
) -> Result<(), BindError> {
    let known = parse_cached(lines_of_path(MODULES, class));
    let args: Vec<Type> = args.iter().map(lift_literal).collect();
    let values: Vec<Type> = kwargs.iter().map(|(_, v)| lift_literal(v)).collect();
    let kwargs: Vec<(&str, &Type)> = kwargs.iter().zip(&values).map(|((k, _), v)| (&**k, v)).collect();
    let given = GivenArgs {
        args: &args,
        kwargs: &kwargs,
        method: false,
        written: true,
    };
    match known.first() {
        Some(signature) => python::check_fit(signature, given, false).map_err(|m| m.error),
        None => Ok(()),
    }
}

/// The names of a module class's constructor parameters in order; empty if unknown.
pub(super) fn constructor_parameters(class: &str) -> Vec<Arc<str>> {
    let known = parse_cached(lines_of_path(MODULES, class));
    let params = known.first().map(|s| s.params.as_slice()).unwrap_or_default();
    let positional = params.iter().filter(|p| !p.keyword_only);
    positional.map(|p| p.name.as_str().into()).collect()
}

/// Checks a Python operator as the method of its first operand that is a tensor.
fn check_operator(name: &str, args: &[Type], kwargs: &[(&str, &Type)]) -> Result<bool, BindError> {
    // Python's operator functions take no keywords.
    if let Some((keyword, _)) = kwargs.first() {
        return Err(BindError::UnknownKeyword {
            name: keyword.to_string(),
            nearest: None,
        });
    }
    let path = format!("Tensor.__{}__", name.trim_end_matches('_'));
    let is_tensor = |v: &Type| matches!(v, Val::Leaf(_));
    // In Python, comparing a tensor with an incomparable object is not an error; they are unequal.
    let comparable = |v: &Type| is_tensor(v) || is_number(v) || *v == Val::Unknown;
    if matches!(name, "eq" | "ne") && !args.iter().all(comparable) {
        return Ok(false);
    }
    match args {
        [a, ..] if is_tensor(a) => check_call(&path, args, kwargs),
        [a, b] if is_tensor(b) => check_call(&path, &[b.clone(), a.clone()], kwargs),
        _ => Ok(false),
    }
}

/// The error for a parameter without a value. If there is an unknown keyword, it is the likelier mistake.
fn missing_param_error(
    schema: &Schema,
    given: GivenArgs<'_>,
    param: &Param,
    is_known: impl Fn(&str) -> bool,
) -> BindError {
    let unknown = given.kwargs.iter().find(|(k, _)| !is_known(k));
    match unknown {
        Some((name, _)) => unknown_keyword(schema, name),
        None => BindError::Missing(param.name.clone()),
    }
}

fn unknown_keyword(schema: &Schema, name: &str) -> BindError {
    BindError::UnknownKeyword {
        name: name.to_string(),
        nearest: nearest(name, schema.params.iter().map(|p| &*p.name)).map(str::to_string),
    }
}

/// The error for a keyword argument that no parameter took; `used` marks those that were taken.
fn surplus_keyword(schema: &Schema, given: GivenArgs<'_>, used: &[bool]) -> Option<BindError> {
    let left = used.iter().position(|u| !u)?;
    let name = given.kwargs[left].0;
    Some(match schema.index_of(name) {
        Some(_) => BindError::Twice(name.to_string()),
        None => unknown_keyword(schema, name),
    })
}

fn wrong_type(param: &Param, v: &Type, origin: super::ParamOrigin) -> BindError {
    BindError::WrongType {
        param: param.name.clone(),
        expected: param.ty.clone(),
        found: v.kind_name(),
        origin,
    }
}

/// Whether `v` is a name-like value (string, dtype, device, layout) of type `ty`. torch's parser and its dispatcher
/// agree on these.
fn is_name_of_type(ty: &ParamType, v: &Type) -> bool {
    use ParamType as P;
    match (ty, v) {
        (P::Str, Val::Str(_) | Val::Any(ScalarKind::Str)) => true,
        (P::DType, Val::DType(_) | Val::Opaque(_)) => true,
        (P::Device, Val::Device(_)) => true,
        (P::Device, Val::Str(name)) => is_device(name),
        (P::MemoryFormat, Val::TorchName(n)) => is_memory_format(n),
        (P::Layout, Val::TorchName(n)) => !is_memory_format(n),
        (P::Generator, Val::Opaque(_)) => true,
        _ => false,
    }
}

fn is_bool(v: &Type) -> bool {
    matches!(v, Val::Bool(_) | Val::Any(ScalarKind::Bool))
}

fn is_int(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Any(ScalarKind::Int))
}

/// Whether a value is a bool, an int or a float.
fn is_real(v: &Type) -> bool {
    is_bool(v) || is_int(v) || matches!(v, Val::Float(_) | Val::Any(ScalarKind::Float))
}

fn is_number(v: &Type) -> bool {
    is_real(v) || matches!(v, Val::Complex(..))
}

/// The type of a tensor that has rank 0 or unknown rank.
fn zero_dim(v: &Type) -> Option<&TensorType> {
    v.as_leaf().filter(|t| t.rank().is_none_or(|r| r == 0))
}

/// The type of a tensor that has, or may have, exactly one element.
fn one_element(v: &Type) -> Option<&TensorType> {
    let single = |t: &&TensorType| match &t.shape {
        Some(dims) => dims.iter().all(|d| d.as_const().is_none_or(|n| n == 1)),
        None => true,
    };
    v.as_leaf().filter(single)
}

/// Whether torch knows a device of this name: `cpu`, `cuda:1`.
fn is_device(name: &str) -> bool {
    const KINDS: &str =
        "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia privateuseone";
    let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
    KINDS.split(' ').any(|k| k == kind) && index.parse::<u8>().is_ok()
}

fn is_memory_format(name: &str) -> bool {
    name.ends_with("_format") || name.starts_with("channels_last")
}

#[cfg(test)]
mod tests;
