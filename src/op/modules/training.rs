//! Modules in training mode.

use super::form::{ArgExpr, ConstructorParam, ParsedForm, TRAINING};
use super::{forms_of, is_something};
use crate::diag::Code;
use crate::op::schema::Literal;
use crate::op::{OpError, write_literal};
use std::collections::HashMap;

/// Whether a module of the class computes something else in training mode.
pub(crate) fn depends_on_training(class: &str) -> bool {
    let forms = forms_of(class).unwrap_or_default();
    forms
        .iter()
        .any(|f| has_training(f) || f.params.iter().any(|p| is_drop_rate(f, p.name)))
}

fn has_training(form: &ParsedForm) -> bool {
    form.args.iter().any(|(_, e)| match e {
        ArgExpr::Param(p) => *p == TRAINING,
        ArgExpr::Holds(conditions) => conditions.iter().any(|c| c.param == TRAINING),
        _ => false,
    })
}

/// Whether a constructor parameter is the dropout rate of a module.
fn is_drop_rate(form: &ParsedForm, param: &str) -> bool {
    matches!(param, "dropout" | "drop_prob") || param == "p" && form.op == "alias"
}

/// Rejects training mode for forms that cannot express it. A form without a training argument computes evaluation mode,
/// which is correct in training too unless the module drops elements.
pub(super) fn can_train(form: &ParsedForm, arguments: &HashMap<&str, Literal>) -> Result<(), OpError> {
    if !is_something(arguments.get(TRAINING)) || has_training(form) {
        return Ok(());
    }
    let dropped =
        |p: &ConstructorParam| is_drop_rate(form, p.name) && arguments[p.name].as_f64().is_none_or(|x| x > 0.0);
    let Some(p) = form.params.iter().find(|p| dropped(p)) else {
        return Ok(());
    };
    let title = format!(
        "`{}` with {}={} is only supported in evaluation mode",
        form.name,
        p.name,
        write_literal(&arguments[p.name])
    );
    Err(OpError::new(Code::E0203, title).help(format!("set {}=0.0, or use evaluation mode", p.name)))
}
