//! Algebraic simplification by rewrite rules.
//!
//! The rules are the FXIR files in `rules/`. `exact` rules keep every bit and always run. `fast` rules, which may
//! change rounding, NaN or signed zeros, run only if the options allow it. The passes `identities` and `recognise`
//! apply the rules of the files of those names. Each rule is tested against the interpreter on random graphs and
//! inputs.
//!
#![doc = include_str!("../examples/simplify.md")]

use super::dce;
use super::normalize::normalize;
use crate::diag::Diagnostic;
use crate::graph::GraphModule;
use crate::pass::PassContext;
use crate::rewrite::{self, RewriteOptions, Rule};
use crate::source::FileId;
use crate::syntax;
use std::sync::LazyLock;

/// The files, by name.
pub const FILES: [(&str, &str); 6] = [
    (IDENTITIES, include_str!("../rules/identities.fxir")),
    ("arithmetic.fxir", include_str!("../rules/arithmetic.fxir")),
    ("logic.fxir", include_str!("../rules/logic.fxir")),
    ("views.fxir", include_str!("../rules/views.fxir")),
    ("fast.fxir", include_str!("../rules/fast.fxir")),
    (RECOGNISE, include_str!("../rules/recognise.fxir")),
];

/// The file of the rules that the pass `identities` applies.
const IDENTITIES: &str = "identities.fxir";

/// The file of the rules that the pass `recognise` applies.
const RECOGNISE: &str = "recognise.fxir";

/// The rules of those two files, and of all others.
static RULES: LazyLock<[Vec<Rule>; 3]> = LazyLock::new(|| {
    let rules_of = |selected: &dyn Fn(&str) -> bool| {
        let files = FILES.iter().filter(|(name, _)| selected(name));
        files.flat_map(|(_, text)| parse_rules(text)).collect()
    };
    [
        rules_of(&|n| n == IDENTITIES),
        rules_of(&|n| n == RECOGNISE),
        rules_of(&|n| n != IDENTITIES && n != RECOGNISE),
    ]
});

/// The rules that this pass applies, in order.
pub fn rules() -> &'static [Rule] {
    &RULES[2]
}

/// The rules that remove ops that return their operand.
pub fn identity_rules() -> &'static [Rule] {
    &RULES[0]
}

/// The rules that recognise decomposed ops.
pub fn recognition_rules() -> &'static [Rule] {
    &RULES[1]
}

fn parse_rules(text: &str) -> Vec<Rule> {
    let (tree, findings) = syntax::parse_text(FileId(0), text);
    debug_assert!(!findings.has_errors(), "{findings:?}");
    let (mut rules, findings) = rewrite::compile(&tree);
    debug_assert!(!findings.has_errors(), "{findings:?}");
    // No source store holds the rules' text, so spans must not point into it.
    rules.iter_mut().for_each(|r| r.span = None);
    rules
}

/// See the module.
pub fn run(module: &mut GraphModule, cx: &mut PassContext) -> Result<usize, Diagnostic> {
    // An unused item of a tuple would count as a reader of the tuple, which a rule may replace.
    let removed = dce::run(module, cx)?;
    Ok(removed + apply_rules(module, rules(), cx)?)
}

/// Applies rules to a canonical module, which stays canonical.
pub(in crate::pass) fn apply_rules(
    module: &mut GraphModule,
    rules: &[Rule],
    cx: &mut PassContext,
) -> Result<usize, Diagnostic> {
    let options = RewriteOptions {
        fast: cx.options.fast_math,
        remarks: cx.options.remarks,
        ..RewriteOptions::default()
    };
    let report = rewrite::rewrite(module, rules, &options)?;
    cx.remarks.extend(report.remarks.iter().map(|r| r.to_string()));
    if report.total() > 0 {
        // Replacements name all parameters; canonical nodes omit defaults.
        normalize(module)?;
    }
    Ok(report.total())
}
