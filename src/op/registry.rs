//! Resolves a spelling and the arguments' types to a row of the table.

use super::bind::{ParamOrigin, find_param};
use super::table::{self, is_spelling};
use super::{
    BindError, Binding, Form, Leniency, Literal, Op, OpResult, Schema, custom, demands, modules, numbers, outs,
    signature,
};
use crate::op::{Call, lift_literal};
use crate::types::{Type, Val};

/// Normalises a target to the table's spelling: `torch.ops.aten.add.Tensor` is `aten.add.Tensor`, `torch.Tensor.add`
/// and the method `add` are `Tensor.add`, `_operator.add` is `operator.add`.
pub fn canonical_path(target: &str, is_method: bool) -> String {
    if is_method {
        return format!("Tensor.{target}");
    }
    let t = target.strip_prefix("torch.ops.").unwrap_or(target);
    let t = match t.strip_prefix("torch.Tensor.") {
        Some(m) => return format!("Tensor.{m}"),
        None => t,
    };
    // Functions of torch's C++ part have public names in other modules.
    for (private, public) in [
        ("_operator.", "operator."),
        ("torch._C._nn.", "torch.nn.functional."),
        ("torch._C._special.special_", "torch.special."),
        ("torch.functional.", "torch."),
        // Usual import aliases.
        ("F.", "torch.nn.functional."),
        ("nn.functional.", "torch.nn.functional."),
    ] {
        if let Some(m) = t.strip_prefix(private) {
            // Some of the private functions have other parameters.
            let public = format!("{public}{m}");
            let keeps_path = is_spelling(t) && (private == "torch._C._nn." || !is_spelling(&public));
            return if keeps_path { t.to_string() } else { public };
        }
    }
    t.to_string()
}

/// One interpretation of a spelling.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The row.
    pub op: &'static Op,
    /// The spelling's form; `None` for the bare canonical name.
    pub form: Option<&'static Form>,
}

/// The reading of a spelling as an op registered in Rust. Ops that a file declares are visible only in that file.
fn registered_candidate(path: &str) -> Option<Candidate> {
    let op = custom::find(path).filter(|op| op.custom.is_some())?;
    Some(Candidate { op, form: None })
}

/// The table's readings of a spelling.
fn table_candidates(path: &str) -> impl Iterator<Item = Candidate> {
    table::readings_of(path).map(|(op, form)| Candidate { op, form })
}

/// All readings of the spelling `path` (see [`canonical_path`]), in the order to try.
pub fn candidates(path: &str) -> Vec<Candidate> {
    let candidates: Vec<Candidate> = table_candidates(path).chain(registered_candidate(path)).collect();
    match imported_path(path).filter(|_| candidates.is_empty()) {
        Some(full) => table_candidates(&full).collect(),
        None => candidates,
    }
}

/// The modules in which a name without a module is looked up after the canonical ops, in this order.
const MODULES: [&str; 7] = [
    "torch.",
    "torch.nn.functional.",
    "operator.",
    "builtins.",
    "math.",
    "torch.special.",
    "Tensor.",
];

/// The function that is usually meant by a name without a module: `torch.max` for `max`, `operator.truediv` for
/// `truediv`.
pub(crate) fn imported_path(name: &str) -> Option<String> {
    if name.contains('.') {
        return None;
    }
    let full = MODULES.iter().map(|m| format!("{m}{name}"));
    full.into_iter().find(|f| is_spelling(f))
}

/// How closely arguments must fit a reading's declaration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Exactly.
    Declared,
    /// Leniently, see [`Candidate::bind`].
    Lenient,
    /// torch's own signature accepts them, so they are converted as torch does.
    Checked,
}

/// A spelling resolved for given arguments: the row and the origins of its parameters' values.
#[derive(Clone, Debug)]
pub struct Spelling {
    /// The row.
    pub op: &'static Op,
    /// Whether the result is written to the first parameter.
    pub inplace: bool,
    /// Whether the result has memory of its own although the row's result may share its operand's: `view_copy`.
    pub copies: bool,
    /// The path and schema of the spelling; `None` for the bare canonical name.
    named: Option<(&'static str, &'static Schema)>,
    binding: Binding,
    /// For each of the row's parameters: its position in the form's schema, or a fixed value.
    params: Vec<Result<usize, Literal>>,
}

impl Spelling {
    /// The call with arguments in any form. They must have the same structure as the arguments that the spelling was
    /// resolved with.
    pub fn apply<U: Clone>(&self, args: &[Val<U>], kwargs: &[(&str, &Val<U>)]) -> Call<U> {
        self.apply_with(args, kwargs, &|_| false)
    }

    /// The path of the spelling, if it is one of the table's.
    pub fn path(&self) -> Option<&'static str> {
        self.named.map(|(path, _)| path)
    }

    /// The origin of the value of the row's parameter `name`.
    pub fn origin(&self, name: &str) -> Option<&ParamOrigin> {
        let index = self.op.schema.index_of(name)?;
        self.binding.origins().get(*self.params.get(index)?.as_ref().ok()?)
    }

    /// Returns an error if the arguments, with which the spelling was resolved, violate torch's demands beyond their
    /// kinds.
    pub fn check_demands(&self, args: &[Type], kwargs: &[(&str, &Type)]) -> OpResult<()> {
        if let Some((path, schema)) = self.named {
            demands::check_call(path, schema, || self.binding.apply(args, kwargs, &|_| false))?;
        }
        demands::check_call(self.op.name, &self.op.schema, || self.apply(args, kwargs).args)
    }

    /// [`Spelling::apply`] where some leaves stand for whole lists, like the holes of a pattern.
    pub fn apply_with<U: Clone>(
        &self,
        args: &[Val<U>],
        kwargs: &[(&str, &Val<U>)],
        whole: &dyn Fn(&U) -> bool,
    ) -> Call<U> {
        let bound = self.binding.apply(args, kwargs, whole);
        let args = self
            .params
            .iter()
            .map(|p| match p {
                Ok(i) => bound[*i].clone(),
                Err(v) => lift_literal(v),
            })
            .collect();
        Call { op: self.op, args }
    }
}

impl Candidate {
    /// The schema of this reading.
    pub fn schema(&self) -> &'static Schema {
        self.form.map_or(&self.op.schema, |f| f.schema_of(self.op))
    }

    /// Binds arguments of these types to this reading: as declared, or leniently (numbers for tensors if the op takes
    /// them, 0-dim tensors for numbers).
    pub fn bind(&self, args: &[Type], kwargs: &[(&str, &Type)], lenient: bool) -> Result<Spelling, BindError> {
        self.bind_as(args, kwargs, if lenient { Fit::Lenient } else { Fit::Declared })
    }

    /// Binds arguments that torch accepts to this reading, converting them as torch does.
    pub fn bind_checked(&self, args: &[Type], kwargs: &[(&str, &Type)]) -> Result<Spelling, BindError> {
        self.bind_as(args, kwargs, Fit::Lenient)
            .or_else(|_| self.bind_as(args, kwargs, Fit::Checked))
    }

    fn bind_as(&self, args: &[Type], kwargs: &[(&str, &Type)], fit: Fit) -> Result<Spelling, BindError> {
        let schema = self.schema();
        let lenient = fit != Fit::Declared;
        let leniency = Leniency {
            numbers_as_tensors: lenient && self.op.takes_numbers(),
            tensors_as_numbers: lenient,
            converted: fit == Fit::Checked,
        };
        let binding = Binding::new(schema, args, kwargs, leniency)?;
        // `relu(x, inplace=True)`.
        let flag = schema.index_of("inplace");
        let inplace = flag.is_some_and(|i| binding.apply(args, kwargs, &|_| false)[i] == Val::Bool(true));
        let reduction = legacy_reduction(schema, &binding.apply(args, kwargs, &|_| false));
        let params = self.op.schema.params.iter().map(|p| {
            if let Some(v) = reduction.as_ref().filter(|_| p.name == "reduction") {
                return Err(v.clone());
            }
            if let Some((_, v)) = self.form.iter().flat_map(|f| &f.fixed).find(|(n, _)| *n == p.name) {
                return Err(v.clone());
            }
            // torch's Python functions have `input` where its schemas have `self`.
            find_param(schema, &p.name).ok_or_else(|| p.default.clone().unwrap_or(Val::None))
        });
        Ok(Spelling {
            op: self.op,
            copies: false,
            named: None,
            inplace: inplace || self.form.is_some_and(|f| f.inplace),
            params: params.collect(),
            binding,
        })
    }
}

/// The reduction that a loss's deprecated arguments `size_average` and `reduce` select, if they are given
/// (`torch.nn._reduction.legacy_get_string`).
fn legacy_reduction(schema: &Schema, bound: &[Type]) -> Option<Literal> {
    let argument = |name: &str| schema.index_of(name).map(|i| &bound[i]);
    modules::legacy_reduction(argument("size_average")?.as_int(), argument("reduce")?.as_int())
}

/// The row that `path` means for arguments of these types: the first overload that fits as declared, else the first
/// that fits leniently. A name without a module is the canonical op, or else the function at its [`imported_path`].
/// `Err(None)` means that the spelling is not in the table; other errors say why torch's signatures or the nearest
/// overload do not fit.
pub fn resolve(
    path: &str,
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    let checked = check_signature(path, args, kwargs).map_err(Some)?;
    resolve_checked(path, args, kwargs, checked)
}

/// Whether torch accepts these arguments for the spelling `path` by a signature of its own; `false` if no signature is
/// known. Returns an error if torch rejects them.
pub(crate) fn check_signature(
    path: &str,
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<bool, (Candidate, BindError)> {
    signature::check_call(path, args, kwargs).or_else(|e| {
        let packet = outs::writing_overload(path)
            .filter(|_| !is_spelling(path))
            .map(|w| w.packet);
        match candidates(packet.unwrap_or(path)).first() {
            Some(c) => Err((*c, e)),
            None => Ok(false),
        }
    })
}

/// [`resolve`] for arguments that torch's signatures accept, if `checked`.
pub(crate) fn resolve_checked(
    path: &str,
    args: &[Type],
    kwargs: &[(&str, &Type)],
    checked: bool,
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    let resolved = resolve_path(path, args, kwargs, checked);
    match imported_path(path) {
        Some(imported) if resolved.is_err() && registered_candidate(path).is_none() => {
            resolve(&imported, args, kwargs).map_err(|e| resolved.err().flatten().or(e))
        }
        _ => resolved,
    }
}

fn resolve_path(
    path: &str,
    args: &[Type],
    kwargs: &[(&str, &Type)],
    checked: bool,
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    let fits: &[Fit] = match checked {
        true => &[Fit::Declared, Fit::Lenient, Fit::Checked],
        false => &[Fit::Declared, Fit::Lenient],
    };
    let (candidate, mut spelling) = first_that_fits(&candidates(path), args, kwargs, fits)?;
    spelling.copies = path.contains("_copy") && candidate.op.aliases;
    spelling.named = table::find_spelling(path).map(|p| (p, candidate.schema()));
    if checked {
        return Ok(spelling);
    }
    let numbers = spelling.binding.numbers_for_tensors(candidate.schema(), args, kwargs);
    let set = numbers
        .iter()
        .fold(0, |set, (i, _)| set | 1u32.checked_shl(*i as u32).unwrap_or(0));
    match numbers.into_iter().next() {
        Some((_, e)) if !numbers::allows_numbers(path, set) => Err(Some((candidate, e))),
        _ => Ok(spelling),
    }
}

/// Whether `path` could mean several rows because some argument types are unknown: `torch._assert(%unknown, "…")`
/// checks a tensor or a number.
pub(crate) fn is_open(path: &str, args: &[Type], kwargs: &[(&str, &Type)]) -> bool {
    let all = candidates(path);
    [false, true].into_iter().any(|lenient| {
        let fits = all.iter().filter(|c| c.bind(args, kwargs, lenient).is_ok());
        let mut rows = fits.map(|c| c.op.name);
        let first = rows.next();
        first.is_some() && rows.any(|r| Some(r) != first)
    })
}

/// [`resolve`] among given readings.
pub(crate) fn resolve_among(
    candidates: &[Candidate],
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    first_that_fits(candidates, args, kwargs, &[Fit::Declared, Fit::Lenient]).map(|(_, s)| s)
}

fn first_that_fits(
    candidates: &[Candidate],
    args: &[Type],
    kwargs: &[(&str, &Type)],
    fits: &[Fit],
) -> Result<(Candidate, Spelling), Option<(Candidate, BindError)>> {
    let mut nearest: Option<(Candidate, BindError)> = None;
    for fit in fits {
        for c in candidates {
            match c.bind_as(args, kwargs, *fit) {
                Ok(s) => return Ok((*c, s)),
                Err(e)
                    if nearest
                        .as_ref()
                        .is_none_or(|(_, n)| fit_closeness(&e) > fit_closeness(n)) =>
                {
                    nearest = Some((*c, e))
                }
                Err(_) => {}
            }
        }
    }
    Err(nearest)
}

/// Ranks errors by how close the arguments are to fitting: an overload with an argument of the wrong type is likelier
/// to be meant than one that lacks the parameter.
fn fit_closeness(e: &BindError) -> u8 {
    match e {
        BindError::WrongType { .. } => 5,
        BindError::Twice(_) => 4,
        BindError::UnknownKeyword { nearest: Some(_), .. } => 3,
        BindError::Missing(_) => 2,
        BindError::UnknownKeyword { .. } => 1,
        BindError::TooMany { .. } => 0,
    }
}
