//! The names in generated code for values from outside, in which underscores replace dots.

use super::tree::{Arg, Expr, ExprKind};

/// Python functions that graphs call by their bare names.
const BUILTINS: [&str; 20] = [
    "abs",
    "all",
    "any",
    "bool",
    "divmod",
    "float",
    "getattr",
    "hasattr",
    "int",
    "isinstance",
    "len",
    "list",
    "max",
    "min",
    "pow",
    "round",
    "setattr",
    "sum",
    "tuple",
    "range",
];

/// Modules of wrapped library functions, which generated code calls by such names.
const MODULES: [&str; 9] = [
    "torchvision.ops.stochastic_depth",
    "torchvision.ops.boxes",
    "torchvision.ops.misc",
    "torchvision.ops.roi_align",
    "torchvision.models.swin_transformer",
    "torchvision.models.maxvit",
    "torchvision.models.video.mvit",
    "torchvision.models.video.swin_transformer",
    "einops.einops",
];

/// The path of the function that the name or path `text` calls: `math_sqrt` is `math.sqrt`. The graph builder resolves
/// other functions. Those that the text wraps keep a dot, which distinguishes them from torch's own.
pub(super) fn function_path(text: &str, wrapped: &[String]) -> String {
    if text.contains('.') {
        return match text.strip_prefix("_operator.") {
            Some(name) => format!("operator.{name}"),
            None => text.into(),
        };
    }
    for (prefix, module) in [("_operator_", "operator"), ("math_", "math"), ("__main___", "__main__")] {
        if let Some(name) = text.strip_prefix(prefix) {
            return format!("{module}.{name}");
        }
    }
    let known = MODULES.iter().find_map(|m| {
        let name = text.strip_prefix(&m.replace('.', "_"))?.strip_prefix('_')?;
        Some(format!("{m}.{name}"))
    });
    if let Some(path) = known {
        return path;
    }
    if BUILTINS.contains(&text) {
        return format!("builtins.{text}");
    }
    if wrapped.iter().any(|w| w == text)
        && let Some(underscore) = text[1..].find('_').map(|i| i + 1)
    {
        return format!("{}.{}", &text[..underscore], &text[underscore + 1..]);
    }
    text.into()
}

/// An annotation in the format of `print(graph)`: `typing_Union[int,NoneType]` is `typing.Optional[int]`.
pub(super) fn annotation_text(e: &Expr) -> String {
    match &e.kind {
        ExprKind::None => "None".into(),
        ExprKind::Ellipsis => "...".into(),
        ExprKind::Str(s) => s.to_string(),
        ExprKind::Name(n) => type_path(n),
        ExprKind::Attr(base, name) => format!("{}.{}", annotation_text(base), name.text),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            let items: Vec<String> = items.iter().map(annotation_text).collect();
            items.join(", ")
        }
        ExprKind::Binary("or_", a, b) => format!("{} | {}", annotation_text(a), annotation_text(b)),
        ExprKind::Index(base, inner) => {
            let base = annotation_text(base);
            if base == "typing.Union"
                && let ExprKind::Tuple(items) = &inner.kind
                && let [inner, none] = &items[..]
                && matches!(annotation_text(none).as_str(), "NoneType" | "None")
            {
                return format!("typing.Optional[{}]", annotation_text(inner));
            }
            format!("{base}[{}]", annotation_text(inner))
        }
        ExprKind::Call(f, args) => {
            let args = args.iter().map(|a| match a {
                Arg::Positional(e) | Arg::Keywords(e) => annotation_text(e),
                Arg::Keyword(k, e) => format!("{}={}", k.text, annotation_text(e)),
            });
            format!("{}({})", annotation_text(f), args.collect::<Vec<_>>().join(", "))
        }
        ExprKind::Int(i) => i.to_string(),
        _ => "?".into(),
    }
}

/// The path for the generated name of a type.
fn type_path(name: &str) -> String {
    for (prefix, module) in [("typing_", "typing"), ("collections_abc_", "collections.abc")] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return format!("{module}.{rest}");
        }
    }
    name.into()
}
