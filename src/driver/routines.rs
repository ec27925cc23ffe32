//! Resolves the routines that programs name, using the op table.

use crate::diag::{Code, Diagnostic};
use crate::op::{self, Call, Meaning};
use crate::runtime::{OverwriteFn, RoutineFn, Routines, RunError};
use crate::tensor::{Tensor, ViewMut};
use crate::types::Val;

/// Finds routines in the op table.
pub(super) struct OpTable;

impl Routines for OpTable {
    fn find(&self, name: &str) -> Option<RoutineFn> {
        let op = op::by_name(name)?;
        let meaning = match (op.meaning, op.facts.fill) {
            // Programs contain only calls whose sizes are known.
            (Meaning::Routine(_), Some(f)) => Meaning::Fill(f),
            (meaning, _) => meaning,
        };
        match meaning {
            Meaning::Fill(f) => Some(Box::new(move |args, outs, pool| {
                f(&Call { op, args }, outs, pool).map_err(|e| routine_failed(e, op.name))
            })),
            Meaning::Routine(f) => Some(Box::new(move |args, outs, pool| {
                let results = pool.lend(|| f(&Call { op, args }));
                let results = results.map_err(|e| routine_failed(e, op.name))?;
                store_results(&results, outs, op.name)
            })),
            _ => None,
        }
    }

    fn find_overwrite(&self, name: &str) -> Option<OverwriteFn> {
        let op = op::by_name(name)?;
        let overwrite = op.facts.overwrite?;
        Some(Box::new(move |args, buffer, saved| {
            overwrite(&Call { op, args }, buffer, saved).map_err(|e| routine_failed(e, op.name))
        }))
    }
}

/// Copies the results of a routine to their memory.
fn store_results(results: &Val<Tensor>, outs: &mut [ViewMut<'_>], op: &str) -> Result<(), RunError> {
    for (t, out) in results.leaves().into_iter().zip(outs) {
        if t.dtype() != out.dtype() || t.byte_count() != out.bytes_mut().len() {
            let title = format!("`{op}` returned {} instead of {}", t.ty(), out.ty());
            return Err(Box::new(Diagnostic::new(Code::E0603, title)));
        }
        out.bytes_mut().copy_from_slice(t.bytes());
    }
    Ok(())
}

fn routine_failed(e: op::OpError, op: &str) -> RunError {
    let mut d = Diagnostic::new(e.code, e.title);
    (d.notes, d.help) = (e.notes, e.help);
    d.notes.push(format!("while running `{op}`"));
    Box::new(d)
}
