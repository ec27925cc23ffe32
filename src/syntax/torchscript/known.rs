//! Constant folding for scripts: arithmetic on constants, sizes in types, and whether a value is `None`.

use super::lists::{eval_quantifier, find_extreme, range_list};
use super::literal::on_numbers;
use super::lower::{BoundValue, ScriptLowerer};
use super::objects::eval_equal;
use super::tree::{Node, Ty, Typed};
use crate::syntax::ast::{Value, ValueKind};
use std::sync::Arc;

/// Properties and settings that are always false here.
const NEVER: [&str; 10] = [
    "is_autocast_enabled",
    "is_autocast_cpu_enabled",
    "is_cuda",
    "is_meta",
    "is_mkldnn",
    "is_mps",
    "is_nested",
    "is_quantized",
    "is_sparse",
    "is_xpu",
];

impl ScriptLowerer<'_> {
    /// Binds the result of a node if it can be folded; returns false if not.
    pub(super) fn bind_known(&mut self, n: &Node) -> bool {
        let Some(kind) = self.known_value(n) else { return false };
        self.bind_all(n, kind, n.outputs.first().is_some_and(|o| o.ty.is_number()));
        true
    }

    fn known_value(&self, n: &Node) -> Option<ValueKind> {
        let op = n.op.strip_prefix("aten::").or(n.op.strip_prefix("prim::"))?;
        let values: Vec<ValueKind> = n.args.iter().map(|a| self.known_kind(a)).collect::<Option<_>>()?;
        // A graph without blocks was traced, and reads the sizes of its inputs as the model does.
        if self.has_blocks
            && let Some(ty) = n.args.first().and_then(|a| self.types.get(&a.name))
            && let Some(known) = known_size(op, ty, values.get(1))
        {
            return Some(known);
        }
        Some(match (op, &values[..]) {
            ("__is__", [a, b]) => ValueKind::Bool(self.is_same(a, b)?),
            ("__isnot__", [a, b]) => ValueKind::Bool(!self.is_same(a, b)?),
            ("is_grad_enabled" | "requires_grad", _) => ValueKind::Bool(self.grad),
            // The text of an error message. The sizes in it are not known.
            ("format", [text, ..]) if matches!(text, ValueKind::Str(_)) => text.clone(),
            (op, _) if NEVER.contains(&op) => ValueKind::Bool(false),
            // The type of a tensor's device. The CPU is the only device.
            ("type", [_]) if self.types.get(&n.args[0].name).is_some_and(|t| &*t.name == "Device") => {
                ValueKind::Str("cpu".into())
            }
            ("all" | "any", [ValueKind::List(v)]) => eval_quantifier(op, v)?,
            ("isinstance", [v]) => ValueKind::Bool(self.is_instance(n, v)?),
            ("len", [ValueKind::Str(s)]) => ValueKind::Int(s.len() as i64),
            ("str", [v]) => ValueKind::Str(self.text_of(n, v)?),
            ("rangelist", [ValueKind::Int(count)]) => range_list(*count, n.span)?,
            ("is_scripting", []) => ValueKind::Bool(true),
            ("eq" | "ne", [a, b]) if !matches!(a, ValueKind::Node(_)) => {
                ValueKind::Bool(eval_equal(a, b)? == (op == "eq"))
            }
            ("Int" | "Float" | "Bool", [a]) => convert_number(op, a)?,
            ("min" | "max", [ValueKind::List(v)]) => find_extreme(op, v.iter().map(|v| &v.kind))?,
            ("min" | "max", [a, b]) => find_extreme(op, [a, b].into_iter())?,
            ("add", [ValueKind::Str(a), ValueKind::Str(b)]) => ValueKind::Str(format!("{a}{b}").into()),
            (op, values) => eval_arithmetic(on_numbers(op)?, values)?,
        })
    }

    /// `a is b`, if it is known. A runtime value is a tensor or a number, except for the result of a branch that may be
    /// `None`.
    fn is_same(&self, a: &ValueKind, b: &ValueKind) -> Option<bool> {
        match (a, b) {
            (ValueKind::None, ValueKind::None) => Some(true),
            (ValueKind::None, ValueKind::Node(n)) | (ValueKind::Node(n), ValueKind::None) => {
                (!self.maybe_none.contains(n)).then_some(false)
            }
            (ValueKind::None, _) | (_, ValueKind::None) => Some(false),
            (ValueKind::Node(a), ValueKind::Node(b)) if a == b => Some(true),
            (ValueKind::Node(a), ValueKind::Node(b)) => {
                let passing = |n| self.passing.contains(n) || self.maybe_none.contains(n);
                (!passing(a) && !passing(b)).then_some(false)
            }
            _ => eval_equal(a, b),
        }
    }

    /// The result of `prim::isinstance`, if it is known.
    fn is_instance(&self, n: &Node, v: &ValueKind) -> Option<bool> {
        let class = match v {
            ValueKind::Int(_) => "int",
            ValueKind::Float(_) => "float",
            ValueKind::Bool(_) => "bool",
            ValueKind::Str(_) => "str",
            ValueKind::None => "NoneType",
            ValueKind::List(_) => "list",
            ValueKind::Tuple(_) => "tuple",
            ValueKind::Dict(_) => "Dict",
            _ => match self.types.get(&n.args.first()?.name)? {
                ty if ty.may_be_none() => return None,
                ty if ty.dtype().is_some() => "Tensor",
                ty if &*ty.name == "List" => "list",
                ty => &ty.name,
            },
        };
        let attr = n.attrs.iter().find(|a| &*a.name == "types")?;
        let mut known = true;
        for ty in attr.text.split(',') {
            match (class, ty) {
                // The item types of lists are not distinguished.
                ("list", "List") | ("", _) | ("tuple", "") => known = false,
                _ if class == ty => return Some(true),
                _ => {}
            }
        }
        known.then_some(false)
    }

    /// `str(value)`.
    fn text_of(&self, n: &Node, v: &ValueKind) -> Option<Arc<str>> {
        let device = || self.types.get(&n.args.first()?.name).filter(|t| &*t.name == "Device");
        Some(match v {
            ValueKind::Str(s) => s.clone(),
            ValueKind::Int(i) => i.to_string().into(),
            ValueKind::Bool(b) => if *b { "True" } else { "False" }.into(),
            ValueKind::None => "None".into(),
            _ => device().map(|_| "cpu".into())?,
        })
    }

    /// The value of a name; `None` for a module and for undefined names.
    fn known_kind(&self, v: &Typed) -> Option<ValueKind> {
        Some(match self.env.get(&v.name)? {
            BoundValue::Value(v, _) => v.kind.clone(),
            BoundValue::Object(id) => self.objects.value(*id),
            BoundValue::Module(_) => return None,
        })
    }
}

/// The size of a tensor, if its type has it.
fn known_size(op: &str, ty: &Ty, index: Option<&ValueKind>) -> Option<ValueKind> {
    if !ty.shaped || ty.dtype().is_none() {
        return None;
    }
    let rank = ty.sizes.len() as i64;
    Some(ValueKind::Int(match (op, index) {
        ("dim", None) => rank,
        ("size", Some(ValueKind::Int(i))) => {
            let i = if *i < 0 { i + rank } else { *i };
            (*ty.sizes.get(usize::try_from(i).ok()?)?)?
        }
        ("len", None) => (*ty.sizes.first()?)?,
        _ => return None,
    }))
}

fn convert_number(op: &str, v: &ValueKind) -> Option<ValueKind> {
    let x = match v {
        ValueKind::Int(i) if op == "Int" => return Some(ValueKind::Int(*i)),
        ValueKind::Int(i) => *i as f64,
        ValueKind::Float(x) => *x,
        ValueKind::Bool(b) => f64::from(*b),
        _ => return None,
    };
    Some(match op {
        "Int" if x.abs() < 9.0e18 => ValueKind::Int(x as i64),
        "Float" => ValueKind::Float(x),
        "Bool" => ValueKind::Bool(x != 0.0),
        _ => return None,
    })
}

/// Evaluates a Python operator on literals. `None` if they are not literals, or if the result does not fit in 64 bits.
pub(super) fn eval_arithmetic(operator: &str, values: &[ValueKind]) -> Option<ValueKind> {
    use ValueKind::{Bool, Float, Int};
    Some(match (operator, values) {
        ("not_", [Bool(a)]) => Bool(!a),
        ("and_", [Bool(a), Bool(b)]) => Bool(*a && *b),
        ("or_", [Bool(a), Bool(b)]) => Bool(*a || *b),
        ("neg", [Int(a)]) => Int(a.checked_neg()?),
        ("neg", [Float(a)]) => Float(-a),
        ("add", [Int(a), Int(b)]) => Int(a.checked_add(*b)?),
        ("sub", [Int(a), Int(b)]) => Int(a.checked_sub(*b)?),
        ("mul", [Int(a), Int(b)]) => Int(a.checked_mul(*b)?),
        ("floordiv", [Int(a), Int(b)]) if *b != 0 => {
            let q = a.checked_div(*b)?;
            Int(if a % b != 0 && (a < &0) != (b < &0) { q - 1 } else { q })
        }
        ("mod", [Int(a), Int(b)]) if *b != 0 => {
            let r = a.checked_rem(*b)?;
            Int(if r != 0 && (r < 0) != (*b < 0) { r + b } else { r })
        }
        ("lt" | "le" | "gt" | "ge", [Int(a), Int(b)]) => Bool(eval_comparison(operator, a.cmp(b))),
        (operator, [a @ (Int(_) | Float(_)), b @ (Int(_) | Float(_))]) => {
            eval_floats(operator, as_float(a)?, as_float(b)?)?
        }
        _ => return None,
    })
}

fn eval_floats(operator: &str, a: f64, b: f64) -> Option<ValueKind> {
    Some(match operator {
        "add" => ValueKind::Float(a + b),
        "sub" => ValueKind::Float(a - b),
        "mul" => ValueKind::Float(a * b),
        "truediv" if b != 0.0 => ValueKind::Float(a / b),
        "lt" | "le" | "gt" | "ge" => ValueKind::Bool(eval_comparison(operator, a.partial_cmp(&b)?)),
        _ => return None,
    })
}

fn as_float(v: &ValueKind) -> Option<f64> {
    match v {
        ValueKind::Int(i) => Some(*i as f64),
        ValueKind::Float(x) => Some(*x),
        _ => None,
    }
}

fn eval_comparison(operator: &str, o: std::cmp::Ordering) -> bool {
    match operator {
        "lt" => o.is_lt(),
        "le" => o.is_le(),
        "gt" => o.is_gt(),
        _ => o.is_ge(),
    }
}

/// The value True or False, with its span.
pub(super) fn bool_value(b: bool, span: crate::source::Span) -> Value {
    Value::new(ValueKind::Bool(b), span)
}
