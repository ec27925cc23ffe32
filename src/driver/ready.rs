//! A model for one combination of input types, ready to run: compiled as a whole, or up to the first data-dependent
//! size.

use super::compile::Request;
use super::inputs::bind::{BoundInputs, Dims, Value};
use super::run::executable_inputs;
use super::session::{Reported, Session, Staged};
use super::split::{InterpretedTail, RegionPlan, SplitExecutable};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule};
use crate::lower::LowerError;
use crate::program::Program;
use crate::runtime::Executable;
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// Values of buffers, by path.
pub type BufferState = HashMap<Arc<str>, Tensor>;

/// An optimised module with fixed input sizes, ready to run.
pub struct Ready {
    way: ExecutionPlan,
}

enum ExecutionPlan {
    Whole(Box<Executable>),
    Split(Box<SplitExecutable>),
}

/// The program for the compiled part of a module, and the interpreted rest.
#[derive(Default)]
pub(super) struct Lowered {
    /// `None` if everything depends on values.
    pub program: Option<Program>,
    tail: Option<InterpretedTail>,
    /// The regions of the tail that are compiled later.
    regions: Option<RegionPlan>,
    /// The warning about the interpreted tail.
    pub warning: Option<Diagnostic>,
    /// The error if code was requested but there is no program.
    pub nothing: Option<Diagnostic>,
    /// The nodes whose values are the program's results, if there is a tail.
    kept: Vec<crate::graph::NodeId>,
}

/// Lowers an optimised module: as a whole, or up to the first data-dependent size. A graph that cannot be lowered
/// (for example a loop that carries a number) is interpreted as a whole.
pub(super) fn lower_module(session: &mut Session, module: &GraphModule, dims: &Dims) -> Staged<Lowered> {
    let graph = module.entry().ok_or(Reported)?;
    let Some(tail) = InterpretedTail::from_graph(graph) else {
        return match session.try_lower(module, graph, dims) {
            Ok(program) => Ok(Lowered {
                program: Some(program),
                ..Lowered::default()
            }),
            Err(e) => interpret_whole(session, graph, e),
        };
    };
    let regions = session.has_regions().then(|| tail.regions(module)).flatten();
    let mut lowered = Lowered {
        warning: Some(tail.warning(graph, regions.as_ref().map_or(0, |r| r.operations))),
        nothing: Some(tail.nothing_compiled(graph)),
        ..Lowered::default()
    };
    if let Some((head, nodes)) = tail.head_graph(graph) {
        match session.try_lower(module, &head, dims) {
            Ok(program) => (lowered.program, lowered.kept) = (Some(program), nodes),
            Err(e) => return interpret_whole(session, graph, e),
        }
    }
    (lowered.tail, lowered.regions) = (Some(tail), regions);
    Ok(lowered)
}

/// Handles an error of lowering. A refused graph is interpreted as a whole, with a warning; other errors are
/// reported.
fn interpret_whole(session: &mut Session, graph: &Graph, e: LowerError) -> Staged<Lowered> {
    match (e, InterpretedTail::whole_graph(graph)) {
        (LowerError::Refused(refusal), Some(tail)) => {
            let title = format!("the graph runs in the interpreter: {}", refusal.reason());
            Ok(Lowered {
                tail: Some(tail),
                warning: Some(Diagnostic::new(Code::L0003, title).at_opt(refusal.span(), "this cannot be compiled")),
                nothing: Some(refusal.into()),
                ..Lowered::default()
            })
        }
        (e, _) => {
            session.report(e.into_diagnostic());
            Err(Reported)
        }
    }
}

impl Lowered {
    /// Compiles the program that was lowered from `module`. `text` keeps the text of the kernels' code.
    pub(super) fn compile(
        self,
        session: &mut Session,
        module: &GraphModule,
        request: &Request,
        text: bool,
    ) -> Staged<Ready> {
        let executable = match self.program {
            Some(program) => Some(session.compile(program, request.threads, text)?),
            None => None,
        };
        let way = match (self.tail, executable) {
            (None, Some(executable)) => ExecutionPlan::Whole(Box::new(executable)),
            (None, None) => return Err(Reported),
            (Some(tail), executable) => {
                let head = executable.map(|e| (e, self.kept));
                let tail = (tail, self.regions);
                ExecutionPlan::Split(Box::new(SplitExecutable::new(module, tail, head, (session, request))))
            }
        };
        Ok(Ready { way })
    }
}

impl Ready {
    /// A model that is compiled as a whole.
    pub(super) fn from_executable(executable: Executable) -> Ready {
        Ready {
            way: ExecutionPlan::Whole(Box::new(executable)),
        }
    }

    /// The compiled part, if there is one.
    pub fn executable(&self) -> Option<&Executable> {
        match &self.way {
            ExecutionPlan::Whole(e) => Some(e),
            ExecutionPlan::Split(s) => s.executable(),
        }
    }

    /// The compiled part, for runs without the additional work of [`Ready::run`].
    pub fn executable_mut(&mut self) -> Option<&mut Executable> {
        match &mut self.way {
            ExecutionPlan::Whole(e) => Some(e),
            ExecutionPlan::Split(s) => s.executable_mut(),
        }
    }

    /// The executable, if all of the model is compiled.
    pub fn whole_executable(&self) -> Option<&Executable> {
        match &self.way {
            ExecutionPlan::Whole(e) => Some(e),
            ExecutionPlan::Split(_) => None,
        }
    }

    /// The executable, if all of the model is compiled.
    pub fn into_executable(self) -> Option<Executable> {
        match self.way {
            ExecutionPlan::Whole(e) => Some(*e),
            ExecutionPlan::Split(_) => None,
        }
    }

    /// The number of operations that run in the interpreter because of data-dependent sizes.
    pub fn interpreted_count(&self) -> usize {
        match &self.way {
            ExecutionPlan::Whole(_) => 0,
            ExecutionPlan::Split(s) => s.interpreted_count(),
        }
    }

    /// [`Ready::run`] for a caller without state: the compiled code keeps the buffers that it updates.
    pub fn run_alone(&mut self, module: &GraphModule, bound: &BoundInputs) -> Result<Value, Diagnostic> {
        let mut state = BufferState::new();
        let result = self.run(module, bound, &mut state);
        if let Some(executable) = self.executable_mut() {
            executable.lend_state(&mut state, false);
        }
        result
    }

    /// Runs on inputs of the types that it was compiled for; `module` is the optimised module. The new values of
    /// buffers and inputs are the leading results ([`Graph::mutations`](crate::graph::Graph::mutations)). `state` has
    /// the values of buffers that earlier runs updated; those that the run writes in place are the executable's meanwhile.
    pub fn run(
        &mut self,
        module: &GraphModule,
        bound: &BoundInputs,
        state: &mut BufferState,
    ) -> Result<Value, Diagnostic> {
        match &mut self.way {
            ExecutionPlan::Whole(executable) => {
                let inputs = match module.entry() {
                    Some(graph) => executable_inputs(executable, graph, bound)?,
                    None => vec![],
                };
                executable.lend_state(state, true);
                let result = executable.run(&inputs).map_err(|d| *d);
                executable.return_state(state);
                result
            }
            ExecutionPlan::Split(split) => {
                for (path, t) in state.iter() {
                    if let Some(head) = split.executable_mut() {
                        head.set_state(path, t);
                    }
                }
                split.run(module, bound, |interpreter| {
                    state
                        .iter()
                        .for_each(|(path, t)| interpreter.set_attribute(path, t.clone()));
                })
            }
        }
    }
}
