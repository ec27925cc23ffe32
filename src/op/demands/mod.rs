//! Preconditions of torch's ops beyond the kinds of arguments: equal dtypes, ranks, matching sizes, numbers within bounds.
//!
//! `ops.txt` holds them by row name, `modules.txt` by module class for constructors, one per line:
//!
//! ```text
//! linalg_cross: same(self, other) :: expected scalar type {dtype(self)} but found {dtype(other)}
//! ```
//!
//! The left side is a condition over the parameters ([`expr`]); the right side is torch's message with values in braces. A
//! condition holds if its value is known only at run time. Rules of the table need not repeat these checks.

mod expr;
mod value;

use super::schema::{Literal, Schema};
use super::{Call, Op, OpError, OpResult};
use crate::diag::Code;
use crate::types::{TensorType, Type};
use expr::DemandExpr;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};
use value::ArgValue;

static OPS: &str = include_str!("ops.txt");
static MODULES: &str = include_str!("modules.txt");

/// One condition.
struct Demand {
    condition: DemandExpr,
    /// torch's message: pieces of text, each followed by an optional value.
    message: Vec<(&'static str, Option<DemandExpr>)>,
    code: Code,
    /// The parameter at fault, if the condition refers to only one.
    param: Option<&'static str>,
}

/// The text of a condition and its message. It is parsed when a call is first checked against it.
struct DemandLine {
    text: &'static str,
    parsed: OnceLock<Demand>,
}

type DemandTable = HashMap<&'static str, Vec<DemandLine>>;

static OF_OPS: LazyLock<DemandTable> = LazyLock::new(|| parse_table(OPS));
static OF_MODULES: LazyLock<DemandTable> = LazyLock::new(|| parse_table(MODULES));

/// The lines of a table by name. The tables are part of the program, so an invalid line is a bug and panics (a test
/// reads all lines).
fn parse_table(text: &'static str) -> DemandTable {
    let mut table = DemandTable::new();
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines {
        let (names, text) = line.split_once(": ").unwrap_or_else(|| panic!("no names in {line:?}"));
        for name in names.split(' ') {
            let parsed = OnceLock::new();
            table.entry(name).or_default().push(DemandLine { text, parsed });
        }
    }
    table
}

impl DemandLine {
    fn demand(&self) -> &Demand {
        let parse = || parse_demand(self.text).unwrap_or_else(|problem| panic!("{:?}: {problem}", self.text));
        self.parsed.get_or_init(parse)
    }
}

fn parse_demand(text: &'static str) -> Result<Demand, String> {
    let (condition, message) = text.split_once(" :: ").ok_or("no message")?;
    let has = |words: &[&str]| words.iter().any(|w| condition.contains(w));
    let code = match () {
        () if has(&["dtype(", "same(", "is_float(", "is_int(", "is_bool("]) => Code::E0303,
        () if has(&["rank(", "size(", "numel(", "shape(", "lead("]) => Code::E0302,
        () => Code::E0202,
    };
    let mut parts = vec![];
    let mut rest = message;
    while let Some((before, after)) = rest.split_once('{') {
        let (value, after) = after.split_once('}').ok_or("an open brace")?;
        parts.push((before, Some(DemandExpr::parse(value)?)));
        rest = after;
    }
    parts.push((rest, None));
    let condition = DemandExpr::parse(condition)?;
    let names = condition.param_names();
    let single = names.iter().all(|n| *n == names[0]);
    Ok(Demand {
        param: names.first().copied().filter(|_| single),
        condition,
        message: parts,
        code,
    })
}

impl Demand {
    /// Returns an error if the arguments violate the condition.
    fn check_args(&self, value_of: &dyn Fn(&str) -> ArgValue) -> Result<(), OpError> {
        if self.condition.eval_with(value_of) != ArgValue::Bool(false) {
            return Ok(());
        }
        let words = self.message.iter().map(|(text, value)| match value {
            Some(v) => format!("{text}{}", v.eval_with(value_of)),
            None => text.to_string(),
        });
        Err(OpError {
            param: self.param.map(str::to_string),
            ..OpError::new(self.code, words.collect::<String>())
        })
    }
}

impl Op {
    /// Whether torch demands more of the arguments than their kinds.
    pub fn has_demands(&self) -> bool {
        OF_OPS.contains_key(self.name)
    }

    /// Returns an error if the arguments of a call violate torch's demands beyond their kinds.
    pub fn check_demands(&self, call: &Call<TensorType>) -> OpResult<()> {
        check_call(self.name, &self.schema, || call.args.clone())
    }
}

/// Returns an error if the arguments violate a demand of the row or spelling `name`. `args` returns their types in
/// parameter order.
pub(super) fn check_call(name: &str, schema: &Schema, args: impl FnOnce() -> Vec<Type>) -> OpResult<()> {
    let Some(demands) = OF_OPS.get(name) else {
        return Ok(());
    };
    let args = args();
    let value_of = |name: &str| match schema.index_of(name).and_then(|i| args.get(i)) {
        Some(v) => ArgValue::from_val(v, &|t| ArgValue::Tensor(t.dtype, t.shape.clone())),
        None => ArgValue::Unknown,
    };
    demands.iter().try_for_each(|line| line.demand().check_args(&value_of))
}

/// Returns an error if the constructor arguments of a module violate a demand of its class.
pub(super) fn check_module(class: &str, arguments: &HashMap<&'static str, Literal>) -> OpResult<()> {
    let Some(demands) = OF_MODULES.get(class) else {
        return Ok(());
    };
    let value_of = |name: &str| {
        arguments
            .get(name)
            .map_or(ArgValue::Unknown, |v| ArgValue::from_val(v, &|x| match *x {}))
    };
    demands.iter().try_for_each(|line| line.demand().check_args(&value_of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Candidate, by_name, candidates, modules};

    #[test]
    fn demands_name_rows_and_their_parameters() {
        for (name, demands) in OF_OPS.iter() {
            let schemas: Vec<&Schema> = match by_name(name) {
                Some(op) => vec![&*op.schema],
                None => candidates(name).iter().map(Candidate::schema).collect(),
            };
            assert!(!schemas.is_empty(), "no row or spelling `{name}`");
            for d in demands.iter().map(DemandLine::demand) {
                let values = d.message.iter().filter_map(|(_, v)| v.as_ref());
                for n in values.chain([&d.condition]).flat_map(DemandExpr::param_names) {
                    let known = schemas.iter().any(|s| s.index_of(n).is_some());
                    assert!(known, "`{name}` has no parameter `{n}`");
                }
            }
        }
        for (class, demands) in OF_MODULES.iter() {
            let params = modules::constructor_params(class).unwrap_or_else(|| panic!("no class `{class}`"));
            for d in demands.iter().map(DemandLine::demand) {
                let values = d.message.iter().filter_map(|(_, v)| v.as_ref());
                for n in values.chain([&d.condition]).flat_map(DemandExpr::param_names) {
                    assert!(params.iter().any(|(p, _)| *p == n), "`{class}` has no parameter `{n}`");
                }
            }
        }
    }
}
