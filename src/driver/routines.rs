//! Resolves the routines that programs name, using the op table.

use crate::diag::Diagnostic;
use crate::op::{self, Call, Meaning};
use crate::runtime::{RoutineFn, Routines, RunError};

/// Finds routines in the op table.
pub(super) struct OpTable;

impl Routines for OpTable {
    fn find(&self, name: &str) -> Option<RoutineFn> {
        let op = op::by_name(name)?;
        let Meaning::Routine(f) = op.meaning else { return None };
        Some(Box::new(move |args| {
            let call = Call { op, args };
            f(&call).map_err(|e| routine_failed(e, op.name))
        }))
    }
}

fn routine_failed(e: op::OpError, op: &str) -> RunError {
    let mut d = Diagnostic::new(e.code, e.title);
    (d.notes, d.help) = (e.notes, e.help);
    d.notes.push(format!("while running `{op}`"));
    Box::new(d)
}
