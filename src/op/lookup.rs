//! Finds ops by the names people use for them: any spelling, a class of torch.nn, or a name without its path.

use super::{Form, Op, all, canonical_path, modules, outs, registry, table};
use crate::diag::nearest;

/// The rows that `name` may mean, in the table's order: a canonical name, a spelling (`torch.add`, `aten::add.Tensor`,
/// `F.relu`, `Tensor.view`), an overload packet (`aten.add`), a module class (`nn.ReLU`), or the last part of any of these.
pub(crate) fn find(name: &str) -> Vec<&'static Op> {
    let name = full_path(name);
    let writing = outs::writing_overload(&name).filter(|_| !table::is_spelling(&name));
    let path = canonical_path(writing.map_or(&name, |w| w.packet), false);
    let mut ops: Vec<&Op> = registry::candidates(&path).iter().map(|c| c.op).collect();
    // A private path that maps to a public name may also be a spelling of its own, with other parameters.
    ops.extend(
        all()
            .iter()
            .filter(|op| op.forms.iter().any(|f| f.paths().any(|p| p == name))),
    );
    if !path.contains('.') || path.starts_with("torch.nn.") {
        let class = path.rsplit('.').next().unwrap_or(&path);
        ops.extend(all().iter().filter(|op| has_class(op, class)));
    }
    if !path.contains('.') {
        ops.extend(all().iter().filter(|op| last_names(op).any(|n| n == path)));
    }
    let mut rows: Vec<&Op> = vec![];
    for op in ops {
        if !rows.contains(&op) {
            rows.push(op);
        }
    }
    rows
}

/// A similar known name: one that differs only in case and underscores, else the nearest.
pub(crate) fn similar_name(name: &str) -> Option<&'static str> {
    let name = full_path(name);
    let bare = |n: &str| n.to_lowercase().replace('_', "");
    let (head, last) = name.rsplit_once('.').unwrap_or(("", &name));
    let known = || table::spellings().chain(modules::all_classes());
    let same = |n: &&'static str| bare(last_name(n)) == bare(last);
    // Among several, prefer the same family, then the shortest.
    let order = |n: &&'static str| (!n.starts_with(head), n.len(), *n);
    let by_case = known().filter(same).min_by_key(order);
    let by_last = || {
        let family = known().filter(|n| n.starts_with(head));
        let meant = nearest(last, family.map(last_name))?;
        known().filter(|n| last_name(n) == meant).min_by_key(order)
    };
    // A name without a path is compared with the last parts of known names.
    match head.is_empty() {
        true => by_case.or_else(by_last),
        false => by_case.or_else(|| nearest(&name, known())).or_else(by_last),
    }
}

/// `name` with usual abbreviations of modules and C++'s `::` expanded.
fn full_path(name: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("F.", "torch.nn.functional."),
        ("nn.", "torch.nn."),
        ("np.", "torch."),
        ("numpy.", "torch."),
    ];
    let name = name.trim().replace("::", ".");
    let long = SHORT
        .iter()
        .find_map(|(s, l)| name.strip_prefix(s).map(|r| format!("{l}{r}")));
    long.unwrap_or(name)
}

fn has_class(op: &Op, class: &str) -> bool {
    op.modules.iter().any(|m| m.text.split('(').next() == Some(class))
}

/// The last parts of an op's spellings.
fn last_names(op: &'static Op) -> impl Iterator<Item = &'static str> {
    op.forms.iter().flat_map(Form::paths).map(last_name)
}

/// The base name: `add` for `torch.add` and for `aten.add.Tensor`.
fn last_name(path: &'static str) -> &'static str {
    match path.strip_prefix("aten.") {
        Some(rest) => rest.split('.').next().unwrap_or(rest),
        None => path.rsplit('.').next().unwrap_or(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(name: &str) -> Option<&'static str> {
        find(name).first().map(|op| op.name)
    }

    #[test]
    fn every_way_to_name_an_op_finds_it() {
        for name in [
            "relu",
            "ReLU",
            "nn.ReLU",
            "torch.nn.ReLU",
            "torch.nn.modules.activation.ReLU",
            "F.relu",
            "torch.nn.functional.relu",
            "aten::relu",
            "aten.relu",
            "torch.ops.aten.relu.default",
            "Tensor.relu",
            "torch.Tensor.relu",
            "aten.relu.out",
        ] {
            assert_eq!(first(name), Some("relu"), "{name}");
        }
        assert_eq!(first("relu_"), Some("relu"));
        assert_eq!(first("aten.as_strided"), Some("as_strided"));
        assert_eq!(first("np.maximum"), Some("maximum"));
        assert!(find("torch.relu6x").is_empty());
    }

    #[test]
    fn every_spelling_and_class_is_found() {
        for op in all() {
            let classes = op.modules.iter().filter_map(|m| m.text.split('(').next());
            for name in op.forms.iter().flat_map(|f| f.paths()).chain(classes).chain([op.name]) {
                assert!(find(name).contains(&op), "{name}");
            }
        }
    }

    #[test]
    fn what_is_misspelled_has_a_hint() {
        assert_eq!(similar_name("Relu"), Some("ReLU"));
        assert_eq!(similar_name("torch.Relu"), Some("torch.relu"));
        assert_eq!(similar_name("LayerNrom"), Some("LayerNorm"));
        assert_eq!(similar_name("torch.softmx"), Some("torch.softmax"));
        assert_eq!(similar_name("softmaxx"), Some("softmax"));
        assert_eq!(similar_name("frobnicate"), None);
    }
}
