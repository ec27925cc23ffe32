//! Fusion explained: what every kernel computes and moves, and why other values are not in it.
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

use super::cluster::Cluster;
use super::cost::{self, Cost};
use crate::lower::ir::{Tir, ValueId};
use crate::lower::schedule::Scheduled;
use crate::lower::{Fusion, UnitId};
use crate::tensor::shown_bytes;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What is computed together, and what is not.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// The kernels of a program, in order.
    pub kernels: Vec<Fused>,
    /// What products and convolutions compute besides, and what they do not, a line each.
    pub contractions: Vec<String>,
}

/// One kernel, or the kernels of one cluster.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The kernel.
    pub name: String,
    /// The nodes that it computes.
    pub nodes: Vec<Arc<str>>,
    /// The sizes of its loops.
    pub space: Vec<usize>,
    /// The dims it reduces.
    pub reduced: Vec<usize>,
    /// What it costs.
    pub cost: Cost,
    /// How many kernels it is: more than one where few long rows are split.
    pub kernels: usize,
    /// Where its nodes come from in the user's Python, with commas between; empty if nothing says so.
    pub places: String,
    /// Findings about others, a line each.
    pub notes: Vec<String>,
    /// The names of its results.
    results: String,
}

impl Explained {
    /// Adds a cluster that was scheduled as kernels.
    pub(in crate::lower) fn kernel(
        &mut self,
        tir: &Tir,
        fusion: &Fusion,
        c: &Cluster,
        name: &str,
        kernels: &[Scheduled],
    ) {
        let mut nodes: Vec<Arc<str>> = vec![];
        for m in &c.members {
            let n = &tir.value(m.value).name;
            if !nodes.contains(n) {
                nodes.push(n.clone());
            }
        }
        self.kernels.push(Fused {
            name: name.into(),
            nodes,
            space: c.space.clone(),
            reduced: (0..c.space.len()).filter(|&d| c.reduced[d]).collect(),
            cost: cost::cost(tir, c, &|v| fusion.stored[v.0 as usize]),
            kernels: kernels.len(),
            places: String::new(),
            notes: vec![],
            results: results(tir, fusion, c),
        });
    }
}

impl Explained {
    /// Adds what fusion found about clusters and others. `numbers` are the units' positions here.
    pub(in crate::lower) fn notes(&mut self, tir: &Tir, fusion: &Fusion, numbers: &HashMap<UnitId, usize>) {
        let name = |v: ValueId| &*tir.value(v).name;
        let number = |v: ValueId| numbers.get(&fusion.unit_of[v.0 as usize]?).copied();
        let beside = fusion.beside.iter().filter_map(|(a, b, why)| {
            let line = format!("`{}` beside `{}`: {why}", name(*b), name(*a));
            Some((number(*a)?, line))
        });
        let mut lines: Vec<(usize, String)> = beside.collect();
        for (a, b, why) in &fusion.not_beside {
            if let (Some(before), Some(k)) = (number(*a), number(*b)) {
                let results = &self.kernels[before].results;
                lines.push((k, format!("not beside the kernel of `{results}`: {why}")));
            }
        }
        for (v, of, why) in &fusion.refused {
            // Both may have come together in the end.
            if let (Some(k), Some(other)) = (number(*v), number(*of))
                && k != other
            {
                let results = &self.kernels[other].results;
                lines.push((k, format!("`{}` apart from the kernel of `{results}`: {why}", name(*v))));
            }
        }
        for (k, line) in lines {
            let notes = &mut self.kernels[k].notes;
            if !notes.contains(&line) {
                notes.push(line);
            }
        }
    }
}

impl Explained {
    /// Says that `b` is computed with the contraction `a`, and how.
    pub(in crate::lower) fn with(&mut self, a: &str, b: &str, how: impl fmt::Display) {
        self.contractions.push(format!("`{b}` with `{a}`: {how}"));
    }

    /// Says why `b` is not computed with the contraction `a`.
    pub(in crate::lower) fn apart(&mut self, a: &str, b: &str, why: impl fmt::Display) {
        self.contractions.push(format!("`{b}` apart from `{a}`: {why}"));
    }
}

/// The names of the values that a cluster stores.
fn results(tir: &Tir, fusion: &Fusion, c: &Cluster) -> String {
    let stored = c
        .members
        .iter()
        .map(|m| m.value)
        .filter(|v| fusion.stored[v.0 as usize]);
    let names: Vec<&str> = stored.map(|v| &*tir.value(v).name).collect();
    names.join("`, `")
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = &self.kernels;
        let kept = kernels.iter().fold(0usize, |n, k| n.saturating_add(k.cost.kept));
        let nodes: usize = kernels.iter().map(|k| k.nodes.len()).sum();
        writeln!(
            f,
            "{nodes} nodes in {} fused kernels, which keep {} out of memory",
            kernels.len(),
            shown_bytes(kept)
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
            "  reads {}, writes {}, keeps {} out of memory; about {:.1} us on one thread",
            shown_bytes(c.reads),
            shown_bytes(c.writes),
            shown_bytes(c.kept),
            c.nanoseconds() / 1e3
        )?;
        if self.kernels > 1 {
            writeln!(
                f,
                "  split into {} kernels over parts of its rows: they are too few for several threads",
                self.kernels
            )?;
        }
        self.notes.iter().try_for_each(|n| writeln!(f, "  {n}"))
    }
}
