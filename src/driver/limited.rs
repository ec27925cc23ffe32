//! The work of a session within limits.

use super::session::{Reported, Session, Staged};
use crate::budget::Limits;
pub use crate::diag::limits::run_limited;

impl Session {
    /// [`run_limited`] for this session's work. Reports an allocation that was refused.
    pub fn run_limited<R>(&mut self, limits: &Limits, work: impl FnOnce(&mut Session) -> Staged<R>) -> Staged<R> {
        run_limited(limits, || work(self)).unwrap_or_else(|refusal| {
            self.report(*refusal);
            Err(Reported)
        })
    }
}
