//! Compiled models, the cache and the op table as JSON.

use crate::driver::{Cache, CacheFile, CompiledFile};
use crate::op::{self, Effect, Meaning, Op, ParamList};
use serde_json::{Value, json};
use std::time::SystemTime;

/// What a compiled model contains, and which of its code this machine can run.
pub fn describe_file(file: &CompiledFile) -> Value {
    let sections = file.sections().into_iter();
    let sections = sections.map(|s| json!({"name": s.name, "part": s.part, "bytes": s.bytes}));
    let parts = file.parts().into_iter().map(|p| {
        json!({
            "fits": p.unfit.is_none(),
            "why_not": p.unfit,
            "fxc": p.build,
            "platform": p.platform,
            "features": p.features,
            "inputs": p.inputs,
            "sizes": p.sizes.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "kernels": p.kernels,
            "contractions": p.contractions,
            "arena_bytes": p.arena,
        })
    });
    json!({
        "name": file.name(),
        "fxc": file.build(),
        "native": parts.collect::<Vec<_>>(),
        "sections": sections.collect::<Vec<_>>(),
    })
}

/// An entry of the cache with its description.
pub(crate) struct CacheEntry {
    /// The file.
    pub file: CacheFile,
    /// The model and its inputs; `None` if the entry cannot be read.
    pub model: Option<(String, Vec<String>)>,
}

impl CacheEntry {
    fn read(file: CacheFile) -> CacheEntry {
        let opened = CompiledFile::open(&file.path).ok();
        let inputs = |f: &CompiledFile| f.parts().into_iter().flat_map(|p| p.inputs).collect();
        let model = opened.map(|f| (f.name().to_string(), inputs(&f)));
        CacheEntry { file, model }
    }

    /// The seconds since the entry was last used.
    pub(crate) fn seconds_unused(&self) -> u64 {
        let age = SystemTime::now().duration_since(self.file.used);
        age.map_or(0, |age| age.as_secs())
    }
}

/// The entries, most recently used first.
pub(crate) fn cache_entries(cache: &Cache) -> Vec<CacheEntry> {
    cache.entries().into_iter().rev().map(CacheEntry::read).collect()
}

/// The folder of the cache, its limit and its entries.
pub fn describe_cache(cache: &Cache) -> Value {
    let entries = cache_entries(cache).into_iter().map(|d| {
        let (name, inputs) = d.model.clone().unzip();
        json!({
            "file": d.file.path.file_name().map(|n| n.to_string_lossy()),
            "model": name,
            "inputs": inputs,
            "bytes": d.file.bytes,
            "seconds_unused": d.seconds_unused(),
        })
    });
    json!({
        "folder": cache.folder().to_string_lossy(),
        "limit_bytes": cache.limit(),
        "entries": entries.collect::<Vec<_>>(),
    })
}

/// A row of the op table.
pub fn describe_op(o: &Op) -> Value {
    let forms: Vec<_> = o
        .forms
        .iter()
        .map(|f| json!({"paths": f.paths().collect::<Vec<_>>(), "schema": format!("{}{}", o.name, ParamList(&f.schema_of(o).params)), "inplace": f.inplace}))
        .collect();
    json!({
        "name": o.name,
        "schema": o.schema.to_string(),
        "doc": o.doc,
        "meaning": kind_name(o),
        "effect": effect_name(o),
        "commutative": o.commutative,
        "spellings": forms,
        "example": op::examples::example_of(o.name),
        "modules": o.modules.iter().map(|m| m.text).collect::<Vec<_>>(),
    })
}

/// What a row says about how the op is computed.
pub(crate) fn kind_name(o: &Op) -> &'static str {
    match o.meaning {
        Meaning::Pointwise(_) => "pointwise",
        Meaning::Reduce(_) => "reduction",
        Meaning::View(_) => "view",
        Meaning::Decompose(_) => "decomposition",
        Meaning::Contract(_) => "contraction",
        Meaning::Routine(_) | Meaning::Fill(_) => "routine",
        Meaning::Control(_) => "control flow",
        Meaning::Host => "host",
    }
}

/// Whether a call does more than compute its result.
pub(crate) fn effect_name(o: &Op) -> &'static str {
    match o.effect {
        Effect::Pure => "pure",
        Effect::Random => "random",
        Effect::External | Effect::Mutates | Effect::Interface => "effect",
    }
}
