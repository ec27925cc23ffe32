//! The graphs of a model, read lazily from a compiled model.

use crate::driver::{CodeSource, LoadedModel};
use crate::graph::GraphModule;
use crate::source::Sources;
use std::sync::{Arc, OnceLock};

/// The graphs of a model. Those of a compiled model are read on demand, because calls only need the inputs.
#[derive(Clone)]
pub(super) struct Graphs {
    /// The whole model, or only its inputs.
    given: GraphModule,
    code: Option<Arc<CodeSource>>,
    /// Whether only the inputs are given.
    partial: bool,
    read: OnceLock<GraphModule>,
}

impl Graphs {
    /// The whole compiled model, or only the inputs if this version cannot read the file's graphs.
    pub(super) fn whole(&self) -> &GraphModule {
        match self.code.as_ref().filter(|_| self.partial) {
            None => &self.given,
            Some(code) => self.read.get_or_init(|| {
                let read = code.read_module(&mut Sources::new());
                read.unwrap_or_else(|_| self.given.clone())
            }),
        }
    }

    /// A module with at least the inputs.
    pub(super) fn inputs(&self) -> &GraphModule {
        &self.given
    }

    /// The graphs for editing, which drops the code of a compiled model.
    pub(super) fn whole_mut(&mut self) -> &mut GraphModule {
        if self.partial {
            self.given = self.whole().clone();
        }
        (self.code, self.partial) = (None, false);
        &mut self.given
    }

    pub(super) fn into_whole(mut self) -> GraphModule {
        std::mem::take(self.whole_mut())
    }

    /// The model in the driver's form.
    pub(super) fn to_loaded(&self, name: &str) -> LoadedModel {
        LoadedModel {
            code: self.code.clone(),
            partial: self.partial,
            ..LoadedModel::new(name, self.given.clone())
        }
    }
}

impl From<GraphModule> for Graphs {
    fn from(given: GraphModule) -> Graphs {
        Graphs {
            given,
            code: None,
            partial: false,
            read: OnceLock::new(),
        }
    }
}

impl From<LoadedModel> for Graphs {
    fn from(model: LoadedModel) -> Graphs {
        Graphs {
            given: model.module,
            code: model.code,
            partial: model.partial,
            read: OnceLock::new(),
        }
    }
}
