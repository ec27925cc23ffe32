//! Programs: the steps over buffers that lowering produces from a graph.
//!
//! `fxc print --format program` prints one. A linear layer followed by a GELU has two buffers that callers see (the
//! input and the result), a weight, and one step: a matrix product whose tail is the kernel of the GELU.

mod affine;
mod apart;
mod contract;
#[cfg(feature = "compiler")]
pub(crate) mod print;
#[cfg(feature = "compiler")]
pub(crate) mod python;
pub(crate) mod report;

pub(crate) use affine::AffineTail;
pub(crate) use contract::{
    Between, Contract, MAX_BETWEEN_BUFFERS, RecurrentOperands, recurrent_operands, whole_buffer,
};

use crate::control::ControlCall;
use crate::kernel::Kernel;
use crate::source::Loc;
use crate::tensor::Tensor;
use crate::types::{DType, Mutation, Val};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A buffer of a program, by its position in [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferId(pub usize);

/// Where a buffer's memory comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BufferPlace {
    /// Input `n`, given for each run.
    Input(usize),
    /// A weight or constant.
    Constant(#[serde(with = "apart")] Tensor),
    /// Memory at this offset of the arena.
    Arena(usize),
    /// Result `n`: memory that the caller receives.
    Output(usize),
    /// No memory: a step computes and uses the value piece by piece.
    Pieces,
}

/// A buffer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Buffer {
    /// The name of the graph node that it holds.
    pub name: Arc<str>,
    /// Element type.
    pub dtype: DType,
    /// Shape, row-major.
    pub shape: Vec<usize>,
    /// The source of its memory.
    pub place: BufferPlace,
}

impl Buffer {
    /// The size in bytes.
    pub fn byte_count(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

/// A strided view of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferOperand {
    /// The buffer.
    pub buffer: BufferId,
    /// Offset of the first element.
    pub offset: i64,
    /// Shape.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

/// A kernel that follows a contraction. Its result has the shape of the contraction's, and element `i` depends only
/// on element `i` of the contraction's result, on elements `i` of its buffers, and on elements of buffers that repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelTail {
    /// Index into [`Program::kernels`].
    pub kernel: usize,
    /// One buffer per parameter; the contraction's result is among those that are read.
    pub buffers: Vec<BufferId>,
    /// For each parameter, how its elements repeat, if the kernel reads them once for each row of the result.
    pub repeats: Vec<Option<Repeat>>,
    /// The parameter for the sums of a product of bytes, i32, which are never complete in memory
    /// ([`BufferPlace::Pieces`]). The kernel stores elements of another size to the step's result.
    pub sums: Option<usize>,
}

/// The maximum number of parameters of a [`KernelTail`] with repeated elements or sums in pieces.
pub(crate) const MAX_TAIL_BUFFERS: usize = 16;

/// A buffer whose element `i % period` belongs to element `i` of a result: the scale of each column, for example. The kernel reads
/// element `i`, so it runs on ranges between multiples of the period, and gets the address minus the start of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// The number of elements.
    pub period: usize,
    /// The size of an element in bytes.
    pub size: usize,
}

/// A call of an op that computes whole tensors. The runtime resolves the name to a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoutineCall {
    /// The op's name in the table.
    pub op: Arc<str>,
    /// One value per parameter of its schema, in order.
    pub args: Vec<Val<BufferOperand>>,
    /// Whether the routine copies its first argument to its result, unless they are the same memory, changes elements of the result,
    /// and reads only its other arguments.
    pub updates: bool,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Runs a loop kernel on these buffers.
    Kernel {
        /// Index into [`Program::kernels`].
        kernel: usize,
        /// One buffer per parameter.
        buffers: Vec<BufferId>,
    },
    /// A matrix product, convolution or attention.
    Contract {
        /// The contraction and its operands.
        contract: Contract,
        /// The result, row-major.
        out: BufferId,
        /// A pointwise kernel, flat over the result, that runs on each piece of the result when it is complete.
        tail: Option<KernelTail>,
    },
    /// Calls an op's routine on tensors.
    Routine {
        /// The op and its arguments.
        call: RoutineCall,
        /// The tensors of its result, flattened, row-major.
        outs: Vec<BufferId>,
    },
    /// Runs programs as often as a control-flow op requires.
    Control {
        /// The op.
        op: Arc<str>,
        /// Its arguments.
        parts: ControlCall<BufferOperand>,
        /// The programs of the graphs that it calls, in the order of [`ControlCall::graphs`].
        #[serde(deserialize_with = "crate::types::nested")]
        graphs: Vec<Program>,
        /// The tensors of its result, flattened, row-major.
        outs: Vec<BufferId>,
    },
}

/// An input of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramInput {
    /// The name of the placeholder or buffer.
    pub name: Arc<str>,
    /// The type; `None` for an input that is not a tensor and became a constant of the program.
    pub ty: Option<(DType, Vec<usize>)>,
    /// For a buffer that the program updates: its value before the first run. `name` is its path. The owner of the
    /// program keeps its value from run to run, and callers do not provide it.
    #[serde(with = "apart")]
    pub state: Option<Tensor>,
}

/// A program: steps over buffers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The loop kernels, each named after the nodes that it computes.
    pub kernels: Vec<Kernel>,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// The inputs in order.
    pub inputs: Vec<ProgramInput>,
    /// The structure of the result. Its leaves are buffers (outputs, or inputs and constants that are returned
    /// unchanged) with the shapes that callers see.
    pub output: Option<Val<(BufferId, Vec<usize>)>>,
    /// The buffers and inputs whose new values are the leading results.
    pub mutations: Vec<Mutation>,
    /// The number of results that are allocated for each run.
    pub outputs: usize,
    /// The size of the arena in bytes.
    pub arena: usize,
    /// The total size in bytes of the intermediate buffers, without sharing.
    pub naive_arena: usize,
    /// For each step, the names of the graph nodes that it computes.
    pub nodes: Vec<Vec<Arc<str>>>,
    /// The fusion report: which nodes share a kernel, which do not, and why.
    #[serde(skip)]
    pub fusion: report::Explained,
    /// The Python source locations of the nodes that buffers and kernels are named after.
    #[serde(serialize_with = "apart::sorted")]
    pub places: Arc<HashMap<Arc<str>, Loc>>,
}

/// The maximum bytes of results, and the maximum iterations of loops and products, of a quick program.
const QUICK: usize = 1 << 17;

impl Program {
    /// Whether a run takes some microseconds at most: kernels of few iterations, and small products.
    pub fn is_quick(&self) -> bool {
        // What kernels read is bounded by their iterations: an index may name few rows of a large table.
        let written = self
            .buffers
            .iter()
            .filter(|b| !matches!(b.place, BufferPlace::Input(_) | BufferPlace::Constant(_)));
        let bytes = written.fold(0usize, |n, b| n.saturating_add(b.byte_count()));
        let iterations = |k: &Kernel| k.extents.iter().fold(1usize, |n, &e| n.saturating_mul(e));
        let work = self.kernels.iter().fold(0usize, |n, k| n.saturating_add(iterations(k)));
        let products = self.steps.iter().try_fold(0.0, |n, s| match s {
            Step::Kernel { .. } => Some(n),
            Step::Contract { contract, .. } => Some(n + contract.macs()),
            Step::Routine { .. } | Step::Control { .. } => None,
        });
        bytes <= QUICK && work <= QUICK && products.is_some_and(|n| n <= QUICK as f64)
    }

    /// All tensors of the program, in a fixed order: the constants and the initial values of buffers, then the
    /// tensors of the programs that its steps run.
    pub fn tensors(&self) -> Vec<&Tensor> {
        let constants = self.buffers.iter().filter_map(|b| match &b.place {
            BufferPlace::Constant(t) => Some(t),
            _ => None,
        });
        let states = self.inputs.iter().filter_map(|i| i.state.as_ref());
        let inner = self.nested().flat_map(Program::tensors);
        constants.chain(states).chain(inner).collect()
    }

    /// The programs that its steps run, in order.
    pub fn nested(&self) -> impl Iterator<Item = &Program> {
        self.steps.iter().flat_map(|s| match s {
            Step::Control { graphs, .. } => &graphs[..],
            _ => &[],
        })
    }

    /// The names of the ops whose routines are called, including those in the programs that its steps run.
    pub fn routine_ops(&self) -> BTreeSet<&str> {
        let own_ops = self.steps.iter().filter_map(|s| match s {
            Step::Routine { call, .. } => Some(&*call.op),
            _ => None,
        });
        own_ops.chain(self.nested().flat_map(Program::routine_ops)).collect()
    }

    /// [`Program::tensors`], mutable.
    pub fn tensors_mut(&mut self) -> Vec<&mut Tensor> {
        let constants = self.buffers.iter_mut().filter_map(|b| match &mut b.place {
            BufferPlace::Constant(t) => Some(t),
            _ => None,
        });
        let states = self.inputs.iter_mut().filter_map(|i| i.state.as_mut());
        let inner = self.steps.iter_mut().flat_map(|s| match s {
            Step::Control { graphs, .. } => &mut graphs[..],
            _ => &mut [],
        });
        let inner = inner.flat_map(Program::tensors_mut);
        constants.chain(states).chain(inner).collect()
    }

    /// The program without names and reports, which do not affect what it does.
    pub(crate) fn without_names(&self) -> Program {
        let mut p = Program {
            buffers: self.buffers.clone(),
            kernels: self.kernels.clone(),
            steps: self.steps.clone(),
            inputs: self.inputs.clone(),
            output: self.output.clone(),
            mutations: self.mutations.clone(),
            fusion: report::Explained::default(),
            nodes: vec![],
            places: Arc::default(),
            ..*self
        };
        let none: Arc<str> = "".into();
        p.buffers.iter_mut().for_each(|b| b.name = none.clone());
        for kernel in &mut p.kernels {
            kernel.name = String::new();
            kernel.nodes = vec![];
            kernel.buffers.iter_mut().for_each(|b| b.name = String::new());
        }
        for step in &mut p.steps {
            if let Step::Control { graphs, .. } = step {
                graphs.iter_mut().for_each(|g| *g = g.without_names());
            }
        }
        p
    }

    /// The total size of the constants in bytes. Constants that share memory count once.
    pub fn weight_bytes(&self) -> usize {
        let constants = self.buffers.iter().filter_map(|b| match &b.place {
            BufferPlace::Constant(t) => Some((t.life().bytes_id().clone(), t.byte_count())),
            _ => None,
        });
        constants.collect::<HashMap<_, _>>().values().sum()
    }
}

impl Step {
    /// Calls `f` with the buffers that the step reads or writes.
    pub fn visit_buffers(&self, f: &mut dyn FnMut(BufferId)) {
        match self {
            Step::Kernel { buffers, .. } => buffers.iter().for_each(|b| f(*b)),
            Step::Contract { contract, out, tail } => {
                contract.operands().iter().for_each(|o| f(o.buffer));
                f(*out);
                tail.iter().flat_map(|t| &t.buffers).for_each(|b| f(*b));
            }
            Step::Routine { call, outs } => {
                call.args.iter().for_each(|v| v.visit(&mut |o| f(o.buffer)));
                outs.iter().for_each(|b| f(*b));
            }
            Step::Control { parts, outs, .. } => {
                parts.values().for_each(|v| v.visit(&mut |o| f(o.buffer)));
                outs.iter().for_each(|b| f(*b));
            }
        }
    }

    /// The buffers that the step reads or writes.
    pub fn buffers(&self) -> Vec<BufferId> {
        let mut all = vec![];
        self.visit_buffers(&mut |b| all.push(b));
        all
    }

    /// Whether the step reads or writes a buffer.
    pub fn uses(&self, buffer: BufferId) -> bool {
        let mut found = false;
        self.visit_buffers(&mut |b| found |= b == buffer);
        found
    }
}
