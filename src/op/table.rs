//! The rows and the index of their spellings.
//!
//! Both are made on first use, and neither parses anything: schemas, forms of modules and expressions are read when a run
//! first asks for them.

use super::{Form, Op, OpId, custom, rows};
use std::hash::BuildHasher;
use std::sync::LazyLock;

struct RowTable {
    rows: Vec<Op>,
    /// The position of each id's row.
    by_id: Vec<u16>,
}

static TABLE: LazyLock<RowTable> = LazyLock::new(|| {
    let rows = rows::all_rows();
    // An id without a row is one of a file `id/table.in` that is out of date; a test says so.
    let mut by_id = vec![u16::MAX; OpId::all().len()];
    for (i, row) in rows.iter().enumerate() {
        if let Some(id) = row.id() {
            by_id[id as usize] = i as u16;
        }
    }
    RowTable { rows, by_id }
});

/// A path that means a row.
struct PathEntry {
    hash: u64,
    path: &'static str,
    row: u16,
    /// The form that has the path; `None` for the bare canonical name.
    form: Option<u16>,
}

/// Every path, by hash. Those of one path are in the table's order, which is the order overloads are tried.
static PATHS: LazyLock<Vec<PathEntry>> = LazyLock::new(|| {
    let mut paths = vec![];
    for (i, row) in all().iter().enumerate() {
        let mut add = |path, form: Option<usize>| {
            paths.push(PathEntry {
                hash: hash_path(path),
                path,
                row: i as u16,
                form: form.map(|f| f as u16),
            })
        };
        add(row.name, None);
        for (f, form) in row.forms.iter().enumerate() {
            form.paths().for_each(|path| add(path, Some(f)));
            // `aten.add` (torch's overload packet) tries every overload of `add`.
            let mut last = None;
            for packet in form
                .paths()
                .filter_map(packet_of)
                .filter(|p| last.replace(*p) != Some(*p))
            {
                add(packet, Some(f));
            }
        }
    }
    paths.sort_by_key(|e| e.hash);
    paths
});

fn hash_path(path: &str) -> u64 {
    rustc_hash::FxBuildHasher.hash_one(path)
}

fn packet_of(path: &'static str) -> Option<&'static str> {
    let (head, _) = path.strip_prefix("aten.").and_then(|r| r.rsplit_once('.'))?;
    Some(&path[..5 + head.len()])
}

/// The entries of a path.
fn entries_of(path: &str) -> impl Iterator<Item = &'static PathEntry> {
    let (all, wanted) = (&*PATHS, hash_path(path));
    let first = all.partition_point(|e| e.hash < wanted);
    let same = all[first..].iter().take_while(move |e| e.hash == wanted);
    same.filter(move |e| e.path == path)
}

/// The rows that a path means, each with the form that has it, in the order to try.
pub(super) fn readings_of(path: &str) -> impl Iterator<Item = (&'static Op, Option<&'static Form>)> {
    entries_of(path).map(|e| {
        let row = &all()[e.row as usize];
        (row, e.form.map(|f| &row.forms[f as usize]))
    })
}

/// Every row, in the table's order.
pub fn all() -> &'static [Op] {
    &TABLE.rows
}

/// The row of the canonical name.
pub fn by_name(name: &str) -> Option<&'static Op> {
    let row = OpId::from_name(name).map(row_by_id);
    row.or_else(|| custom::find(name).filter(|op| op.name == name))
}

/// The row of an id.
pub(super) fn row_by_id(id: OpId) -> &'static Op {
    &TABLE.rows[TABLE.by_id[id as usize] as usize]
}

/// The name or spelling as the table has it.
pub(super) fn find_spelling(path: &str) -> Option<&'static str> {
    entries_of(path).next().map(|e| e.path)
}

/// Whether the table has the name or spelling.
pub fn is_spelling(path: &str) -> bool {
    find_spelling(path).is_some()
}

/// Every spelling there is, canonical names included.
pub fn spellings() -> impl Iterator<Item = &'static str> {
    let custom = custom::registered_ops()
        .into_iter()
        .filter(|op| op.custom.is_some())
        .map(|op| op.name);
    table_spellings().chain(custom)
}

/// Every spelling of the table, canonical names included.
pub(super) fn table_spellings() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    PATHS
        .iter()
        .map(|e| e.path)
        .filter(move |p| std::mem::replace(&mut last, p) != *p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_path_is_found() {
        let names: HashSet<&str> = all().iter().map(|row| row.name).collect();
        assert_eq!(names.len(), all().len());
        for row in all() {
            for path in row.forms.iter().flat_map(Form::paths).chain([row.name]) {
                assert!(readings_of(path).any(|(found, _)| found == row), "{path}");
            }
        }
        assert!(!is_spelling("torch.no_such_function"));
    }

    #[test]
    fn every_schema_can_be_parsed() {
        for row in all() {
            for form in &row.forms {
                assert!(!form.schema_of(row).name.is_empty());
            }
            assert_eq!(row.schema.name, row.name);
        }
    }
}
