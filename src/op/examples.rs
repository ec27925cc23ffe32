//! An example of each op for its documentation page. `tests/data/make_examples.py` selects them from the recorded
//! cases.

static TEXT: &str = include_str!("examples.txt");

/// All ops that have an example, each with its example: a graph in FXIR.
pub fn all_examples() -> impl Iterator<Item = (&'static str, String)> {
    TEXT.split("# ").filter_map(|part| {
        let (name, lines) = part.split_once('\n')?;
        let body: String = lines.lines().map(|l| format!("    {l}\n")).collect();
        Some((name, format!("graph main {{\n{body}}}\n")))
    })
}

/// The example of the op, if it has one.
pub(crate) fn example_of(op: &str) -> Option<String> {
    all_examples().find(|(name, _)| *name == op).map(|(_, text)| text)
}
