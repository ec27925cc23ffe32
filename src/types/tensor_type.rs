//! The type of a tensor.

use super::{DType, Dim};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A tensor's type: element type and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The sizes, outermost first; `None` if the rank is unknown (`f32[*]`).
    pub shape: Option<Vec<Dim>>,
}

impl TensorType {
    /// A type with known rank.
    pub fn new(dtype: DType, shape: impl Into<Vec<Dim>>) -> TensorType {
        TensorType {
            dtype,
            shape: Some(shape.into()),
        }
    }

    /// A type whose sizes are all known.
    pub fn with_fixed_shape(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::new(dtype, shape.iter().map(|&d| Dim::from(d)).collect::<Vec<_>>())
    }

    /// The rank, if known.
    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(Vec::len)
    }

    /// The sizes, if all are constants.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.shape
            .as_ref()?
            .iter()
            .map(|d| d.as_const().and_then(|c| usize::try_from(c).ok()))
            .collect()
    }

    /// Whether all sizes are known, at least as symbols. Two unknown sizes (`?`) need not be equal, so equal types with them do not
    /// mean equal shapes.
    pub fn has_known_sizes(&self) -> bool {
        self.shape.as_ref().is_some_and(|s| !s.contains(&Dim::Unknown))
    }

    /// The number of elements; unknown if the rank is.
    pub fn numel(&self) -> Dim {
        match &self.shape {
            None => Dim::Unknown,
            Some(s) => s.iter().fold(Dim::Const(1), |a, d| a.mul(d)),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            None => write!(f, "{}[*]", self.dtype),
            Some(s) => {
                let dims: Vec<String> = s.iter().map(|d| d.to_string()).collect();
                write!(f, "{}[{}]", self.dtype, dims.join(", "))
            }
        }
    }
}
