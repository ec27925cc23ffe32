//! Tests of the whole program, in a single binary, because each binary links all of fxc.

mod artifacts;
mod assertions;
mod bench;
mod cache;
mod cli;
mod corpora;
mod data_dependent;
mod docs;
mod drawings;
mod emitted;
mod explain;
#[cfg(unix)]
mod file_inputs;
#[cfg(unix)]
mod file_outputs;
mod fixtures;
mod front_door;
mod fusion;
mod generation;
mod inputs;
mod islands;
mod kernels;
mod kinds;
mod layers;
#[cfg(target_os = "linux")]
mod limits;
mod mistakes;
mod mutants;
mod no_panic;
mod op_names;
mod output;
mod positions;
mod quantize;
mod quantized;
mod readme;
#[cfg(unix)]
mod reduce;
mod routines;
mod sharing;
mod snapshots;
mod stage_texts;
mod support;
mod ui;
mod untyped;
