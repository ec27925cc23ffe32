//! Parameters that generated code flattens.

use super::name_of;
use crate::syntax::ast::{Called, Name};
use crate::syntax::python_text::tree::{Arg, Expr, ExprKind};

/// The parameters flattened by `tree_flatten_spec([x, pair], self._in_spec)` or `tree_flatten_spec(([x],
/// {'scale':scale}), …)`.
pub(super) fn flattened_params(call: &Expr) -> Option<Called> {
    let ExprKind::Call(_, args) = &call.kind else {
        return None;
    };
    let Some(Arg::Positional(leaves)) = args.first() else {
        return None;
    };
    let list = |e: &Expr| match &e.kind {
        ExprKind::List(items) => items.iter().map(|i| Some(Name::new(name_of(i)?, i.span))).collect(),
        _ => None,
    };
    match &leaves.kind {
        ExprKind::List(_) => Some(Called {
            args: list(leaves)?,
            kwargs: None,
        }),
        ExprKind::Tuple(parts) => {
            let [args, kwargs] = &parts[..] else { return None };
            let ExprKind::Dict(pairs) = &kwargs.kind else {
                return None;
            };
            let named = pairs.iter().map(|(_, v)| Some(Name::new(name_of(v)?, v.span)));
            Some(Called {
                args: list(args)?,
                kwargs: Some(named.collect::<Option<Vec<Name>>>()?),
            })
        }
        _ => None,
    }
}
