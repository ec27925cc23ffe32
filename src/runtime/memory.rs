//! The memory that a run needs besides the program's constants.

use super::executable::RunError;
use super::plan::Action;
use crate::diag::{Code, Diagnostic};
use crate::program::{Buffer, BufferPlace, Program};
use crate::tensor::is_available;

/// The scratch memory that all chunks of a step need together, in bytes.
pub(super) fn scratch_bytes(action: &Action) -> usize {
    match action {
        Action::Kernel {
            extent, chunk, scratch, ..
        } => extent.div_ceil((*chunk).max(1)) * scratch,
        _ => 0,
    }
}

/// Returns an error if the system does not have enough memory for a run. Allocating the memory would abort the process.
pub(super) fn check_memory(program: &Program, scratch: usize) -> Result<(), RunError> {
    // Several buffers may be versions of one result.
    let mut results = vec![0; program.outputs];
    for b in &program.buffers {
        if let BufferPlace::Output(n) = b.place
            && let Some(result) = results.get_mut(n)
        {
            *result = b.byte_count().max(*result);
        }
    }
    let bytes = [program.arena, scratch].into_iter().chain(results);
    let bytes = bytes.fold(0, usize::saturating_add);
    if is_available(bytes) {
        return Ok(());
    }
    let is_allocated = |b: &&Buffer| matches!(b.place, BufferPlace::Output(_) | BufferPlace::Arena(_));
    let largest = program
        .buffers
        .iter()
        .filter(is_allocated)
        .max_by_key(|b| b.byte_count());
    let title = format!("the run needs {bytes} bytes, more than the available memory");
    let d = Diagnostic::new(Code::E0509, title);
    Err(Box::new(match largest {
        Some(b) => d.note(format!("the largest buffer is `{}`: {}{:?}", b.name, b.dtype, b.shape)),
        None => d,
    }))
}
