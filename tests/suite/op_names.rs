//! The compiler refers to rows of the op table by `OpId`, so that an unknown name is a compile error.

use crate::layers::rust_files;
use crate::support::root;
use fxc::internals::op::OpId;
use std::collections::BTreeMap;
use std::path::Path;

/// The stages that know ops. Earlier stages know names of Python and torch, later stages know programs.
const STAGES: [&str; 9] = [
    "op", "graph", "import", "infer", "interp", "rewrite", "pass", "lower", "driver",
];

/// Files that compare strings with words that are also names of rows: the number of comparisons, and what the words
/// are.
const WORDS: [(&str, usize, &str); 14] = [
    ("driver/show/form.rs", 1, "forms of printed models"),
    ("graph/fxir/statements.rs", 7, "Python's functions"),
    ("graph/purity.rs", 1, "methods of torch that write"),
    ("graph/torch/python/calls.rs", 1, "Python's functions"),
    ("lower/ir/text/parse.rs", 4, "words of tensor IR's text"),
    ("lower/ir/text/special.rs", 5, "words of tensor IR's text"),
    ("op/autocast.rs", 3, "the dispatcher's names, by which autocast goes"),
    ("op/demands/expr.rs", 5, "functions of the language of demands"),
    ("op/modules/training.rs", 2, "parameters of modules"),
    ("op/schema.rs", 1, "torch's layouts"),
    ("op/signature/mod.rs", 2, "torch's names, of which several are one row"),
    ("pass/manager.rs", 1, "passes"),
    ("pass/verify.rs", 1, "passes"),
    ("rewrite/condition.rs", 6, "functions of the language of conditions"),
];

/// Whether the string between `before` and `after` in a line is compared or looked up in the table.
fn is_compared(before: &str, after: &str) -> bool {
    let (before, after) = (before.trim_end(), after.trim_start());
    let pattern = after.starts_with("=>") || after.starts_with("| \"") || before.ends_with('|');
    pattern
        || ["==", "!="].iter().any(|c| before.ends_with(c))
        || ["matches!(", "by_name("].iter().any(|c| before.contains(c))
}

fn count(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    let names = |l: &str| {
        let quotes: Vec<usize> = l.match_indices('"').map(|(i, _)| i).collect();
        let named =
            |q: &&[usize]| OpId::from_name(&l[q[0] + 1..q[1]]).is_some() && is_compared(&l[..q[0]], &l[q[1] + 1..]);
        quotes.chunks_exact(2).filter(named).count()
    };
    lines.map(names).sum()
}

#[test]
fn stages_name_rows_by_their_ids() {
    let src = root().join("src");
    let mut found = BTreeMap::new();
    for file in STAGES.iter().flat_map(|s| rust_files(&src.join(s))) {
        let path = file.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
        if path.starts_with("op/rows/") || path.contains("tests") {
            continue;
        }
        let n = count(&file);
        let allowed = WORDS.iter().find(|(f, ..)| *f == path).map_or(0, |(_, n, _)| *n);
        if n > allowed {
            found.insert(path, (n, allowed));
        }
    }
    assert!(
        found.is_empty(),
        "names of rows as strings (found, allowed); write `OpId::…`: {found:#?}"
    );
}
