//! Tests of the whole program. One binary, because each links all of fxc.

mod bench;
mod cli;
mod docs;
mod drawings;
mod explain;
mod fixtures;
mod fusion;
mod islands;
mod layers;
mod mutants;
mod no_panic;
mod positions;
mod sharing;
mod snapshots;
mod support;
mod ui;
