//! Single ops against PyTorch's recorded answers: `tests/data/*.json`, made by the generators beside them.

mod cases;
mod covered;
mod examples;
mod json;
mod nn;
mod pointwise;
mod strictness;
