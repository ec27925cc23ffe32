//! The fusion report: what each kernel computes and how much memory it moves, and why other values were not fused.
//!
//! ```text
//! softmax: add, softmax over [64, 1024], dim 1 reduced
//!   reads 512.0 KiB, writes 256.0 KiB, keeps 1.0 MiB out of memory; about 49.2 us on one thread
//!   apart from kernel mul: `softmax` wants elements of the kernel at other places than its own
//!
//! products and convolutions
//!   `gelu` with `linear`: on each piece of the result while it is in cache
//!   `mean` apart from `matmul`: it reduces, and a piece of the result is not a whole row
//! ```

use crate::tensor::shown_bytes;
use std::fmt;
use std::sync::Arc;

/// The cost of starting a kernel in nanoseconds.
pub(crate) const LAUNCH: f64 = 100.0;
/// The number of bytes that a thread moves to or from the L3 cache per nanosecond.
const BYTES: f64 = 16.0;

/// The fusion report: which nodes share a kernel, which do not, and why.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// The kernels of a program, in order.
    pub kernels: Vec<Fused>,
    /// The epilogues of products and convolutions, both fused and refused, one line each.
    pub contractions: Vec<String>,
}

/// A kernel, or the kernels of one cluster.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The kernel.
    pub name: String,
    /// The nodes that it computes.
    pub nodes: Vec<Arc<str>>,
    /// The sizes of its loops.
    pub space: Vec<usize>,
    /// The reduced dims.
    pub reduced: Vec<usize>,
    /// The cost.
    pub cost: Cost,
    /// The number of kernels. It exceeds one if few long rows are split.
    pub kernels: usize,
    /// The Python source locations of its nodes, separated by commas; empty if none is known.
    pub places: String,
    /// Findings about other kernels, one line each.
    pub notes: Vec<String>,
    /// The names of its results.
    pub(crate) results: String,
}

/// The work of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of the buffers that it reads, each counted once.
    pub reads: usize,
    /// Bytes that it writes.
    pub writes: usize,
    /// Bytes of the values that no other kernel uses. Without fusion each would be written once and read once.
    pub kept: usize,
    /// Nanoseconds of arithmetic.
    pub arithmetic: f64,
}

impl Cost {
    /// Nanoseconds of the whole kernel on one thread.
    pub fn nanoseconds(&self) -> f64 {
        let bytes = (self.reads as f64 + self.writes as f64) / BYTES;
        LAUNCH + bytes.max(self.arithmetic)
    }
}

impl Explained {
    /// Records that `b` is fused with the contraction `a`, and how.
    pub(crate) fn note_together(&mut self, a: &str, b: &str, explanation: impl fmt::Display) {
        self.contractions.push(format!("`{b}` with `{a}`: {explanation}"));
    }

    /// Records why `b` is not fused with the contraction `a`.
    pub(crate) fn note_apart(&mut self, a: &str, b: &str, reason: impl fmt::Display) {
        self.contractions.push(format!("`{b}` not fused with `{a}`: {reason}"));
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = &self.kernels;
        let saved = kernels.iter().fold(0usize, |n, k| n.saturating_add(k.cost.kept));
        let nodes: usize = kernels.iter().map(|k| k.nodes.len()).sum();
        writeln!(
            f,
            "{nodes} nodes in {} fused kernels, which avoid {} of memory traffic",
            kernels.len(),
            shown_bytes(saved)
        )?;
        kernels.iter().try_for_each(|k| write!(f, "\n{k}"))?;
        if !self.contractions.is_empty() {
            writeln!(f, "\nproducts and convolutions")?;
        }
        self.contractions.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl fmt::Display for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} over {:?}", self.name, self.nodes.join(", "), self.space)?;
        match &self.reduced[..] {
            [] => writeln!(f)?,
            [d] => writeln!(f, ", dim {d} reduced")?,
            all => writeln!(f, ", dims {all:?} reduced")?,
        }
        if !self.places.is_empty() {
            writeln!(f, "  from {}", self.places)?;
        }
        let c = &self.cost;
        writeln!(
            f,
            "  reads {}, writes {}, avoids {} of memory traffic; about {:.1} us on one thread",
            shown_bytes(c.reads),
            shown_bytes(c.writes),
            shown_bytes(c.kept),
            c.nanoseconds() / 1e3
        )?;
        if self.kernels > 1 {
            writeln!(
                f,
                "  split into {} kernels over parts of its rows, because the rows alone are too few for several threads",
                self.kernels
            )?;
        }
        self.notes.iter().try_for_each(|n| writeln!(f, "  {n}"))
    }
}
