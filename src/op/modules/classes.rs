//! The module classes that rows declare, with their forms.

use super::form::{self, ParsedForm};
use crate::op::all;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// The forms of a class. They are parsed when a module of the class is first seen.
#[derive(Default)]
struct ClassForms {
    texts: Vec<&'static str>,
    parsed: OnceLock<Vec<ParsedForm>>,
}

static CLASSES: LazyLock<HashMap<&'static str, ClassForms>> = LazyLock::new(|| {
    let mut classes: HashMap<_, ClassForms> = HashMap::new();
    for form in all().iter().flat_map(|op| &op.modules) {
        let name = form.text.split('(').next().unwrap_or_default().trim();
        classes.entry(name).or_default().texts.push(form.text);
    }
    classes
});

/// The forms of a class, given by its name or path; forms with a condition come first.
pub(super) fn forms_of(class: &str) -> Option<&'static [ParsedForm]> {
    let class = CLASSES.get(base_name(class))?;
    let parse = |text| form::parse(text).unwrap_or_else(|problem| panic!("module form {text:?}: {problem}"));
    let forms = class.parsed.get_or_init(|| {
        let mut forms: Vec<ParsedForm> = class.texts.iter().copied().map(parse).collect();
        forms.sort_by_key(|c| c.when.is_none());
        forms
    });
    Some(forms)
}

/// All classes that have a form.
pub(crate) fn all_classes() -> impl Iterator<Item = &'static str> {
    CLASSES.keys().copied()
}

/// The forms of a class that another form refers to. A test checks that all such classes exist.
pub(super) fn expect_forms(class: &str) -> &'static [ParsedForm] {
    forms_of(class).unwrap_or_else(|| panic!("unknown class `{class}`"))
}

/// The last part of a class's path: `Linear` for `torch.nn.modules.linear.Linear`.
pub(super) fn base_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}
