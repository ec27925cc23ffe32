//! The fusion report of a program: what each kernel computes and moves, and why other values are not part of it.

use super::cluster::Cluster;
use super::cost;
use super::{Fusion, UnitId};
use crate::lower::ir::{Scheduled, Tir, ValueId};
use crate::program::report::{Explained, Fused};
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl Explained {
    /// Adds a cluster that was scheduled as kernels.
    pub(in crate::lower) fn add_kernel(
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
            cost: cost::cluster_cost(tir, c, &|v| fusion.stored[v.0 as usize]),
            kernels: kernels.len(),
            places: String::new(),
            notes: vec![],
            results: stored_names(tir, fusion, c),
        });
    }
}

impl Explained {
    /// Adds the findings of fusion about clusters and other units. `numbers` maps units to their indices in this
    /// report.
    pub(in crate::lower) fn add_notes(&mut self, tir: &Tir, fusion: &Fusion, numbers: &FxHashMap<UnitId, usize>) {
        let name = |v: ValueId| &*tir.value(v).name;
        let number = |v: ValueId| numbers.get(&fusion.unit_of[v.0 as usize]?).copied();
        let merged = fusion.merged.iter().filter_map(|(a, b, reason)| {
            let line = format!("`{}` merged with `{}`: {reason}", name(*b), name(*a));
            Some((number(*a)?, line))
        });
        let mut lines: Vec<(usize, String)> = merged.collect();
        for (a, b, reason) in &fusion.unmerged {
            if let (Some(before), Some(k)) = (number(*a), number(*b)) {
                let results = &self.kernels[before].results;
                lines.push((k, format!("not merged with the kernel of `{results}`: {reason}")));
            }
        }
        for (v, target, reason) in &fusion.refused {
            // Later merges may have joined both after all.
            if let (Some(k), Some(other)) = (number(*v), number(*target))
                && k != other
            {
                let results = &self.kernels[other].results;
                lines.push((
                    k,
                    format!("`{}` not fused into the kernel of `{results}`: {reason}", name(*v)),
                ));
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

/// The names of the values that a cluster stores.
fn stored_names(tir: &Tir, fusion: &Fusion, c: &Cluster) -> String {
    let stored = c
        .members
        .iter()
        .map(|m| m.value)
        .filter(|v| fusion.stored[v.0 as usize]);
    let names: Vec<&str> = stored.map(|v| &*tir.value(v).name).collect();
    names.join("`, `")
}
