//! The rows and the index of their spellings.
//!
//! Both are built on first use without parsing anything: schemas, forms of modules and expressions are parsed when they are first
//! needed.

use super::{Form, Op, OpId, custom, rows};
use std::hash::BuildHasher;
use std::sync::LazyLock;

struct RowTable {
    rows: Vec<Op>,
    /// The position of each row, indexed by id.
    by_id: Vec<u16>,
}

static TABLE: LazyLock<RowTable> = LazyLock::new(|| {
    let rows = rows::all_rows();
    // An id without a row means that `id/table.in` is out of date; a test reports that.
    let mut by_id = vec![u16::MAX; OpId::all().len()];
    for (i, row) in rows.iter().enumerate() {
        if let Some(id) = row.id() {
            by_id[id as usize] = i as u16;
        }
    }
    RowTable { rows, by_id }
});

/// A path and the row that it stands for.
struct PathEntry {
    hash: u64,
    path: &'static str,
    row: u16,
    /// The form with this path; `None` for the bare canonical name.
    form: Option<u16>,
}

/// All paths, sorted by hash. Entries of one path are in the table's order, in which overloads are tried.
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
            // `aten.add` (torch's overload packet) stands for all overloads of `add`.
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
    let (all, hash) = (&*PATHS, hash_path(path));
    let first = all.partition_point(|e| e.hash < hash);
    let same = all[first..].iter().take_while(move |e| e.hash == hash);
    same.filter(move |e| e.path == path)
}

/// The rows that a path stands for, each with the form that has the path, in the order to try.
pub(super) fn readings_of(path: &str) -> impl Iterator<Item = (&'static Op, Option<&'static Form>)> {
    entries_of(path).map(|e| {
        let row = &all()[e.row as usize];
        (row, e.form.map(|f| &row.forms[f as usize]))
    })
}

/// All rows, in the table's order.
pub fn all() -> &'static [Op] {
    &TABLE.rows
}

/// The row with the canonical name.
pub fn by_name(name: &str) -> Option<&'static Op> {
    let row = OpId::from_name(name).map(row_by_id);
    row.or_else(|| custom::find(name).filter(|op| op.name == name))
}

/// The row with the id.
pub(super) fn row_by_id(id: OpId) -> &'static Op {
    &TABLE.rows[TABLE.by_id[id as usize] as usize]
}

/// The table's own copy of a name or spelling; `None` if the table does not have it.
pub(super) fn find_spelling(path: &str) -> Option<&'static str> {
    entries_of(path).next().map(|e| e.path)
}

/// Whether the table has the name or spelling.
pub(crate) fn is_spelling(path: &str) -> bool {
    find_spelling(path).is_some()
}

/// All spellings, of the table and of registered ops, canonical names included.
pub(super) fn spellings() -> impl Iterator<Item = &'static str> {
    let custom = custom::registered_ops()
        .into_iter()
        .filter(|op| op.custom.is_some())
        .map(|op| op.name);
    table_spellings().chain(custom)
}

/// All spellings of the table, canonical names included.
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
    use crate::op::{Call, ParamType, Sizes, lift_literal};
    use crate::types::{DType, TensorType, Val};
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

    /// Canonical calls pass every default on, so the row's own schema must accept it.
    #[test]
    fn only_optional_parameters_have_none_as_default() {
        let wrong = all().iter().flat_map(|row| {
            let params = row.schema.params.iter();
            let takes_none = |ty: &ParamType| matches!(ty, ParamType::Optional(_) | ParamType::Any);
            let wrong = params.filter(move |p| p.default == Some(Val::None) && !takes_none(&p.ty));
            wrong.map(|p| format!("{}({})", row.name, p.name))
        });
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    }

    /// An argument for a parameter: a number as a tensor, `dim` for an int.
    fn argument(ty: &ParamType, number: &TensorType, dim: i64) -> Val<TensorType> {
        match ty {
            ParamType::Tensor => Val::Leaf(number.clone()),
            ParamType::Int | ParamType::Number => Val::int(dim),
            ParamType::Float => Val::Float(0.5),
            ParamType::Bool => Val::Bool(false),
            ParamType::DType => Val::DType(DType::F32),
            ParamType::List(inner, n) => {
                let one = argument(inner, number, dim);
                Val::List(vec![one; n.unwrap_or(2)])
            }
            ParamType::Optional(inner) => argument(inner, number, dim),
            ParamType::Any => Val::int(1),
            _ => Val::None,
        }
    }

    /// A number counts as a tensor with one dim where torch counts dims, but its list of sizes is empty.
    #[test]
    fn types_of_calls_on_numbers_do_not_panic() {
        let panics = |row: &'static Op, dtype: DType, dim: i64, omits: bool| {
            let number = TensorType::with_fixed_shape(dtype, &[]);
            let params = row.schema.params.iter();
            let args = params.map(|p| match &p.default {
                Some(default) if omits => lift_literal(default),
                _ => argument(&p.ty, &number, dim),
            });
            let call = Call {
                op: row,
                args: args.collect(),
            };
            let run = std::panic::AssertUnwindSafe(|| row.result_type(&call, &mut Sizes::default()).is_ok());
            std::panic::catch_unwind(run).is_err()
        };
        let mut wrong = vec![];
        for row in all() {
            for (dtype, dim) in [(DType::F32, 0), (DType::F32, -1), (DType::I64, 0), (DType::B8, -1)] {
                for omits in [false, true] {
                    if panics(row, dtype, dim, omits) {
                        wrong.push(format!("{} of {dtype}, dim {dim}", row.name));
                    }
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
    }
}
