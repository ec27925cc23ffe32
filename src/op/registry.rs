//! From a spelling and the arguments' types to a row of the table.

use super::bind::Origin;
use super::bind::find_param;
use super::{BindError, Binding, Form, Leniency, Literal, Op, ParamType, Schema, custom, modules, numbers, rows};
use crate::op::{Call, lift};
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::LazyLock;

struct Registry {
    ops: Vec<Op>,
    by_name: HashMap<&'static str, usize>,
    /// Path to `(op, form)`; `None` is the bare canonical name. In table order, which is the order overloads are tried.
    by_path: HashMap<&'static str, Vec<(usize, Option<usize>)>>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let ops = rows::all();
    let mut by_name = HashMap::new();
    let mut by_path: HashMap<&'static str, Vec<_>> = HashMap::new();
    for (i, op) in ops.iter().enumerate() {
        assert!(
            by_name.insert(op.name, i).is_none(),
            "op `{}` is declared twice",
            op.name
        );
        by_path.entry(op.name).or_default().push((i, None));
        for (f, form) in op.forms.iter().enumerate() {
            for path in &form.paths {
                by_path.entry(path).or_default().push((i, Some(f)));
            }
            // `aten.add` (torch's overload packet) tries every overload of `add`.
            let mut packets: Vec<&str> = form.paths.iter().filter_map(|p| packet(p)).collect();
            packets.dedup();
            for p in packets {
                by_path.entry(p).or_default().push((i, Some(f)));
            }
        }
    }
    Registry { ops, by_name, by_path }
});

fn packet(path: &'static str) -> Option<&'static str> {
    let (head, _) = path.strip_prefix("aten.").and_then(|r| r.rsplit_once('.'))?;
    Some(&path[..5 + head.len()])
}

/// Every row, in the table's order.
pub fn all() -> &'static [Op] {
    &REGISTRY.ops
}

/// The row of the canonical name.
pub fn by_name(name: &str) -> Option<&'static Op> {
    let row = REGISTRY.by_name.get(name).map(|&i| &REGISTRY.ops[i]);
    row.or_else(|| custom::find(name).filter(|op| op.name == name))
}

/// Whether the table has the name or spelling.
pub fn is_spelling(path: &str) -> bool {
    REGISTRY.by_path.contains_key(path)
}

/// Every spelling there is, canonical names included.
pub fn spellings() -> impl Iterator<Item = &'static str> {
    let custom = custom::registered()
        .into_iter()
        .filter(|op| op.custom.is_some())
        .map(|op| op.name);
    REGISTRY.by_path.keys().copied().chain(custom)
}

/// A target as the table spells it: `torch.ops.aten.add.Tensor` is `aten.add.Tensor`, `torch.Tensor.add` and the method
/// `add` are `Tensor.add`, `_operator.add` is `operator.add`.
pub fn canonical_path(target: &str, is_method: bool) -> String {
    if is_method {
        return format!("Tensor.{target}");
    }
    let t = target.strip_prefix("torch.ops.").unwrap_or(target);
    let t = match t.strip_prefix("torch.Tensor.") {
        Some(m) => return format!("Tensor.{m}"),
        None => t,
    };
    // What Python imports from torch's C++ part has its public name elsewhere.
    for (private, public) in [
        ("_operator.", "operator."),
        ("torch._C._nn.", "torch.nn.functional."),
        ("torch._C._special.special_", "torch.special."),
        ("torch.functional.", "torch."),
    ] {
        if let Some(m) = t.strip_prefix(private) {
            return format!("{public}{m}");
        }
    }
    t.to_string()
}

/// One reading of a spelling.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The row.
    pub op: &'static Op,
    /// The spelling's form; `None` for the bare canonical name.
    pub form: Option<&'static Form>,
}

/// The reading of a spelling as an op that was registered in Rust. Those that files declare are known to these files alone.
fn registered(path: &str) -> Option<Candidate> {
    let op = custom::find(path).filter(|op| op.custom.is_some())?;
    Some(Candidate { op, form: None })
}

/// All readings of the spelling `path` (see [`canonical_path`]), in the order to try.
pub fn candidates(path: &str) -> Vec<Candidate> {
    let list = REGISTRY.by_path.get(path).map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|&(op, form)| Candidate {
            op: &REGISTRY.ops[op],
            form: form.map(|f| &REGISTRY.ops[op].forms[f]),
        })
        .chain(registered(path))
        .collect()
}

/// A spelling resolved against arguments: the row and how its parameters are filled.
#[derive(Clone, Debug)]
pub struct Spelling {
    /// The row.
    pub op: &'static Op,
    /// Whether the result is written to the first parameter.
    pub inplace: bool,
    /// Whether the result has memory of its own where the row's result may be its operand's: `view_copy`.
    pub copies: bool,
    binding: Binding,
    /// For each of the row's parameters: the position in the form's schema, or a fixed value.
    params: Vec<Result<usize, Literal>>,
}

impl Spelling {
    /// The call with arguments in any form. They must be the ones (in shape) that the spelling was resolved with.
    pub fn apply<U: Clone>(&self, args: &[Val<U>], kwargs: &[(&str, &Val<U>)]) -> Call<U> {
        self.apply_with(args, kwargs, &|_| false)
    }

    /// [`Spelling::apply`] where some leaves stand for whole lists, as the holes of a pattern do.
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
                Err(v) => lift(v),
            })
            .collect();
        Call { op: self.op, args }
    }
}

impl Candidate {
    /// The schema of this reading.
    pub fn schema(&self) -> &'static Schema {
        self.form.and_then(|f| f.schema.as_ref()).unwrap_or(&self.op.schema)
    }

    /// Fits arguments of these types to this reading: as it is declared, or leniently (numbers for tensors where the op
    /// takes them, 0-d tensors for numbers).
    pub fn bind(&self, args: &[Type], kwargs: &[(&str, &Type)], lenient: bool) -> Result<Spelling, BindError> {
        let schema = self.schema();
        let leniency = Leniency {
            numbers_as_tensors: lenient && self.op.takes_numbers(),
            tensors_as_numbers: lenient,
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
            // torch's Python functions say `input` where its schemas say `self`.
            find_param(schema, &p.name).ok_or_else(|| p.default.clone().unwrap_or(Val::None))
        });
        Ok(Spelling {
            op: self.op,
            copies: false,
            inplace: inplace || self.form.is_some_and(|f| f.inplace),
            params: params.collect(),
            binding,
        })
    }
}

/// What the deprecated arguments `size_average` and `reduce` of a loss say about its reduction, if they are given
/// (`torch.nn._reduction.legacy_get_string`).
fn legacy_reduction(schema: &Schema, bound: &[Type]) -> Option<Literal> {
    let given = |name: &str| schema.index_of(name).map(|i| &bound[i]);
    modules::legacy_reduction(given("size_average")?.as_int(), given("reduce")?.as_int())
}

/// The row that `path` means for arguments of these types: the first overload that fits as declared, else the first
/// that fits leniently. `Err(None)` for a spelling
/// that is not in the table, else the reason the last overload does not fit.
pub fn resolve(
    path: &str,
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    let (found, mut spelling) = first_that_fits(&candidates(path), args, kwargs)?;
    spelling.copies = path.contains("_copy") && found.op.aliases;
    let numbers = spelling.binding.numbers_for_tensors(found.schema(), args, kwargs);
    let set = numbers
        .iter()
        .fold(0, |set, (i, _)| set | 1u32.checked_shl(*i as u32).unwrap_or(0));
    match numbers.into_iter().next() {
        Some((_, e)) if !numbers::allowed(path, set) => Err(Some((found, e))),
        Some(_) => Ok(spelling),
        None if !found.op.takes_numbers() || !numbers::demanded(path) => Ok(spelling),
        None => match tensor_for_number(&found, &spelling, args, kwargs) {
            Some(e) => Err(Some((found, e))),
            None => Ok(spelling),
        },
    }
}

/// The last tensor of a call of an overload that takes a number, if no argument is one.
fn tensor_for_number(found: &Candidate, s: &Spelling, args: &[Type], kwargs: &[(&str, &Type)]) -> Option<BindError> {
    let is_tensor = |v: &Type| matches!(v, Val::Leaf(_));
    let other = |v: &Type| !is_tensor(v) && *v != Val::None;
    if args.iter().chain(kwargs.iter().map(|(_, v)| *v)).any(other) {
        return None;
    }
    let params = found.schema().params.iter().zip(s.binding.origins());
    let mut tensors = params.filter_map(|(p, origin)| {
        let v = match origin {
            Origin::Positional(i) => &args[*i],
            Origin::Keyword(i) => kwargs[*i].1,
            Origin::Rest(_) | Origin::Default(_) => return None,
        };
        is_tensor(v).then(|| BindError::WrongType {
            param: p.name.clone(),
            expected: ParamType::Number,
            found: v.kind_name(),
            origin: origin.clone(),
        })
    });
    tensors.next_back()
}

/// [`resolve`] among given readings.
pub fn resolve_among(
    candidates: &[Candidate],
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<Spelling, Option<(Candidate, BindError)>> {
    first_that_fits(candidates, args, kwargs).map(|(_, s)| s)
}

fn first_that_fits(
    candidates: &[Candidate],
    args: &[Type],
    kwargs: &[(&str, &Type)],
) -> Result<(Candidate, Spelling), Option<(Candidate, BindError)>> {
    let mut last = None;
    for lenient in [false, true] {
        for c in candidates {
            match c.bind(args, kwargs, lenient) {
                Ok(s) => return Ok((*c, s)),
                Err(e) => last = Some((*c, e)),
            }
        }
    }
    Err(last)
}
