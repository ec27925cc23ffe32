//! Inputs of calls.

use crate::driver::{CALL, Given, Provided, Value};
use crate::runtime::RunInput;
use crate::tensor::{Tensor, View};
use crate::types::{DType, Val};
use std::borrow::Cow;

/// A tensor among the inputs of a call.
#[derive(Clone, Copy)]
pub(super) enum TensorRef<'a> {
    /// The caller's memory.
    View(&'a View<'a>),
    Tensor(&'a Tensor),
}

/// Panics if the tensor is not dense; callers check this first.
impl RunInput for TensorRef<'_> {
    fn dtype(&self) -> DType {
        match self {
            TensorRef::View(v) => v.dtype(),
            TensorRef::Tensor(t) => t.dtype(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            TensorRef::View(v) => v.shape(),
            TensorRef::Tensor(t) => t.shape(),
        }
    }

    fn address(&self) -> *const u8 {
        match self {
            TensorRef::View(v) => v.address(),
            TensorRef::Tensor(t) => t.address(),
        }
    }

    fn keep(&self) -> Tensor {
        match self {
            TensorRef::View(v) => v.to_tensor(),
            TensorRef::Tensor(t) => t.deep_copy(),
        }
    }
}

/// A value for an input, by position or by name.
///
/// ```
/// use fxc::{Input, Tensor, View};
///
/// let data = [1.0f32, 2.0];
/// let by_position = Input::from(View::from_slice(&[2], &data)?); // borrowed for the call, not copied
/// let by_name = Input::from(("mask", Tensor::scalar(1i64)));
/// let item = Input::from(("cache.keys", Tensor::scalar(0i64))); // an item of a nested input
/// let number = Input::from(3i64); // for a parameter that is a Python int
/// # let _ = (by_position, by_name, item, number);
/// # Ok::<(), fxc::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Input<'a> {
    name: Option<Cow<'a, str>>,
    value: InputValue<'a>,
}

#[derive(Clone, Debug)]
enum InputValue<'a> {
    View(View<'a>),
    Value(Value),
}

impl<'a> Input<'a> {
    /// The next input in the graph's order.
    pub fn new(value: impl Into<Value>) -> Input<'a> {
        InputValue::Value(value.into()).into()
    }

    /// The input with this name, or an item of a nested one (`cache.keys`, `cache[0]`).
    pub fn named(name: impl Into<Cow<'a, str>>, value: impl Into<Value>) -> Input<'a> {
        Input {
            name: Some(name.into()),
            value: InputValue::Value(value.into()),
        }
    }

    /// Its name; `None` for a positional input.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The tensor, if it is one.
    pub(super) fn as_tensor(&self) -> Option<TensorRef<'_>> {
        match &self.value {
            InputValue::View(v) => Some(TensorRef::View(v)),
            InputValue::Value(Val::Leaf(t)) => Some(TensorRef::Tensor(t)),
            InputValue::Value(_) => None,
        }
    }

    /// The view, if it is one.
    pub(super) fn as_view(&self) -> Option<&View<'_>> {
        match &self.value {
            InputValue::View(v) => Some(v),
            InputValue::Value(_) => None,
        }
    }

    /// The value in the driver's form; `names` are the names of the inputs, by position.
    pub(super) fn to_provided(&self, names: &mut impl Iterator<Item = String>) -> Option<Provided> {
        let value = match &self.value {
            InputValue::View(v) => Val::Leaf(v.as_tensor()),
            InputValue::Value(v) => v.clone(),
        };
        Some(Provided {
            name: self.name.as_ref().map(|n| n.to_string()).or_else(|| names.next())?,
            given: Given::Value(value),
            origin: CALL.into(),
            must_match: true,
        })
    }
}

impl<'a> From<InputValue<'a>> for Input<'a> {
    fn from(value: InputValue<'a>) -> Input<'a> {
        Input { name: None, value }
    }
}

/// Dense and aligned elements are read in place; others are copied.
impl<'a> From<View<'a>> for Input<'a> {
    fn from(v: View<'a>) -> Input<'a> {
        InputValue::View(v).into()
    }
}

impl From<Tensor> for Input<'_> {
    fn from(t: Tensor) -> Self {
        Input::new(Val::Leaf(t))
    }
}

/// The elements are shared, not copied.
impl From<&Tensor> for Input<'_> {
    fn from(t: &Tensor) -> Self {
        t.clone().into()
    }
}

impl From<Value> for Input<'_> {
    fn from(v: Value) -> Self {
        Input::new(v)
    }
}

impl From<i64> for Input<'_> {
    fn from(x: i64) -> Self {
        Input::new(Val::int(x))
    }
}

impl From<f64> for Input<'_> {
    fn from(x: f64) -> Self {
        Input::new(Val::Float(x))
    }
}

impl From<bool> for Input<'_> {
    fn from(x: bool) -> Self {
        Input::new(Val::Bool(x))
    }
}

impl<'a, N: Into<Cow<'a, str>>, V: Into<Input<'a>>> From<(N, V)> for Input<'a> {
    fn from((name, value): (N, V)) -> Self {
        Input {
            name: Some(name.into()),
            ..value.into()
        }
    }
}
