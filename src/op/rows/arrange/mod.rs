//! Tensors put together, repeated, padded and taken apart.

pub(super) mod assembly;
pub(super) mod joining;
pub(super) mod padding;
pub(super) mod parts;
pub(super) mod rearrange;
