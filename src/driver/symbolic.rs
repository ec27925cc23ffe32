//! The module that the passes make of a model with symbolic sizes, and code for given sizes.
//!
//! The passes run once on symbolic sizes. To find what known sizes allow beyond that, they run again on the module with the first sizes
//! that a call has. Mostly they only fold what depends on sizes, which lowering does as well ([`SizedNodes`]): then both ways give the
//! same program, and code for further sizes is lowered directly from the module with symbolic sizes. That takes a fifth of the time.

use super::compile::{Request, compile};
use super::declared::declared_types;
use super::inputs::bind::{BoundInputs, Dims};
use super::load::LoadedModel;
use super::ready::Ready;
use super::session::{Reported, Session, Staged};
use crate::artifact::same_code;
use crate::graph::{GraphModule, NodeId};
use crate::infer::Inference;
use crate::lower::{Binding, SizedNodes};
use crate::program::Program;
use crate::types::{TensorType, Type};
use std::sync::Arc;

/// The module after the passes, with symbolic sizes.
pub(super) enum SymbolicModule {
    /// It has not been computed.
    Later,
    /// There are no symbolic sizes, or the passes need fixed sizes.
    None,
    Made(Box<SizedModule>),
}

/// A module that was optimised with symbolic sizes.
pub(super) struct SizedModule {
    module: Arc<GraphModule>,
    /// What the passes relied on.
    assumed: Inference,
    sized: SizedNodes,
    direct: DirectLowering,
}

/// Whether lowering the module for given sizes gives the program that the passes give for these sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectLowering {
    /// No sizes have been compared.
    Unknown,
    Equal,
    /// The passes do more, or part of the graph is interpreted.
    Different,
}

impl SymbolicModule {
    /// Checks and optimises a module with its declared types. There is no such module if no input has a symbolic size, or if something is
    /// wrong: the compilation for fixed sizes then reports the errors.
    pub(super) fn optimize(session: &mut Session, module: &GraphModule, request: &Request) -> SymbolicModule {
        match optimized_for_symbols(session, module, request) {
            Some((module, assumed)) => SymbolicModule::Made(Box::new(SizedModule::new(module, assumed, request))),
            None => SymbolicModule::None,
        }
    }

    /// The module for these sizes. `None` if they do not satisfy the equations that the passes relied on, such as sizes that broadcast.
    pub(super) fn fitting(&mut self, sizes: &Dims) -> Option<&mut SizedModule> {
        match self {
            SymbolicModule::Made(m) if m.assumed.holds_for(&|name| sizes.get(name).copied()) => Some(m),
            _ => None,
        }
    }
}

impl SizedModule {
    fn new(module: GraphModule, assumed: Inference, request: &Request) -> SizedModule {
        let folds = !request.passes.skip.iter().any(|s| s == "fold");
        let limit = if folds { request.passes.fold_limit } else { 0 };
        let sized = module.entry().map(|g| SizedNodes::find_in(&module, g, limit));
        SizedModule {
            module: Arc::new(module),
            assumed,
            sized: sized.unwrap_or_default(),
            direct: DirectLowering::Unknown,
        }
    }

    /// Compiles for the sizes of one call. Also returns the module that tells how inputs and results are converted.
    pub(super) fn compile_sizes(
        &mut self,
        session: &mut Session,
        name: &str,
        request: &Request,
        bound: &BoundInputs,
    ) -> Staged<(Arc<GraphModule>, Ready)> {
        let is_usual = is_usual(&bound.dims);
        if is_usual && self.direct == DirectLowering::Equal
            // An error is reported by the passes and stages for these sizes.
            && let Some(program) = self.lower_directly(session, bound)
        {
            let executable = session.compile(program, request.threads, false)?;
            return Ok((self.module.clone(), Ready::from_executable(executable)));
        }
        let reported = session.diagnostics.len();
        let module = GraphModule::clone(&self.module);
        let (module, ready) = session.without_warnings(|s| compile_module(s, name, module, request))?;
        if is_usual && self.direct == DirectLowering::Unknown && session.diagnostics.len() == reported {
            let direct = self.lower_directly(session, bound);
            let is_equal = ready.whole_executable().zip(direct);
            let is_equal = is_equal.is_some_and(|(e, direct)| same_code(e.program(), &direct));
            self.direct = if is_equal {
                DirectLowering::Equal
            } else {
                DirectLowering::Different
            };
        }
        Ok((module, ready))
    }

    /// The program for the sizes of one call, lowered without further passes.
    fn lower_directly(&self, session: &mut Session, bound: &BoundInputs) -> Option<Program> {
        if declared_types(&self.module, &bound.dims) != bound.types {
            return None;
        }
        let dims = bound.dims.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let binding = Binding::of_symbols(&dims, &self.sized);
        session.lower_bound(&self.module, self.module.entry()?, &binding).ok()
    }
}

/// Whether no size is 0 or 1. For these the passes often find more: dims that broadcast, views that change nothing.
fn is_usual(dims: &Dims) -> bool {
    dims.values().all(|&n| n > 1)
}

/// Compiles a module for the types and sizes of the request.
pub(super) fn compile_module(
    session: &mut Session,
    name: &str,
    module: GraphModule,
    request: &Request,
) -> Staged<(Arc<GraphModule>, Ready)> {
    let model = LoadedModel::new(name.to_string(), module);
    let compilation = compile(session, model, request)?;
    let ready = compilation.ready.ok_or(Reported)?;
    Ok((Arc::new(compilation.module), ready))
}

/// The module checked and optimised with its declared types, and what these types rely on.
fn optimized_for_symbols(
    session: &mut Session,
    module: &GraphModule,
    request: &Request,
) -> Option<(GraphModule, Inference)> {
    let graph = module.entry()?;
    let declared = |n: NodeId| graph[n].meta.ty.as_ref();
    let symbolic = |t: &Type| {
        let dims = |t: &TensorType| t.shape.iter().flatten().any(|d| d.as_const().is_none());
        t.leaves().into_iter().any(dims)
    };
    let placeholders = graph.placeholders();
    let ranked = |t: &Type| t.leaves().iter().all(|t| t.shape.is_some());
    let all_known = placeholders.iter().all(|&n| declared(n).is_some_and(ranked));
    if !all_known || !placeholders.iter().any(|&n| declared(n).is_some_and(symbolic)) || request.passes.limit.is_some()
    {
        return None;
    }
    let mut module = module.clone();
    let assumed = session.try_work(|s| {
        let assumed = s.check_sizes(&mut module, &[])?;
        s.optimize(&mut module, &request.passes)?;
        Ok(assumed)
    })?;
    Some((module, assumed))
}

#[cfg(test)]
#[path = "symbolic_tests.rs"]
mod tests;
