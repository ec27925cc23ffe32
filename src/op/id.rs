//! Ops as values: a variant for each row of the table.
//!
//! `id/table.in` lists the variants and is written from the table, so that a row which is renamed or taken away is a
//! compile error wherever it is named. Ops that are registered while the program runs have no id.

use super::{Op, table};

macro_rules! ids {
    ($($variant:ident $name:literal)*) => {
        /// A row of the op table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum OpId {
            $(#[doc = concat!("The row `", $name, "`.")] $variant,)*
        }

        /// The names, at the positions of their ids.
        const NAMES: &[&str] = &[$($name),*];

        /// Every id.
        const ALL: &[OpId] = &[$(OpId::$variant),*];
    };
}

include!("id/table.in");

impl OpId {
    /// Every id, in the names' order.
    pub fn all() -> &'static [OpId] {
        ALL
    }

    /// The canonical name.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The id of a canonical name.
    pub fn of(name: &str) -> Option<OpId> {
        NAMES.binary_search(&name).ok().map(|i| ALL[i])
    }

    /// Of the ops for 1, 2 and 3 dims, the one for `dims`.
    pub(super) fn for_dims(ops: [OpId; 3], dims: usize) -> OpId {
        ops[dims.clamp(1, 3) - 1]
    }

    /// The row.
    pub fn op(self) -> &'static Op {
        table::row(self)
    }
}

impl std::fmt::Display for OpId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;
    use std::fmt::Write;

    /// `_softmax` is `_Softmax`, `add_relu` is `AddRelu`.
    fn variant(name: &str) -> String {
        let lead = if name.starts_with('_') { "_" } else { "" };
        let parts = name.split('_').filter(|p| !p.is_empty());
        let capital = parts.map(|p| p[..1].to_uppercase() + &p[1..]);
        lead.to_string() + &capital.collect::<String>()
    }

    fn table() -> String {
        let mut names: Vec<&str> = all().iter().map(|op| op.name).collect();
        names.sort_unstable();
        let mut out = String::from(
            "// Written from the table's rows by `INSTA_UPDATE=always cargo test --lib op::id`.\n\nids! {\n",
        );
        for name in names {
            writeln!(out, "    {} \"{name}\"", variant(name)).unwrap();
        }
        out + "}\n"
    }

    #[test]
    fn every_row_has_an_id() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/op/id/table.in");
        let table = table();
        if std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always") {
            std::fs::write(path, &table).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap();
        assert!(
            found == table,
            "src/op/id/table.in is out of date: INSTA_UPDATE=always cargo test --lib op::id"
        );
    }

    #[test]
    fn ids_names_and_rows_belong_together() {
        for &id in OpId::all() {
            assert_eq!(id.op().id(), Some(id));
            assert_eq!((id.op().name, OpId::of(id.name())), (id.name(), Some(id)));
        }
    }
}
