//! Inputs of several consecutive calls: which stay the same, and which take the next value in each call.

use super::bind::{Given, Provided, Value};
use super::fill::filled_tensor;
use super::literal;
use crate::diag::{Code, Diagnostic};
use crate::tensor::{AlignedBytes, Storage, Tensor, byte_len, is_available};
use crate::types::{TensorType, Val};

/// The inputs of a number of calls.
pub(crate) struct CallSequence {
    calls: usize,
    /// Given to every call.
    fixed: Vec<Provided>,
    /// Tensors whose leading dimension counts the calls.
    rows: Vec<(Provided, Tensor)>,
    /// A value per call.
    each: Vec<Vec<Provided>>,
}

impl CallSequence {
    /// The inputs `provided` for `calls` calls, or for as many as they imply if that is `None`. The leading dimension
    /// of inputs named in `divided` counts the calls, and [`Given::Each`] holds a value per call.
    pub(crate) fn new(
        provided: Vec<Provided>,
        divided: &[String],
        calls: Option<usize>,
    ) -> Result<CallSequence, Diagnostic> {
        let mut out = CallSequence {
            calls: calls.unwrap_or(1),
            fixed: vec![],
            rows: vec![],
            each: vec![],
        };
        for name in divided {
            if !provided.iter().any(|p| p.name == *name) {
                let title = format!("--each names `{name}`, but no value is given for it");
                return Err(Diagnostic::new(Code::E0501, title));
            }
        }
        let mut counts: Vec<(String, usize)> = calls.map(|n| ("--repeat".to_string(), n)).into_iter().collect();
        for p in provided {
            if divided.contains(&p.name) {
                let t = whole_tensor(&p)?;
                let Some(&n) = t.shape().first() else {
                    let title = format!("`{}` is 0-dimensional and cannot be divided among calls", p.name);
                    return Err(Diagnostic::new(Code::E0504, title));
                };
                counts.push((format!("the leading dimension of `{}`", p.name), n));
                out.rows.push((p, t));
            } else if let (Given::Each(all), Some(_)) = (&p.given, calls) {
                counts.push((format!("the number of files with `{}`", p.name), all.len()));
                out.each.push(all.clone());
            } else {
                out.fixed.push(p);
            }
        }
        out.calls = agreed_count(&counts)?;
        Ok(out)
    }

    /// The number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Whether the inputs vary between calls.
    pub(crate) fn varies(&self) -> bool {
        !self.rows.is_empty() || !self.each.is_empty()
    }

    /// Whether the input `name` gets a new value in each call.
    pub(crate) fn is_new_in_each_call(&self, name: &str) -> bool {
        let rows = self.rows.iter().map(|(p, _)| &p.name);
        let each = self.each.iter().filter_map(|v| v.first()).map(|p| &p.name);
        rows.chain(each).any(|n| n == name)
    }

    /// The inputs of call number `i`.
    pub(crate) fn at(&self, i: usize) -> Vec<Provided> {
        let row = |(p, t): &(Provided, Tensor)| Provided {
            given: Given::Value(Val::Leaf(row_at(t, i))),
            ..p.clone()
        };
        let rows = self.rows.iter().map(row);
        let each = self.each.iter().filter_map(|v| v.get(i).cloned());
        self.fixed.iter().cloned().chain(rows).chain(each).collect()
    }
}

/// The number of calls, if all sources agree on it.
fn agreed_count(counts: &[(String, usize)]) -> Result<usize, Diagnostic> {
    let Some((first, calls)) = counts.first() else {
        return Ok(1);
    };
    if let Some((other, n)) = counts.iter().find(|(_, n)| n != calls) {
        let title = format!("the number of calls is ambiguous: {first} is {calls}, but {other} is {n}");
        return Err(Diagnostic::new(Code::E0504, title));
    }
    match calls {
        0 => Err(Diagnostic::new(
            Code::E0504,
            format!("{first} is 0, so there is nothing to run"),
        )),
        n => Ok(*n),
    }
}

/// The whole tensor for an input whose leading dimension counts the calls.
fn whole_tensor(p: &Provided) -> Result<Tensor, Diagnostic> {
    let name = &p.name;
    let untyped = || {
        let title = format!("`{name}` cannot be divided among the calls: its full type is unknown");
        let help = format!("pass a file, or a type that includes the leading dimension: `{name}:f32[4, 2]=…`");
        Diagnostic::new(Code::E0304, title).help(help)
    };
    let sizes = |t: &TensorType| {
        let shape = t.fixed_shape().ok_or_else(untyped)?;
        let ok = t.dtype.is_held() && byte_len(t.dtype, &shape).is_some_and(is_available);
        ok.then_some(shape).ok_or_else(untyped)
    };
    match &p.given {
        Given::Value(Val::Leaf(t)) => Ok(t.clone()),
        Given::File(array) => array.read(),
        Given::Fill(fill, Some(t)) => Ok(filled_tensor(t.dtype, &sizes(t)?, *fill)),
        Given::Typed(v, Val::Leaf(t)) => literal::to_tensor(v, t.dtype, Some(&sizes(t)?))
            .map_err(|why| Diagnostic::new(Code::E0508, format!("`{name}` does not have type {t}")).note(why)),
        _ => Err(untyped()),
    }
}

/// The slice of a tensor at index `i` of its leading dimension.
fn row_at(t: &Tensor, i: usize) -> Tensor {
    let shape = &t.shape()[1..];
    let len = t.byte_count() / t.shape()[0].max(1);
    let bytes = t.with_bytes(|b| AlignedBytes::from_slice(&b[i * len..(i + 1) * len]));
    Tensor::from_storage(t.dtype(), shape, Storage::Owned(bytes))
}

/// Stacks the results of several calls along a new leading dimension. Other values are those of the last call.
pub(crate) fn stack_results(results: &[Value]) -> Result<Value, Diagnostic> {
    let Some(last) = results.last() else {
        return Ok(Val::None);
    };
    let leaves: Vec<Vec<&Tensor>> = results.iter().map(Value::leaves).collect();
    let mut next = 0;
    last.try_map(&mut |t: &Tensor| {
        let parts: Option<Vec<&Tensor>> = leaves.iter().map(|v| v.get(next).copied()).collect();
        let alike = |v: &Vec<&Tensor>| v.iter().all(|p| p.ty() == t.ty());
        let title = || format!("the type of `output.{next}` differs between calls, so the results cannot be stacked");
        let parts = parts
            .filter(alike)
            .ok_or_else(|| Diagnostic::new(Code::E0504, title()))?;
        next += 1;
        let shape = [&[parts.len()], t.shape()].concat();
        if !byte_len(t.dtype(), &shape).is_some_and(is_available) {
            return Err(Diagnostic::new(Code::E0509, "not enough memory to stack the results"));
        }
        let mut bytes = AlignedBytes::zeroed(t.byte_count() * parts.len());
        for (part, to) in parts
            .iter()
            .zip(bytes.bytes_mut().chunks_exact_mut(t.byte_count().max(1)))
        {
            part.with_bytes(|b| to.copy_from_slice(b));
        }
        Ok(Val::Leaf(Tensor::from_storage(
            t.dtype(),
            &shape,
            Storage::Owned(bytes),
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, given: Given) -> Provided {
        Provided {
            name: name.into(),
            given,
            origin: "the test".into(),
            must_match: true,
        }
    }

    fn tensor(shape: &[usize], data: &[f32]) -> Given {
        Given::Value(Val::Leaf(Tensor::from_slice(shape, data)))
    }

    #[test]
    fn rows_and_files_are_given_in_turn() {
        let each = Given::Each(vec![given("y", tensor(&[1], &[7.0])), given("y", tensor(&[1], &[8.0]))]);
        let provided = vec![
            given("x", tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0])),
            given("y", each),
            given("z", tensor(&[1], &[0.0])),
        ];
        let s = CallSequence::new(provided, &["x".into()], Some(2)).unwrap();
        assert!(
            s.calls() == 2
                && s.varies()
                && s.is_new_in_each_call("x")
                && s.is_new_in_each_call("y")
                && !s.is_new_in_each_call("z")
        );
        let value = |i: usize, name: &str| match s.at(i).into_iter().find(|p| p.name == name).unwrap().given {
            Given::Value(Val::Leaf(t)) => t.as_slice::<f32>().to_vec(),
            g => panic!("{g:?}"),
        };
        assert_eq!((value(0, "x"), value(1, "x")), (vec![1.0, 2.0], vec![3.0, 4.0]));
        assert_eq!(
            (value(0, "y"), value(1, "y"), value(1, "z")),
            (vec![7.0], vec![8.0], vec![0.0])
        );
    }

    #[test]
    fn counts_must_agree() {
        let x = || vec![given("x", tensor(&[2, 1], &[1.0, 2.0]))];
        let each = ["x".to_string()];
        assert_eq!(CallSequence::new(x(), &each, None).unwrap().calls(), 2);
        assert!(CallSequence::new(x(), &each, Some(3)).is_err());
        assert!(CallSequence::new(x(), &["y".to_string()], None).is_err());
        assert!(CallSequence::new(vec![given("x", tensor(&[0, 1], &[]))], &each, None).is_err());
        assert!(CallSequence::new(vec![given("x", tensor(&[], &[1.0]))], &each, None).is_err());
    }

    #[test]
    fn results_are_stacked() {
        let one = |x: f32| Val::Tuple(vec![Val::Leaf(Tensor::from_slice(&[2], &[x, x])), Val::int(x as i64)]);
        let v = stack_results(&[one(1.0), one(2.0)]).unwrap();
        assert_eq!(v.leaves()[0].as_slice::<f32>(), [1.0, 1.0, 2.0, 2.0]);
        assert_eq!(v.items().unwrap()[1], Val::int(2));
        let other = Val::Leaf(Tensor::from_slice(&[1], &[0f32]));
        assert!(stack_results(&[one(1.0), other]).is_err());
    }
}
