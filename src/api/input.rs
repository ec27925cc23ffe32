//! What a call is given.

use crate::driver::{Given, Provided, Value};
use crate::tensor::Tensor;
use crate::types::Val;

/// A value for an input, by position or by name.
///
/// ```
/// use fxc::{Input, Tensor};
///
/// let by_position = Input::from(Tensor::scalar(1.0f32));
/// let by_name = Input::from(("mask", Tensor::scalar(1i64)));
/// let item = Input::from(("cache.keys", Tensor::scalar(0i64))); // an item of a nested input
/// let number = Input::from(3i64); // for a parameter that is a Python int
/// # let _ = (by_position, by_name, item, number);
/// ```
#[derive(Clone, Debug)]
pub struct Input {
    name: Option<String>,
    value: Value,
}

impl Input {
    /// The next input in the graph's order.
    pub fn new(value: impl Into<Value>) -> Input {
        Input {
            name: None,
            value: value.into(),
        }
    }

    /// The input of this name, or an item of a nested one (`cache.keys`, `cache[0]`).
    pub fn named(name: impl Into<String>, value: impl Into<Value>) -> Input {
        Input {
            name: Some(name.into()),
            value: value.into(),
        }
    }

    /// As the driver binds it; `names` are those of the inputs that positions mean.
    pub(super) fn into_provided(self, names: &mut impl Iterator<Item = String>) -> Option<Provided> {
        let origin = match self.name {
            Some(_) => "the call",
            None => "the call's positional arguments",
        };
        Some(Provided {
            name: self.name.or_else(|| names.next())?,
            given: Given::Value(self.value),
            origin: origin.into(),
            must_match: true,
        })
    }
}

impl From<Tensor> for Input {
    fn from(t: Tensor) -> Input {
        Input::new(Val::Leaf(t))
    }
}

/// The elements are shared, not copied.
impl From<&Tensor> for Input {
    fn from(t: &Tensor) -> Input {
        t.clone().into()
    }
}

impl From<Value> for Input {
    fn from(v: Value) -> Input {
        Input::new(v)
    }
}

impl From<i64> for Input {
    fn from(x: i64) -> Input {
        Input::new(Val::int(x))
    }
}

impl From<f64> for Input {
    fn from(x: f64) -> Input {
        Input::new(Val::Float(x))
    }
}

impl From<bool> for Input {
    fn from(x: bool) -> Input {
        Input::new(Val::Bool(x))
    }
}

impl<N: Into<String>, V: Into<Input>> From<(N, V)> for Input {
    fn from((name, value): (N, V)) -> Input {
        Input {
            name: Some(name.into()),
            ..value.into()
        }
    }
}
