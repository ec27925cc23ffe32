//! Serialises programs without their tensors, which are stored separately in a file so that they can be mapped. The
//! program records only that a tensor exists; the reader inserts the tensors
//! ([`Program::tensors_mut`](super::Program::tensors_mut)).

use crate::source::Loc;
use crate::tensor::Tensor;
use crate::types::DType;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A tensor, or an optional one.
pub(super) trait MaybeTensor: Sized {
    /// Whether there is a tensor.
    fn is_there(&self) -> bool;
    /// The value after deserialisation: an empty tensor, or none.
    fn empty(present: bool) -> Option<Self>;
}

impl MaybeTensor for Tensor {
    fn is_there(&self) -> bool {
        true
    }

    fn empty(present: bool) -> Option<Tensor> {
        present.then(|| Tensor::zeros(DType::U8, &[0]))
    }
}

impl MaybeTensor for Option<Tensor> {
    fn is_there(&self) -> bool {
        self.is_some()
    }

    fn empty(present: bool) -> Option<Option<Tensor>> {
        Some(Tensor::empty(present))
    }
}

pub(super) fn serialize<T: MaybeTensor, S: Serializer>(held: &T, to: S) -> Result<S::Ok, S::Error> {
    held.is_there().serialize(to)
}

pub(super) fn deserialize<'de, T: MaybeTensor, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let present = bool::deserialize(from)?;
    T::empty(present).ok_or_else(|| serde::de::Error::custom("a constant has no value"))
}

/// Sorts places by name, so that equal programs have equal bytes.
pub(super) fn sorted<S: Serializer>(places: &Arc<HashMap<Arc<str>, Loc>>, to: S) -> Result<S::Ok, S::Error> {
    places.iter().collect::<BTreeMap<_, _>>().serialize(to)
}
