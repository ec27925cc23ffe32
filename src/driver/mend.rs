//! Applies the suggestions of diagnostics to a text.

use super::session::Session;
use crate::diag::{Diagnostics, fix};
use crate::source::FileId;
use std::path::{Path, PathBuf};

/// The maximal number of rounds of suggestions: some suggestions only appear after others have been applied.
const ROUNDS: usize = 20;

/// Applies the safe suggestions for the text of a model or of rules, then those for the result, and so on. Drops a round that adds more
/// errors than it fixes. A weights file that the text names is relative to the folder of `path`, or in one of `allowed`.
pub fn mend_text(path: &str, text: &str, allowed: &[PathBuf]) -> String {
    let mut text = text.to_string();
    let mut findings = find_problems(path, &text, allowed);
    for _ in 0..ROUNDS {
        let Some(next) = fix::apply_safe(&text, FileId(0), findings.iter()) else {
            break;
        };
        let then = find_problems(path, &next, allowed);
        if count_errors(&then) > count_errors(&findings) {
            break;
        }
        (text, findings) = (next, then);
    }
    text
}

fn count_errors(findings: &Diagnostics) -> usize {
    findings.iter().filter(|d| d.is_error()).count()
}

/// The findings for a text. It is the first file of its session, which the spans of suggestions refer to.
fn find_problems(path: &str, text: &str, allowed: &[PathBuf]) -> Diagnostics {
    let mut session = Session::new();
    session.allowed = allowed.to_vec();
    let directory = Path::new(path).parent().map(Path::to_path_buf);
    if let Ok(mut model) = session.load_text_in(path, text, directory) {
        // The findings are in the session's list.
        let _ = model.tree.as_ref().map(|tree| session.check_rules(tree).is_ok());
        let _ = session.check(&mut model.module, &[]);
    }
    session.diagnostics
}
