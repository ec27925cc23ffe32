//! Resolves calls in TorchScript to calls in torch.fx.
//!
//! TorchScript does not name overloads, passes every argument by position (even those after the `*` of the schema), and
//! writes dtypes, layouts and memory formats as integers. The schemas of the op table determine the overload and its
//! arguments.

use crate::graph::{Arg, Opcode};
use crate::op::{self, ParamType};
use crate::types::{DType, Val};
use std::sync::Arc;

/// A call: target, positional and keyword arguments.
pub(super) type ResolvedCall = (Arc<str>, Vec<Arg>, Vec<(Arc<str>, Arg)>);

/// Resolves a call of `torch.ops.aten.NAME` with these arguments to the overload that fits them best. Functions that
/// the op table does not have stay unchanged.
pub(super) fn resolve_call(op: Opcode, target: &str, args: Vec<Arg>) -> ResolvedCall {
    let unchanged = |args| (target.into(), args, vec![]);
    if op != Opcode::CallFunction || !target.starts_with("torch.ops.") {
        return unchanged(args);
    }
    let candidates = op::candidates(&op::canonical_path(target, false));
    let scored = candidates
        .iter()
        .filter_map(|c| Some((match_cost(c.schema(), &args)?, c)));
    let Some((_, best)) = scored.min_by_key(|(cost, _)| *cost) else {
        return match without_tail(&args) {
            Some(fewer) if !candidates.is_empty() => resolve_call(op, target, fewer),
            _ => unchanged(args),
        };
    };
    let target: Arc<str> = match best_overload(target, best, &args) {
        Some(path) => format!("torch.ops.{path}").into(),
        None => target.into(),
    };
    let mut positional = vec![];
    let mut keyword = vec![];
    let mut by_name = false;
    for (p, a) in best.schema().params.iter().zip(args) {
        let a = decode_int_arg(&p.ty, a);
        // Most overloads take the dtype by keyword only, and all accept a keyword. Arguments after a keyword must be
        // keywords too.
        by_name |= p.keyword_only || p.name == "dtype";
        if !by_name {
            positional.push(a);
        } else if p.default.is_none() || !matches!(a, Val::None) {
            keyword.push((p.name.as_str().into(), a));
        }
    }
    (target, positional, keyword)
}

/// The number of arguments that do not fit their parameters, and the number of parameters without an argument; `None`
/// if there are too few parameters.
fn match_cost(schema: &op::Schema, args: &[Arg]) -> Option<(usize, usize)> {
    let params = &schema.params;
    let misfits = params
        .iter()
        .zip(args)
        .filter(|(p, a)| !param_accepts(&p.ty, a))
        .count();
    (params.len() >= args.len()).then(|| (misfits, params.len() - args.len()))
}

/// The overload of a packet that fits the arguments best, among torch's overloads that map to this op.
fn best_overload(target: &str, row: &op::Candidate, args: &[Arg]) -> Option<String> {
    let packet = target.trim_start_matches("torch.ops.");
    let mut paths = row.form?.paths();
    let is_overload = |p: &&str| p.strip_prefix(packet).is_some_and(|r| r.starts_with('.'));
    let torch = op::overloads(packet)
        .into_iter()
        .filter(|s| paths.clone().any(|p| p == s.name));
    let scored = torch.filter_map(|s| Some((match_cost(&s, args)?, s.name)));
    let best = scored.min_by_key(|(cost, _)| *cost).map(|(_, name)| name.to_string());
    best.or_else(|| paths.find(is_overload).map(str::to_string))
}

/// The arguments without a trailing layout, device and pinning flag (and an unset memory format). They determine the
/// placement of a new tensor, and the op table's schemas omit them.
fn without_tail(args: &[Arg]) -> Option<Vec<Arg>> {
    let tail = |a: &[Arg]| match a {
        [.., layout, device, pin] => {
            matches!(layout, Val::None | Val::Int(_))
                && matches!(device, Val::None | Val::Device(_) | Val::Str(_) | Val::Leaf(_))
                && matches!(pin, Val::None | Val::Bool(_))
        }
        _ => false,
    };
    let shorter = match args {
        [rest @ .., Val::None] if tail(rest) => rest,
        _ if tail(args) => args,
        _ => return None,
    };
    Some(shorter[..shorter.len() - 3].to_vec())
}

/// Whether an argument may have this type. Nothing is known about the type of a node.
fn param_accepts(ty: &ParamType, a: &Arg) -> bool {
    match (ty, a) {
        (ParamType::Any, _) => true,
        (ParamType::Optional(_), Val::None) => true,
        (ParamType::Optional(inner), a) => param_accepts(inner, a),
        (ParamType::List(item, _), Val::List(v) | Val::Tuple(v)) => v.iter().all(|x| param_accepts(item, x)),
        (ParamType::List(..), Val::Leaf(_)) => true,
        (ParamType::Str, a) => matches!(a, Val::Str(_) | Val::Leaf(_)),
        (ParamType::Bool, a) => matches!(a, Val::Bool(_) | Val::Leaf(_)),
        (ParamType::Int | ParamType::DType | ParamType::Layout | ParamType::MemoryFormat, a) => {
            matches!(a, Val::Int(_) | Val::Leaf(_))
        }
        (ParamType::Float | ParamType::Number, a) => matches!(a, Val::Int(_) | Val::Float(_) | Val::Bool(_)),
        (ParamType::Device, a) => matches!(a, Val::Device(_) | Val::Str(_)),
        (ParamType::Tensor, a) => matches!(a, Val::Leaf(_)),
        _ => false,
    }
}

/// Decodes an integer if the parameter has another type.
fn decode_int_arg(ty: &ParamType, a: Arg) -> Arg {
    let ty = match ty {
        ParamType::Optional(inner) => inner,
        ty => ty,
    };
    let Some(i) = a.as_int() else { return a };
    let names: &[&str] = match ty {
        ParamType::DType => return DType::from_scalar_type(i).map_or(a, Val::DType),
        ParamType::Layout => &["strided", "sparse_coo", "sparse_csr"],
        ParamType::MemoryFormat => &[
            "contiguous_format",
            "preserve_format",
            "channels_last",
            "channels_last_3d",
        ],
        ParamType::Bool => return Val::Bool(i != 0),
        _ => return a,
    };
    match usize::try_from(i).ok().and_then(|i| names.get(i)) {
        Some(n) => Val::TorchName((*n).into()),
        None => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    #[test]
    fn overloads_keywords_and_dtypes() {
        let mut g = Graph::new();
        let x = Val::Leaf(g.placeholder("x", None));
        let int = |i: i64| Arg::int(i);
        let (target, args, kwargs) = resolve_call(
            Opcode::CallFunction,
            "torch.ops.aten.add",
            vec![x.clone(), x.clone(), int(2)],
        );
        assert_eq!((&*target, args.len()), ("torch.ops.aten.add.Tensor", 2));
        assert_eq!(kwargs, [("alpha".into(), int(2))]);
        let args = vec![
            Val::List(vec![int(2)]),
            int(6),
            Val::None,
            Val::Device("cpu".into()),
            Val::Bool(false),
        ];
        let (target, args, kwargs) = resolve_call(Opcode::CallFunction, "torch.ops.aten.zeros", args);
        assert_eq!((&*target, args.len()), ("torch.ops.aten.zeros.default", 1));
        assert_eq!(kwargs[0], ("dtype".into(), Val::DType(DType::F32)));
        // Arguments after a dtype are keywords too.
        let args = vec![x.clone(), int(7), Val::Bool(false), Val::Bool(true), Val::None];
        let (target, args, kwargs) = resolve_call(Opcode::CallFunction, "torch.ops.aten.to", args);
        assert_eq!((&*target, args.len()), ("torch.ops.aten.to.dtype", 1));
        let (no, yes) = (Val::Bool(false), Val::Bool(true));
        let want = [("dtype", Val::DType(DType::F64)), ("non_blocking", no), ("copy", yes)];
        assert_eq!(kwargs, want.map(|(name, v)| (name.into(), v)));
        let (target, args, _) = resolve_call(Opcode::CallFunction, "torch.ops.mine.f", vec![x]);
        assert_eq!((&*target, args.len()), ("torch.ops.mine.f", 1));
    }
}
