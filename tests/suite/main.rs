//! Tests of the whole program. One binary, because each links all of fxc.

mod assertions;
mod bench;
mod cli;
mod docs;
mod drawings;
mod emitted;
mod explain;
mod fixtures;
mod fusion;
mod inputs;
mod islands;
mod kernels;
mod kinds;
mod layers;
mod mistakes;
mod mutants;
mod no_panic;
mod op_names;
mod output;
mod positions;
mod readme;
mod sharing;
mod snapshots;
mod support;
mod ui;
mod untyped;
