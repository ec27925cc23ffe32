//! An op applied to bound arguments, and the errors of such a call.

use super::Op;
use crate::diag::{Code, Diagnostic};
use crate::scalar::EvalError;
use crate::types::{DType, Dim, TensorType, Type, Val};

/// An op with one value per parameter of its schema, in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call<T> {
    /// The op.
    pub op: &'static Op,
    /// One value per parameter.
    pub args: Vec<Val<T>>,
}

/// The reason why an op cannot be applied to its arguments: a diagnostic without a location, which the caller adds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpError {
    /// The kind of error.
    pub code: Code,
    /// Whether the call is valid but has no compiled form; the interpreter can run it.
    pub refused: bool,
    /// The error, in torch's words where torch has the same error.
    pub title: String,
    /// Explanations.
    pub notes: Vec<String>,
    /// Suggested fixes.
    pub help: Vec<String>,
    /// The parameter at fault, if it is a single one.
    pub param: Option<String>,
}

impl OpError {
    /// The error of evaluating a scalar expression.
    pub fn from_eval_error(e: EvalError) -> OpError {
        OpError::value(e.to_string())
    }

    /// An error about shapes, sizes or dtypes (E0302).
    pub fn shape(title: impl Into<String>) -> OpError {
        OpError::new(Code::E0302, title)
    }

    /// An error about an argument's value or kind (E0202).
    pub fn arg(param: &str, title: impl Into<String>) -> OpError {
        OpError {
            param: Some(param.into()),
            ..OpError::new(Code::E0202, title)
        }
    }

    /// An error about dtypes (E0303).
    pub fn dtype(title: impl Into<String>) -> OpError {
        OpError::new(Code::E0303, title)
    }

    /// An error that depends on values: an index out of bounds, an integer division by zero (E0502).
    pub fn value(title: impl Into<String>) -> OpError {
        OpError::new(Code::E0502, title)
    }

    /// A call that has no compiled form (E0601).
    pub fn refused(why: impl Into<String>) -> OpError {
        OpError {
            refused: true,
            ..OpError::new(Code::E0601, why)
        }
    }

    /// An error of any kind.
    pub fn new(code: Code, title: impl Into<String>) -> OpError {
        OpError {
            code,
            refused: false,
            title: title.into(),
            notes: vec![],
            help: vec![],
            param: None,
        }
    }

    /// The diagnostic, without a location.
    pub fn diagnostic(self) -> Diagnostic {
        let mut d = Diagnostic::new(self.code, self.title);
        (d.notes, d.help) = (self.notes, self.help);
        d
    }

    /// Adds an explanation.
    pub fn note(mut self, text: impl Into<String>) -> OpError {
        self.notes.push(text.into());
        self
    }

    /// Adds a suggested fix.
    pub fn help(mut self, text: impl Into<String>) -> OpError {
        self.help.push(text.into());
        self
    }
}

/// The result of applying an op.
pub type OpResult<T> = Result<T, OpError>;

impl<T> Call<T> {
    /// The value of parameter `name`. Panics if the op has no such parameter, which is a bug: rules are written for
    /// their own rows.
    pub fn get(&self, name: &str) -> &Val<T> {
        let i = self.op.schema.index_of(name);
        &self.args[i.unwrap_or_else(|| panic!("{} has no parameter {name}", self.op.name))]
    }

    /// The tensor given for `name`.
    pub fn leaf(&self, name: &str) -> OpResult<&T> {
        self.opt_leaf(name).ok_or_else(|| self.wrong_argument(name, "a tensor"))
    }

    /// The tensor given for `name`, if one is.
    pub fn opt_leaf(&self, name: &str) -> Option<&T> {
        self.get(name).as_leaf()
    }

    /// The tensors of a list parameter.
    pub fn leaves(&self, name: &str) -> OpResult<Vec<&T>> {
        let items = self
            .get(name)
            .items()
            .ok_or_else(|| self.wrong_argument(name, "a list of tensors"))?;
        items
            .iter()
            .map(|v| {
                v.as_leaf()
                    .ok_or_else(|| self.wrong_argument(name, "a list of tensors"))
            })
            .collect()
    }

    /// The constant int given for `name`.
    pub fn int(&self, name: &str) -> OpResult<i64> {
        self.get(name)
            .as_int()
            .ok_or_else(|| self.wrong_argument(name, "a constant int"))
    }

    /// The constant int given for `name`, or `None` for `None`.
    pub fn opt_int(&self, name: &str) -> OpResult<Option<i64>> {
        if self.get(name).is_none() {
            Ok(None)
        } else {
            self.int(name).map(Some)
        }
    }

    /// The constant ints of a list parameter. A single int counts as a list of one.
    pub fn ints(&self, name: &str) -> OpResult<Vec<i64>> {
        match self.get(name) {
            Val::List(v) | Val::Tuple(v) => v
                .iter()
                .map(|x| {
                    x.as_int()
                        .ok_or_else(|| self.wrong_argument(name, "a list of constant ints"))
                })
                .collect(),
            v => v
                .as_int()
                .map(|i| vec![i])
                .ok_or_else(|| self.wrong_argument(name, "a list of constant ints")),
        }
    }

    /// [`Call::ints`], or `None` for `None`.
    pub fn opt_ints(&self, name: &str) -> OpResult<Option<Vec<i64>>> {
        if self.get(name).is_none() {
            Ok(None)
        } else {
            self.ints(name).map(Some)
        }
    }

    /// The sizes of a list parameter, which may be symbolic.
    pub fn dims(&self, name: &str) -> OpResult<Vec<Dim>> {
        let to_dim = |v: &Val<T>| match v {
            Val::Int(d) => Ok(d.clone()),
            Val::Bool(b) => Ok(Dim::Const(*b as i64)),
            Val::Any(_) | Val::Unknown => Ok(Dim::Unknown),
            // A 0-dim tensor used as a size is known only at run time.
            Val::Leaf(_) => Ok(Dim::Unknown),
            _ => Err(self.wrong_argument(name, "a list of ints")),
        };
        match self.get(name) {
            Val::List(v) | Val::Tuple(v) => v.iter().map(to_dim).collect(),
            v => to_dim(v).map(|d| vec![d]),
        }
    }

    /// The bool given for `name`.
    pub fn bool(&self, name: &str) -> OpResult<bool> {
        match self.get(name) {
            Val::Bool(b) => Ok(*b),
            v => v
                .as_int()
                .map(|i| i != 0)
                .ok_or_else(|| self.wrong_argument(name, "a constant bool")),
        }
    }

    /// The number given for `name`.
    pub fn f64(&self, name: &str) -> OpResult<f64> {
        self.get(name)
            .as_f64()
            .ok_or_else(|| self.wrong_argument(name, "a constant number"))
    }

    /// The string given for `name`.
    pub fn str(&self, name: &str) -> OpResult<&str> {
        self.get(name)
            .as_str()
            .ok_or_else(|| self.wrong_argument(name, "a string"))
    }

    /// The dtype given for `name`, if one is.
    pub fn opt_dtype(&self, name: &str) -> Option<DType> {
        match self.get(name) {
            Val::DType(d) => Some(*d),
            _ => None,
        }
    }

    /// Whether `name` is `None`.
    pub fn is_none(&self, name: &str) -> bool {
        self.get(name).is_none()
    }

    fn wrong_argument(&self, name: &str, expected: &str) -> OpError {
        let found = self.get(name).kind_name();
        OpError::arg(
            name,
            format!(
                "argument `{name}` of `{}` must be {expected}, not {found}",
                self.op.name
            ),
        )
    }

    /// The same call with every leaf mapped.
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> Call<U> {
        Call {
            op: self.op,
            args: self.args.iter().map(|v| v.map(&mut f)).collect(),
        }
    }
}

impl Call<TensorType> {
    /// The dtype and shape of the tensor given for `name`; an error if its rank is unknown.
    pub fn shaped(&self, name: &str) -> OpResult<(DType, &[Dim])> {
        let t = self.leaf(name)?;
        match &t.shape {
            Some(s) => Ok((t.dtype, s)),
            None => Err(
                OpError::new(Code::E0304, format!("`{}` requires the rank of `{name}`", self.op.name))
                    .help("annotate the tensor with its shape"),
            ),
        }
    }

    /// The dtype and constant sizes of the tensor given for `name`. Meanings use it, because they are instantiated for
    /// known sizes.
    pub fn fixed_type(&self, name: &str) -> OpResult<(DType, Vec<usize>)> {
        let t = self.leaf(name)?;
        t.fixed_shape()
            .map(|s| (t.dtype, s))
            .ok_or_else(|| OpError::new(Code::E0304, format!("the sizes of `{name}` are unknown: {t}")))
    }
}

/// Counts `dim` of a tensor of rank `rank` from the front, or returns torch's error. A 0-dim tensor has dims -1 and 0.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> OpResult<usize> {
    let n = rank.max(1) as i64;
    if (-n..n).contains(&dim) {
        Ok(dim.rem_euclid(n) as usize)
    } else {
        let title = format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
            -n,
            n - 1
        );
        Err(OpError {
            param: Some("dim".into()),
            ..OpError::shape(title)
        })
    }
}

/// The results of type rules besides types: equations between sizes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Sizes {
    /// Pairs of sizes that must be equal for the graph to run, with the reason.
    pub equations: Vec<(Dim, Dim, String)>,
}

impl Sizes {
    /// The size that both `a` and `b` must be. Different known sizes are an error with the title `title`.
    pub fn unify_dims(&mut self, a: &Dim, b: &Dim, title: impl FnOnce() -> String) -> OpResult<Dim> {
        match (a, b) {
            _ if a == b => Ok(a.clone()),
            (Dim::Const(_), Dim::Const(_)) => Err(OpError::shape(title())),
            (Dim::Unknown, d) | (d, Dim::Unknown) => Ok(d.clone()),
            _ => {
                if a.sub(b).as_const().is_some() {
                    return Err(OpError::shape(title()));
                }
                self.equations.push((a.clone(), b.clone(), title()));
                Ok(if a.as_const().is_some() { a.clone() } else { b.clone() })
            }
        }
    }

    /// The broadcast of two sizes of which neither is 1. A size that is at most 1, as that of a slice of one element, is taken for 1.
    fn broadcast_dim(&mut self, a: &Dim, b: &Dim, title: impl FnOnce() -> String) -> OpResult<Dim> {
        let (small, other) = match (a.is_at_most_one(), b.is_at_most_one()) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return self.unify_dims(a, b, title),
        };
        self.equations.push((small.clone(), Dim::Const(1), title()));
        Ok(other.clone())
    }

    /// The broadcast of two shapes, with torch's error text.
    pub fn broadcast(&mut self, a: &[Dim], b: &[Dim]) -> OpResult<Vec<Dim>> {
        let rank = a.len().max(b.len());
        let aligned = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map(|j| s[j].clone());
        // torch reports the last dim that does not match.
        let mut out = (0..rank)
            .rev()
            .map(|i| match (aligned(a, i), aligned(b, i)) {
                (Some(x), None) | (None, Some(x)) => Ok(x),
                (Some(Dim::Const(1)), Some(y)) => Ok(y),
                (Some(x), Some(Dim::Const(1))) => Ok(x),
                (Some(x), Some(y)) => self.broadcast_dim(&x, &y, || {
                    format!(
                        "The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton dimension {i}"
                    )
                }),
                (None, None) => Ok(Dim::Const(1)),
            })
            .collect::<OpResult<Vec<_>>>()?;
        out.reverse();
        Ok(out)
    }
}

/// A type rule: computes the type of an op's result from the types of its arguments.
pub(crate) type TypeRule = fn(&Call<TensorType>, &mut Sizes) -> OpResult<Type>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_at_most_one_are_broadcast() {
        let n = Dim::var("N");
        let first = Dim::Const(1).min_of(&n);
        for (a, b) in [(&n, &first), (&first, &n)] {
            let mut sizes = Sizes::default();
            let shape = sizes.broadcast(std::slice::from_ref(a), std::slice::from_ref(b));
            assert_eq!(shape.ok(), Some(vec![n.clone()]));
            let guards: Vec<_> = sizes.equations.iter().map(|(x, y, _)| (x, y)).collect();
            assert_eq!(guards, [(&first, &Dim::Const(1))]);
        }
    }
}
