//! Serialization of sizes in files of compiled models, for which all sizes are known.

use super::Dim;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Dim::Const(n) => Some(*n).serialize(to),
            Dim::Unknown => None::<i64>.serialize(to),
            Dim::Poly(_) => Err(S::Error::custom(format!("the size {self} is unknown"))),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Dim, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map_or(Dim::Unknown, Dim::Const))
    }
}
