//! Types that every stage uses for values: element types and their promotion ([`DType`]), possibly symbolic sizes
//! ([`Dim`]), tensor types ([`TensorType`]) and argument values ([`Val`]).

mod dim;
mod dtype;
mod nested;
pub mod pyrepr;
mod tensor_type;
mod val;

pub use dim::{Dim, DimTerm, SizeExpr, SizeFn};
pub(crate) use dim::{broadcast_dims, watch_overflow};
pub use dtype::{Category, DType, Promotion, promote_types, result_type};
pub(crate) use nested::nested;
pub use tensor_type::TensorType;
pub use val::{ScalarKind, Val};
pub(crate) use val::{write_complex, write_float, write_str};

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The type of a node: an abstract value whose leaves are tensor types and whose scalars may be unknown ([`Val::Any`]).
pub type Type = Val<TensorType>;

/// A leading result of a graph that replaces a buffer or an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mutation {
    /// The buffer of this name.
    Buffer(Arc<str>),
    /// The input (placeholder) of this name.
    Input(Arc<str>),
}
