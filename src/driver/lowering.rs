//! Lowers graphs in a session.

use super::inputs::bind::Dims;
use super::session::{Reported, Session, Staged};
use super::stage::{Stage, StageProduct};
use crate::graph::{Graph, GraphModule};
use crate::lower::{self, LowerError};
use crate::program::Program;
use crate::target::{Target, with_target};
use std::time::Instant;

impl Session {
    /// Lowers an optimised module's entry graph. `dims` binds its sizes.
    pub fn lower(&mut self, module: &GraphModule, dims: &Dims) -> Staged<Program> {
        let graph = module.entry().ok_or(Reported)?;
        self.lower_graph(module, graph, dims)
    }

    /// [`Session::lower`] for a graph that refers to the module's attributes.
    pub fn lower_graph(&mut self, module: &GraphModule, graph: &Graph, dims: &Dims) -> Staged<Program> {
        self.try_lower(module, graph, dims).map_err(|e| {
            self.report(e.into_diagnostic());
            Reported
        })
    }

    /// [`Session::lower_graph`] that distinguishes unsupported graphs from errors, and reports neither.
    pub(super) fn try_lower(
        &mut self,
        module: &GraphModule,
        graph: &Graph,
        dims: &Dims,
    ) -> Result<Program, LowerError> {
        let dims = dims.iter().map(|(k, v)| (k.clone(), *v)).collect();
        self.lower_bound(module, graph, &lower::Binding::new(&dims))
    }

    /// [`Session::try_lower`] with all that is known about the sizes.
    pub(super) fn lower_bound(
        &mut self,
        module: &GraphModule,
        graph: &Graph,
        binding: &lower::Binding<'_>,
    ) -> Result<Program, LowerError> {
        let start = Instant::now();
        let mut texts = self.tensor_ir.as_ref().map(|_| vec![]);
        let mut lower = || {
            lower::lower(module, graph, binding, &mut |step, tir| {
                texts.iter_mut().for_each(|t| t.push((step, tir.to_string())));
            })
        };
        // Some steps depend on the units of the target, which need not be those of this machine.
        let lowered = with_target(self.target.unwrap_or_else(Target::native), &mut lower);
        self.tensor_ir = texts;
        lowered.inspect(|program| self.took_since(Stage::Lower, StageProduct::Program(program), start))
    }
}
