//! The expressions of rules: conditions, and values that replacements compute from literals and sizes.
//!
//! Arithmetic is that of Python's numbers; sizes may be symbolic. Unknown results are [`Val::Unknown`], and an unknown
//! condition counts as false.

mod arithmetic;

use self::arithmetic::{common_step, eval_binary, eval_unary, item_at, pick_extremum, to_dim, truth_value};
use super::matcher::{Match, show_value};
use super::pattern::Pattern;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, Operand};
use crate::op;
use crate::op::Filled;
use crate::syntax::ast::{BinaryOp, Value, ValueKind};
use crate::syntax::resolve;
use crate::tensor::{Scalar, Tensor};
use crate::types::{Category, Dim, TensorType, Type, Val};

/// The maximum number of elements of a constant vector to examine.
const LONGEST: usize = 1 << 20;

/// A value of an expression.
pub(super) type V = Val<Operand>;

/// The functions of conditions, each with its number of arguments and a description of its result.
pub(super) const FUNCTIONS: [(&str, usize, &str); 15] = [
    ("dtype", 1, "the element type of a tensor"),
    ("shape", 1, "the shape of a tensor, as a list"),
    ("rank", 1, "the number of dimensions of a tensor"),
    (
        "size",
        2,
        "the size of one dimension; a negative index counts from the end",
    ),
    ("numel", 1, "the number of elements of a tensor"),
    ("users", 1, "the number of nodes that use a value"),
    (
        "is_const",
        1,
        "true if a value is a literal, parameter, buffer or constant",
    ),
    (
        "value",
        1,
        "the value of a literal, of a constant with one element, or of all elements of `full` and similar ops",
    ),
    ("first", 1, "the first element of a constant vector of integers"),
    (
        "step",
        2,
        "the constant difference modulo n between consecutive elements of such a vector, whose elements are all in 0..n",
    ),
    ("bound", 1, "true if the matched alternative binds a name"),
    (
        "default",
        2,
        "the value of a name, or the second argument if the name is unbound",
    ),
    ("len", 1, "the number of items in a list"),
    ("min", 2, "the lesser of two numbers"),
    ("max", 2, "the greater of two numbers"),
];

/// Evaluates expressions over one match.
pub(super) struct Eval<'a> {
    /// The module.
    pub module: &'a GraphModule,
    /// The graph in which the match was found.
    pub graph: &'a Graph,
    /// The rule's pattern, whose names the expressions use.
    pub pattern: &'a Pattern,
    /// The values that these names are bound to.
    pub found: &'a Match,
}

impl Eval<'_> {
    /// Whether a condition is true; `None` if it is unknown.
    pub(super) fn holds(&self, v: &Value) -> Result<Option<bool>, String> {
        Ok(truth_value(&self.value(v)?))
    }

    /// The value of an expression. The error says why there is none.
    pub(super) fn value(&self, v: &Value) -> Result<V, String> {
        let all = |x: &[Value]| x.iter().map(|x| self.value(x)).collect::<Result<Vec<_>, _>>();
        let three = |x: &[Value; 3]| -> Result<Box<[V; 3]>, String> {
            Ok(Box::new([self.value(&x[0])?, self.value(&x[1])?, self.value(&x[2])?]))
        };
        Ok(match &v.kind {
            ValueKind::Node(_) | ValueKind::Literal(_) | ValueKind::Rest(_) => {
                self.named_value(v).unwrap_or(Val::Unknown)
            }
            ValueKind::Name(n) => match self.found.dims.get(n) {
                Some(d) => Val::Int(d.clone()),
                None => self.eval_literal(v),
            },
            ValueKind::List(x) => Val::List(self.items(x)?),
            ValueKind::Tuple(x) => Val::Tuple(all(x)?),
            ValueKind::Slice(x) => Val::Slice(three(x)?),
            ValueKind::Range(x) => Val::Range(three(x)?),
            ValueKind::Unary(op, a) => eval_unary(*op, &self.value(a)?)?,
            ValueKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => self.logic(*op, a, b)?,
            ValueKind::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                match self.compare_sizes(*op, &a, &b) {
                    Some(holds) => Val::Bool(holds),
                    None => eval_binary(*op, &a, &b)?,
                }
            }
            ValueKind::Call(f, args) => match (&*f.text, &args.positional[..]) {
                ("bound", [x]) => Val::Bool(self.named_value(x).is_some()),
                ("default", [x, otherwise]) => match self.named_value(x) {
                    Some(v) => v,
                    None => self.value(otherwise)?,
                },
                (name, args) => self.call(name, &all(args)?)?,
            },
            _ => self.eval_literal(v),
        })
    }

    /// Compares sizes, if their ranges determine the result.
    fn compare_sizes(&self, op: BinaryOp, a: &V, b: &V) -> Option<bool> {
        let difference = to_dim(a)?.sub(&to_dim(b)?);
        let (name, factor, offset) = difference.as_linear()?;
        let range = self.module.dims.get(name);
        let scaled = |size: i64| factor.checked_mul(size)?.checked_add(offset);
        let (least, most) = (scaled(range.map_or(0, |r| r.min)), range.and_then(|r| scaled(r.max?)));
        let (low, high) = if factor >= 0 { (least, most) } else { (most, least) };
        let (above, below) = (
            |n: i64| low.is_some_and(|l| l >= n),
            |n: i64| high.is_some_and(|h| h <= n),
        );
        let decided = |holds: bool, fails: bool| (holds || fails).then_some(holds);
        match op {
            BinaryOp::Gt => decided(above(1), below(0)),
            BinaryOp::Ge => decided(above(0), below(-1)),
            BinaryOp::Lt => decided(below(-1), above(0)),
            BinaryOp::Le => decided(below(0), above(1)),
            BinaryOp::Eq => decided(false, above(1) || below(-1)),
            BinaryOp::Ne => decided(above(1) || below(-1), false),
            _ => None,
        }
    }

    /// The values of the parts of an expression, for a remark: `$d` is 1, `rank(%x)` is not known.
    pub(super) fn describe_parts(&self, v: &Value) -> Vec<String> {
        let mut out = vec![];
        self.add_parts(v, &mut out);
        out.dedup();
        out
    }

    fn add_parts(&self, v: &Value, out: &mut Vec<String>) {
        match &v.kind {
            ValueKind::List(x) | ValueKind::Tuple(x) => x.iter().for_each(|x| self.add_parts(x, out)),
            ValueKind::Unary(_, a) => self.add_parts(a, out),
            ValueKind::Binary(_, a, b) => {
                self.add_parts(a, out);
                self.add_parts(b, out);
            }
            ValueKind::Node(_) | ValueKind::Literal(_) | ValueKind::Call(..) => out.push(match self.value(v) {
                Ok(Val::Unknown) => format!("`{v}` is unknown"),
                Ok(value) => format!("`{v}` is {}", show_value(self.graph, &value)),
                Err(reason) => format!("cannot compute `{v}`: {reason}"),
            }),
            ValueKind::Name(n) => match self.found.dims.get(n).map(|d| (d, d.as_const())) {
                Some((_, Some(size))) => out.push(format!("`{n}` is {size}")),
                Some((d, None)) => out.push(format!("`{n}` is the symbolic size {d}")),
                None => {}
            },
            _ => {}
        }
    }

    /// The items of a list, with `*%xs` expanded.
    fn items(&self, list: &[Value]) -> Result<Vec<V>, String> {
        let mut out = vec![];
        for x in list {
            match (&x.kind, self.value(x)?) {
                (ValueKind::Rest(_), Val::List(items)) => out.extend(items),
                (_, v) => out.push(v),
            }
        }
        Ok(out)
    }

    fn eval_literal(&self, v: &Value) -> V {
        resolve::value(v, &mut |_, _| None, &mut Default::default())
    }

    /// The value of a parameter or node of the pattern; `None` if it occurs only in alternatives that were not taken.
    fn named_value(&self, v: &Value) -> Option<V> {
        let bound_value = |name: &str| self.pattern.find(name).and_then(|n| self.found.value(n));
        match &v.kind {
            // `%xs` is the list of the items matched by `*%xs`.
            ValueKind::Node(n) => bound_value(n).or_else(|| bound_value(&format!("*{n}"))),
            ValueKind::Literal(n) => bound_value(&format!("${n}")),
            ValueKind::Rest(n) => bound_value(&format!("*{n}")),
            _ => None,
        }
    }

    /// `and` and `or`, for which one side may determine the result.
    fn logic(&self, op: BinaryOp, a: &Value, b: &Value) -> Result<V, String> {
        let stop = op == BinaryOp::Or;
        let left = self.holds(a)?;
        if left == Some(stop) {
            return Ok(Val::Bool(stop));
        }
        let right = self.holds(b)?;
        Ok(match (left, right) {
            (_, Some(x)) if x == stop => Val::Bool(stop),
            (Some(_), Some(_)) => Val::Bool(!stop),
            _ => Val::Unknown,
        })
    }

    fn ty(&self, v: &V) -> Type {
        match v {
            Val::Leaf(o) => infer::operand_type(self.module, self.graph, o),
            _ => Val::Unknown,
        }
    }

    fn tensor(&self, v: &V) -> Option<TensorType> {
        self.ty(v).as_leaf().cloned()
    }

    fn call(&self, name: &str, args: &[V]) -> Result<V, String> {
        let first = args.first().unwrap_or(&Val::Unknown);
        let tensor = || self.tensor(first);
        let int = |d: Dim| match d {
            Dim::Unknown => Val::Unknown,
            d => Val::Int(d),
        };
        let shape = || tensor().and_then(|t| t.shape);
        Ok(match name {
            "dtype" => tensor().map_or(Val::Unknown, |t| Val::DType(t.dtype)),
            "shape" => shape().map_or(Val::Unknown, |s| Val::List(s.into_iter().map(int).collect())),
            "rank" => shape().map_or(Val::Unknown, |s| Val::int(s.len() as i64)),
            "numel" => tensor().map_or(Val::Unknown, |t| int(t.numel())),
            "size" => match (shape(), args.get(1).and_then(Val::as_int)) {
                (Some(s), Some(i)) => item_at(&s, i).map_or(Val::Unknown, |d| int(d.clone())),
                _ => Val::Unknown,
            },
            "users" => match first {
                Val::Leaf(Operand::Node(n) | Operand::Item(n, _)) => Val::int(self.graph[*n].users().len() as i64),
                _ => Val::Unknown,
            },
            "is_const" => Val::Bool(self.is_const(first)),
            "value" => self.number(first),
            "first" => self
                .vector(first)
                .and_then(|v| v.first().copied())
                .map_or(Val::Unknown, Val::int),
            "step" => match (self.vector(first), args.get(1).and_then(Val::as_int)) {
                (Some(v), Some(n)) => common_step(&v, n).map_or(Val::Unknown, Val::int),
                _ => Val::Unknown,
            },
            "len" => first.items().map_or(Val::Unknown, |v| Val::int(v.len() as i64)),
            "min" | "max" => match args {
                [a, b] => pick_extremum(name == "max", a, b),
                _ => Val::Unknown,
            },
            _ => return Err(format!("unknown function `{name}` in a rule")),
        })
    }

    fn is_const(&self, v: &V) -> bool {
        match v {
            Val::Leaf(Operand::Attr(_)) => true,
            Val::Leaf(Operand::Node(n)) => self.graph[*n].op() == Opcode::GetAttr,
            Val::Leaf(_) => false,
            v => infer::is_value(v),
        }
    }

    /// The constant tensor that a value refers to, if it is known and never written.
    fn constant(&self, v: &V) -> Option<&Tensor> {
        let path: &str = match v {
            Val::Leaf(Operand::Attr(p)) => p,
            Val::Leaf(Operand::Node(n)) if self.graph[*n].op() == Opcode::GetAttr => self.graph[*n].target(),
            _ => return None,
        };
        let known = self
            .module
            .attributes
            .get(path)
            .filter(|_| !self.graph.writes_buffer(path));
        known.and_then(|a| a.value.as_ref())
    }

    /// A literal, the element of a constant with one element, or the fill value of `full` and similar ops.
    fn number(&self, v: &V) -> V {
        if let Some(t) = self.constant(v) {
            return match t.item() {
                Some(Scalar::Int(_, i)) => Val::int(i),
                Some(Scalar::Bool(b)) => Val::Bool(b),
                Some(x) => Val::Float(x.to_f64()),
                None => Val::Unknown,
            };
        }
        match v {
            Val::Leaf(Operand::Node(n)) => self.filled_number(*n),
            Val::Leaf(_) => Val::Unknown,
            v => v.clone(),
        }
    }

    fn filled_number(&self, n: NodeId) -> V {
        let node = &self.graph[n];
        let name = op::canonical_path(node.target(), node.op() == Opcode::CallMethod);
        let candidates = op::candidates(&name);
        let filled = candidates.first().and_then(|c| Some((c, c.op.filled()?)));
        let value = match filled {
            Some((_, Filled::Number(v))) => return Val::int(v),
            Some((c, Filled::Parameter(p))) => {
                let name = &*c.op.schema.params[p].name;
                let by_position = c.schema().index_of(name).and_then(|i| node.args().get(i));
                by_position.or_else(|| node.kwarg(name))
            }
            None => None,
        };
        value.and_then(infer::literal_value).unwrap_or(Val::Unknown)
    }

    /// The elements of a constant vector of integers.
    fn vector(&self, v: &V) -> Option<Vec<i64>> {
        let t = self.constant(v)?;
        let vector = t.rank() == 1 && t.numel() <= LONGEST && t.dtype().category() == Category::Int;
        vector.then(|| (0..t.numel()).map(|i| t.get(i).to_i64()).collect())
    }
}
