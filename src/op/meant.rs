//! Suggestions for unknown op names.
//!
//! A function has several names (`torch.relu`, `F.relu`, `aten::relu`, `Tensor.relu`), and people confuse them with those of
//! numpy, with classes of `torch.nn` and with each other. A name is split into family, base and overload. Names with the same base
//! come first; if there are none, the nearest bases are suggested.

use super::modules;
use crate::diag::nearest::fold_name;
use crate::diag::{NameIndex, nearest};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A name split into family, base and overload: `aten`, `add`, `Tensor`; `torch.nn.functional`, `relu` and no overload.
#[derive(Clone, Copy, PartialEq)]
struct NameParts<'a> {
    family: &'a str,
    base: &'a str,
    overload: Option<&'a str>,
}

/// Families whose names have an overload after the base.
const OVERLOADED: [&str; 5] = ["aten", "prims", "quantized_decomposed", "prim", "ATen"];

fn split_name(path: &str) -> NameParts<'_> {
    let (family, rest) = path.split_once('.').unwrap_or(("", path));
    if OVERLOADED.contains(&family) {
        let (base, overload) = rest.split_once('.').map_or((rest, None), |(b, o)| (b, Some(o)));
        return NameParts { family, base, overload };
    }
    let (family, base) = path.rsplit_once('.').unwrap_or(("", path));
    NameParts {
        family,
        base,
        overload: None,
    }
}

/// Other names that people use for families.
const ALIASES: &[(&str, &str)] = &[
    ("F", "torch.nn.functional"),
    ("nn.functional", "torch.nn.functional"),
    ("functional", "torch.nn.functional"),
    ("nn", "torch.nn.functional"),
    ("torch.nn", "torch.nn.functional"),
    ("torch.F", "torch.nn.functional"),
    ("jax.nn", "torch.nn.functional"),
    ("tf.nn", "torch.nn.functional"),
    ("np", "torch"),
    ("numpy", "torch"),
    ("jnp", "torch"),
    ("jax.numpy", "torch"),
    ("tf", "torch"),
    ("tf.math", "torch"),
    ("tensorflow", "torch"),
    ("cupy", "torch"),
    ("cp", "torch"),
    ("paddle", "torch"),
    ("th", "torch"),
    ("pytorch", "torch"),
    ("np.linalg", "torch.linalg"),
    ("jnp.linalg", "torch.linalg"),
    ("linalg", "torch.linalg"),
    ("special", "torch.special"),
    ("scipy.special", "torch.special"),
    ("tensor", "Tensor"),
    ("torch.tensor", "Tensor"),
    ("prim", "aten"),
    ("ATen", "aten"),
    ("torch.aten", "aten"),
    ("op", "operator"),
    ("builtin", "builtins"),
];

/// The families to prefer, in this order, after the name's own.
const ORDER: [&str; 9] = [
    "torch",
    "torch.nn.functional",
    "operator",
    "Tensor",
    "torch.special",
    "torch.linalg",
    "aten",
    "",
    "builtins",
];

struct SpellingIndex {
    /// Spellings by normalised base.
    by_base: HashMap<String, Vec<&'static str>>,
    /// The bases of each family.
    families: HashMap<&'static str, NameIndex<'static>>,
    bases: NameIndex<'static>,
}

static INDEX: LazyLock<SpellingIndex> = LazyLock::new(|| {
    let mut by_base: HashMap<String, Vec<&'static str>> = HashMap::new();
    let mut families: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
    for s in super::table::table_spellings() {
        let p = split_name(s);
        by_base.entry(fold_name(p.base)).or_default().push(s);
        families.entry(p.family).or_default().push(p.base);
    }
    let bases = NameIndex::new(families.values().flatten().copied());
    let families = families.into_iter().map(|(f, names)| (f, NameIndex::new(names)));
    SpellingIndex {
        by_base,
        families: families.collect(),
        bases,
    }
});

/// The spellings that `path` may stand for, likeliest first, and whether they have the same base name rather than a
/// similar one. `method` says whether the call is a method call (`Tensor.relu`).
pub(crate) fn meant_spellings(path: &str, method: bool) -> (Vec<&'static str>, bool) {
    let path = path.replace("::", ".");
    let mut p = split_name(&path);
    if let Some((_, family)) = ALIASES.iter().find(|(from, _)| *from == p.family) {
        p.family = family;
    }
    let index = &*INDEX;
    let named = |base: &str| {
        index
            .by_base
            .get(&fold_name(base))
            .filter(|_| !fold_name(base).is_empty())
    };
    let (spellings, same_base) = match named(p.base) {
        Some(list) => (list, true),
        None => {
            let family = index.families.get(p.family).and_then(|names| names.nearest(p.base));
            match family.or_else(|| index.bases.nearest(p.base)).and_then(named) {
                Some(list) => (list, false),
                None => return (vec![], false),
            }
        }
    };
    let mut spellings = spellings.clone();
    spellings.retain(|s| !method || s.starts_with("Tensor."));
    spellings.sort_by_key(|s| spelling_rank(split_name(s), p, s));
    (spellings, same_base)
}

/// Whether a name belongs to a dispatcher library that the table does not know: `torch.ops.mylib.relu`, `mylib::relu`.
/// Such an op is user-defined, whatever its name. A misspelt known library (`atem::relu`) does not count.
pub(crate) fn is_of_own_library(target: &str) -> bool {
    let path = match (target.strip_prefix("torch.ops."), target.split_once("::")) {
        (Some(rest), _) => rest.replacen("::", ".", 1),
        (None, Some((library, rest))) => format!("{library}.{rest}"),
        (None, None) => return false,
    };
    let Some((library, _)) = path.split_once('.') else {
        return false;
    };
    let libraries = INDEX.families.keys().map(|f| f.split('.').next().unwrap_or(f));
    nearest(library, libraries.chain(ALIASES.iter().map(|(from, _)| *from))).is_none()
}

/// Sort key for spellings with the same base: how far each is from the name as written.
fn spelling_rank<'s>(c: NameParts<'_>, written: NameParts<'_>, s: &'s str) -> (bool, usize, bool, u8, &'s str) {
    let in_place = |b: &str| b.ends_with('_') && !b.starts_with('_');
    let family = match c.family == written.family {
        true => 0,
        false => 1 + ORDER.iter().position(|f| *f == c.family).unwrap_or(ORDER.len()),
    };
    let overload = match (c.overload, written.overload) {
        (a, b) if a == b => 0,
        (Some(a), Some(b)) if nearest(b, [a]).is_some() => 1,
        (None | Some("default"), _) => 2,
        _ => 3,
    };
    (
        in_place(c.base) != in_place(written.base),
        family,
        c.base != written.base,
        overload,
        s,
    )
}

/// The class of `torch.nn` that a name stands for: `ReLU` for `torch.nn.ReLU`, `nn.Relu`, `relu` and `MyReLU`.
pub(crate) fn class_meant(path: &str) -> Option<&'static str> {
    let base = path.rsplit(['.', ':']).next().unwrap_or(path);
    let folded = fold_name(base);
    let mut classes: Vec<&'static str> = modules::all_classes().collect();
    classes.sort_unstable();
    if let Some(c) = classes.iter().find(|c| fold_name(c) == folded) {
        return Some(c);
    }
    // User-defined classes are often named after what they do: `MyReLU`.
    let ends = classes
        .iter()
        .filter(|c| c.len() > 2 && base.len() > c.len() && base.ends_with(**c));
    match ends.max_by_key(|c| c.len()) {
        Some(c) => Some(c),
        None => nearest(base, classes.iter().copied()),
    }
}

/// Whether a name refers to a class, not a function: `torch.nn.ReLU`, `nn.Linear`.
pub(crate) fn names_a_class(path: &str) -> bool {
    let (family, base) = path.rsplit_once('.').unwrap_or(("", path));
    matches!(family, "nn" | "torch.nn")
        || family.starts_with("torch.nn.modules") && base.starts_with(char::is_uppercase)
}

/// The reason why the table leaves an op out, if it is on that list.
pub(crate) fn why_outside(path: &str) -> Option<&'static str> {
    let path = path.strip_prefix("torch.ops.").unwrap_or(path).replace("::", ".");
    let p = split_name(&path);
    let list = super::outside::OUTSIDE.iter();
    list.filter(|(_, names)| names.iter().any(|n| is_named(p, n)))
        .map(|(reason, _)| *reason)
        .next()
}

/// How to replace a higher-order op that has no row.
pub(crate) fn how_replaced(path: &str) -> Option<&'static str> {
    let last = path.strip_suffix(".default").unwrap_or(path).rsplit('.').next()?;
    let list = super::outside::REPLACED.iter();
    list.filter(|(name, _)| *name == last).map(|(_, help)| *help).next()
}

/// Whether an entry of the list covers this name: `linalg.eig`, `_fft_*`, `fft.* (but …)`.
fn is_named(p: NameParts<'_>, entry: &str) -> bool {
    let entry = entry.split(" (").next().unwrap_or(entry);
    let whole = format!(".{}.{}", p.family, p.base);
    match entry.strip_suffix('*') {
        Some(family) if family.ends_with('.') => whole.contains(&format!(".{family}")),
        Some(start) => p.base.starts_with(start),
        None => entry == p.base || whole.ends_with(&format!(".{entry}")) || p.base == entry.replace('.', "_"),
    }
}

/// Whether a name is in a family that `torch.export` writes, so that decomposition to core ATen may replace it.
pub(crate) fn is_export_level(path: &str) -> bool {
    let path = path.strip_prefix("torch.ops.").unwrap_or(path).replace("::", ".");
    let family = path.split('.').next().unwrap_or("");
    let last = path.rsplit('.').next().unwrap_or(&path);
    matches!(family, "aten" | "prims" | "higher_order" | "prim") && path.contains('.')
        || last.starts_with("wrap_with")
        || last.starts_with("auto_functionalized")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_libraries_and_slips_are_known() {
        for (written, want) in [
            ("torch.Relu", "torch.relu"),
            ("F.relu", "torch.nn.functional.relu"),
            ("np.maximum", "torch.maximum"),
            ("torch.view", "Tensor.view"),
            ("aten::relu", "aten.relu"),
            ("aten.rellu.default", "aten.relu.default"),
            ("aten.add.Tensors", "aten.add.Tensor"),
            ("tensor.relu", "Tensor.relu"),
            ("torch.rleu", "torch.relu"),
            ("torch.nn.LayerNorm", "torch.nn.functional.layer_norm"),
            ("torch.max_pool_2d", "torch.max_pool2d"),
        ] {
            assert_eq!(meant_spellings(written, false).0.first(), Some(&want), "{written}");
        }
        assert_eq!(
            meant_spellings("Tensor.sofmax", true).0.first(),
            Some(&"Tensor.softmax")
        );
        assert!(meant_spellings("frobnicate", false).0.is_empty());
        for (written, own) in [
            ("torch.ops.mylib.soft_clip.default", true),
            ("torch.ops.mylib.relu.default", true),
            ("mylib::relu", true),
            ("torch.ops.aten.rellu.default", false),
            ("torch.ops.atem.relu.default", false),
            ("aten::rellu", false),
            ("torch.rellu", false),
        ] {
            assert_eq!(is_of_own_library(written), own, "{written}");
        }
        for (written, want) in [
            ("Linaer", "Linear"),
            ("MyReLU", "ReLU"),
            ("torch.nn.Relu", "ReLU"),
            ("relu", "ReLU"),
        ] {
            assert_eq!(class_meant(written), Some(want), "{written}");
        }
    }
}
