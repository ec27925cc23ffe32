//! Conditions on sizes under which an archive's program was traced: `(L['x'].size()[0] % 2) == 0`.
//!
//! The tracer follows one branch of the user's `if x.shape[0] % 2 == 0`. The program is valid only for sizes that take
//! this branch.

use super::sym::parse_size;
use crate::graph::{Graph, SizeGuard};
use crate::scalar::Compare;
use crate::types::Val;

/// The comparison operators, those with two characters first.
const COMPARISONS: [(&str, Compare); 6] = [
    ("==", Compare::Eq),
    ("!=", Compare::Ne),
    ("<=", Compare::Le),
    (">=", Compare::Ge),
    ("<", Compare::Lt),
    (">", Compare::Gt),
];

/// Parses a condition on the sizes of the graph's inputs. `None` if it is not a comparison of sizes.
pub(super) fn parse(text: &str, graph: &Graph) -> Option<SizeGuard> {
    let named = with_sizes(text, graph)?;
    let (sign, compare) = COMPARISONS.iter().find(|(sign, _)| named.contains(sign))?;
    let (left, right) = named.split_once(sign)?;
    Some(SizeGuard {
        left: parse_size(left.trim())?,
        compare: *compare,
        right: parse_size(right.trim())?,
    })
}

/// Replaces `L['x'].size()[0]` with the expression for that size.
fn with_sizes(text: &str, graph: &Graph) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("L[") {
        out.push_str(&rest[..at]);
        let (path, after) = rest[at + 1..].split_once(".size()[")?;
        let (index, after) = after.split_once(']')?;
        let size = input_size(graph, &input_name(path), index.parse().ok()?)?;
        out.push_str(&format!("({size})"));
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

/// The name of an input from its path: `['kv'][0]` is `kv_0`.
fn input_name(path: &str) -> String {
    let parts = path.split(['[', ']', '\'', '"']).filter(|p| !p.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

fn input_size(graph: &Graph, input: &str, index: usize) -> Option<String> {
    let n = graph.placeholders().into_iter().find(|&n| graph[n].target() == input)?;
    match graph[n].meta.ty.as_ref()? {
        Val::Leaf(t) => t.shape.as_ref()?.get(index).map(|d| d.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DType, Dim, TensorType};

    #[test]
    fn conditions_speak_of_the_sizes_of_inputs() {
        let mut g = Graph::new();
        for (name, size) in [("x", "s7"), ("kv_0", "s8")] {
            let n = g.placeholder(name, None);
            g.meta_mut(n).ty = Some(Val::Leaf(TensorType::new(
                DType::F32,
                vec![Dim::var(size), Dim::Const(3)],
            )));
        }
        for (text, want) in [
            ("(L['x'].size()[0] % 2) == 0", "(s7 % 2) == 0"),
            ("(4*L['x'].size()[0]) <= (2*L['kv'][0].size()[0])", "4*s7 <= 2*s8"),
            ("L['x'].size()[0] != L['kv'][0].size()[1]", "s7 != 3"),
        ] {
            assert_eq!(parse(text, &g).map(|g| g.to_string()).as_deref(), Some(want), "{text}");
        }
        for text in [
            "",
            "L['x']",
            "L['z'].size()[0] == 1",
            "L['x'].size()[9] == 1",
            "L['x'].size()[0]",
            "L[é].size()[0] == 1",
        ] {
            assert!(parse(text, &g).is_none(), "{text}");
        }
    }
}
