//! Imports graphs and weights from files of other programs.
//!
//! * [`read_pt2`] reads archives of `torch.export.save`, without Python. [`read_exported`] leaves their inputs lifted;
//! * [`bind_weights`] loads a `.safetensors` file into the parameters, buffers and constants that a module's graphs
//!   read;
//! * [`write_weights`] writes such a file, and [`write_tensors`] writes any tensors.
//!
//! Files are memory-mapped. A tensor refers to the mapping if it is stored in the layout that fxc computes with:
//! contiguous, row-major, and aligned to its elements.

mod archive;
mod guards;
mod json;
mod loc;
mod parts;
mod pickle;
mod pt2;
mod pt2_args;
mod pt2_graph;
mod pt2_scalars;
mod pt2_weights;
mod sym;
mod treespec;
mod vmap;
mod weights;

pub(crate) use pt2::read_mapped_pt2;
pub use pt2::{read_exported, read_pt2};
pub use weights::{bind_weights, write_tensors};
pub(crate) use weights::{replace_weights, write_weights};
