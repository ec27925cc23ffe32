//! Loads models through the cache.

use super::{Cache, CachedModel};
use crate::driver::code_source::CodeSource;
use crate::driver::files;
use crate::driver::load::LoadedModel;
use crate::driver::session::{Session, Staged};
use crate::driver::stage::{Stage, StageProduct};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

impl Session {
    /// [`Session::load`] for a model whose code may be in the cache. The graphs of an archive are read only if the
    /// cache has no code for it.
    pub(in crate::driver) fn load_cached(&mut self, path: &str) -> Staged<LoadedModel> {
        let start = Instant::now();
        let Some(cache) = self.cache.clone().filter(|_| !self.lifted) else {
            return self.load(path);
        };
        let archive = path != "-" && self.weights.is_none() && files::is_archive(Path::new(path));
        let cached = archive
            .then(|| CachedModel::of_archive(&cache, Path::new(path)))
            .flatten();
        let cached = match cached.map(|c| (c.read_inputs(&mut self.sources), c)) {
            Some((Some(module), cached)) => {
                self.took_since(Stage::Load, StageProduct::Module(&module), start);
                return Ok(with_code(LoadedModel::new(path, module), cached, true));
            }
            Some((None, cached)) => Some(cached),
            None => None,
        };
        let reported = self.diagnostics.len();
        let model = self.load(path)?;
        // Warnings about the model are reported by each process.
        if self.diagnostics.len() > reported {
            return Ok(model);
        }
        match cached.or_else(|| self.find_text(&cache, &model)) {
            Some(cached) => Ok(with_code(model, cached, false)),
            None => Ok(model),
        }
    }

    fn find_text(&self, cache: &Arc<Cache>, model: &LoadedModel) -> Option<CachedModel> {
        let text = &self.sources.get(model.tree.as_ref()?.span.file).text;
        CachedModel::of_text(cache, text, &model.module)
    }
}

fn with_code(model: LoadedModel, cached: CachedModel, partial: bool) -> LoadedModel {
    let cached = cached.described_by(&model.module);
    LoadedModel {
        code: Some(Arc::new(CodeSource::Cache(Box::new(cached)))),
        partial,
        ..model
    }
}
