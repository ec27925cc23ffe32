//! Ops as values: an enum variant for each row of the table.
//!
//! `id/table.in` lists the variants and is generated from the table, so that a row that is renamed or removed is a compile error
//! wherever it is named. Each line also lists the parameters without a default, those passed by name after the `;`: recorded
//! graphs (`graph::trace`) have a method for each row. Ops that are registered at run time have no id.

use super::{Op, table};

macro_rules! ids {
    ($($variant:ident $name:literal $method:ident($($param:ident),* $(; $($keyword:ident),*)?))*) => {
        /// A row of the op table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum OpId {
            $(#[doc = concat!("The row `", $name, "`.")] $variant,)*
        }

        /// Names, indexed by id.
        const NAMES: &[&str] = &[$($name),*];

        /// Every id.
        const ALL: &[OpId] = &[$(OpId::$variant),*];
    };
}

include!("id/table.in");

impl OpId {
    /// Every id, in the order of the names.
    pub fn all() -> &'static [OpId] {
        ALL
    }

    /// The canonical name.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The id of a canonical name.
    pub fn from_name(name: &str) -> Option<OpId> {
        NAMES.binary_search(&name).ok().map(|i| ALL[i])
    }

    /// The op for `dims` dims, given those for 1, 2 and 3.
    pub(super) fn for_dims(ops: [OpId; 3], dims: usize) -> OpId {
        ops[dims.clamp(1, 3) - 1]
    }

    /// The row.
    pub fn op(self) -> &'static Op {
        table::row_by_id(self)
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

    /// The variant of a row: `_softmax` is `_Softmax`, `add_relu` is `AddRelu`.
    fn variant(name: &str) -> String {
        let lead = if name.starts_with('_') { "_" } else { "" };
        let parts = name.split('_').filter(|p| !p.is_empty());
        let capital = parts.map(|p| p[..1].to_uppercase() + &p[1..]);
        lead.to_string() + &capital.collect::<String>()
    }

    /// The Rust identifier for a name. `self` is renamed because it is the method's receiver.
    fn ident(name: &str) -> String {
        match name {
            "self" => "input".into(),
            "where" | "in" | "mod" | "type" | "move" | "ref" | "fn" | "use" | "as" | "loop" | "match" | "box" => {
                format!("r#{name}")
            }
            _ => name.into(),
        }
    }

    /// `add(input, other)`: the parameters without a default.
    fn signature(op: &Op) -> String {
        let params = &op.schema.params;
        let by_place = params.iter().take_while(|p| p.default.is_none() && !p.keyword_only);
        let by_name = params
            .iter()
            .skip(by_place.clone().count())
            .filter(|p| p.default.is_none());
        let by_place: Vec<String> = by_place.map(|p| ident(&p.name)).collect();
        let by_name: Vec<&str> = by_name.map(|p| &*p.name).collect();
        let by_name = match by_name.is_empty() {
            true => String::new(),
            false => format!("; {}", by_name.join(", ")),
        };
        format!("{}({}{by_name})", ident(op.name), by_place.join(", "))
    }

    fn table() -> String {
        let mut rows: Vec<&Op> = all().iter().collect();
        rows.sort_unstable_by_key(|op| op.name);
        let mut out = String::from(
            "// Written from the table's rows by `INSTA_UPDATE=always cargo test --lib op::id`.\n\nids! {\n",
        );
        for op in rows {
            writeln!(out, "    {} \"{}\" {}", variant(op.name), op.name, signature(op)).unwrap();
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
            assert_eq!((id.op().name, OpId::from_name(id.name())), (id.name(), Some(id)));
        }
    }
}
