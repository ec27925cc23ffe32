//! The graphs of a model, which are read late if the model was compiled before.

use crate::driver::{CompiledFile, LoadedModel};
use crate::graph::GraphModule;
use crate::source::Sources;
use std::sync::{Arc, OnceLock};

/// The graphs of a model. Of a compiled model they are read when somebody asks for them: calls need the inputs alone.
#[derive(Clone)]
pub(super) struct Graphs {
    /// All of the model, or of a compiled one the inputs.
    given: GraphModule,
    file: Option<Arc<CompiledFile>>,
    read: OnceLock<GraphModule>,
}

impl Graphs {
    /// All of a compiled model; of a file whose graphs this version cannot read, the inputs.
    pub(super) fn whole(&self) -> &GraphModule {
        match &self.file {
            None => &self.given,
            Some(file) => self.read.get_or_init(|| {
                let read = file.read_module(&mut Sources::new());
                read.unwrap_or_else(|_| self.given.clone())
            }),
        }
    }

    /// A module with the inputs, and perhaps with more.
    pub(super) fn inputs(&self) -> &GraphModule {
        &self.given
    }

    /// The graphs, to be edited: the code of a compiled model is not theirs any more.
    pub(super) fn whole_mut(&mut self) -> &mut GraphModule {
        if self.file.is_some() {
            self.given = self.whole().clone();
            self.file = None;
        }
        &mut self.given
    }

    pub(super) fn into_whole(mut self) -> GraphModule {
        std::mem::take(self.whole_mut())
    }

    /// The model as the driver takes it.
    pub(super) fn to_loaded(&self, name: &str) -> LoadedModel {
        LoadedModel {
            file: self.file.clone(),
            ..LoadedModel::new(name, self.given.clone())
        }
    }
}

impl From<GraphModule> for Graphs {
    fn from(given: GraphModule) -> Graphs {
        Graphs {
            given,
            file: None,
            read: OnceLock::new(),
        }
    }
}

impl From<LoadedModel> for Graphs {
    fn from(model: LoadedModel) -> Graphs {
        Graphs {
            given: model.module,
            file: model.file,
            read: OnceLock::new(),
        }
    }
}
