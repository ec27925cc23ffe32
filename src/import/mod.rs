//! Graphs and weights from files that other programs write.
//!
//! * [`read_pt2`]: archives of `torch.export.save`, without Python; [`read_exported`] leaves their inputs lifted;
//! * [`bind_weights`]: a `.safetensors` file to the parameters, buffers and constants that a module's graphs read;
//! * [`write_weights`]: the other way round, and [`write_tensors`] of any tensors.
//!
//! Files are mapped, and tensors refer to the mapping wherever they are stored as they are computed with: in one piece,
//! row-major, aligned to their elements.

mod archive;
mod guards;
mod json;
mod loc;
mod parts;
mod pt2;
mod pt2_args;
mod pt2_graph;
mod pt2_scalars;
mod pt2_weights;
mod sym;
mod treespec;
mod vmap;
mod weights;

pub use pt2::{read_exported, read_pt2};
pub use weights::{bind_weights, replace_weights, write_tensors, write_weights};
