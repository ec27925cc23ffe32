//! The tensor IR of lowering: a list of values in SSA form, all sizes known. Each is a pointwise map, a reduction, a
//! view, a contraction or a library call.
//!
//! [`Tir::read`] builds it from an optimised graph: canonical ops are lowered by their meaning, composites without a
//! kernel are decomposed on the way, and computations on sizes become constants.

pub(crate) mod access;
pub(in crate::lower) mod known;
mod order;
mod range;
mod scheduled;
mod special;
mod text;
mod unused;

pub(crate) use scheduled::{Scheduled, Stored};
pub(crate) use special::{Attend, Groups, ScanOp, SpatialWindow, Special};

use self::access::{Access, resolve_access};
use self::known::KnownCalls;
use crate::math::contract::Activation;
use crate::op::{self, AffineIndex, Call, Contraction, IndexMap, OpError, OpResult, Reduction, SoftmaxPart, Traced};
use crate::scalar::ScalarExpr;
use crate::tensor::{Tensor, byte_len};
use crate::types::{DType, Mutation, TensorType, Val};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// A value of the tensor IR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// The definition of a value.
#[derive(Clone, Debug)]
pub enum Def {
    /// Input `n` of the program.
    Input(usize),
    /// A weight or constant.
    Constant(Tensor),
    /// `expr` of the elements of `args`, which broadcast to the value's shape.
    Pointwise {
        /// One argument per operand, one root.
        expr: Arc<ScalarExpr>,
        /// The operands.
        args: Vec<ValueId>,
    },
    /// A reduction. Reduced dims keep size 1.
    Reduce {
        /// The value to reduce.
        arg: ValueId,
        /// The reduced dims, sorted.
        dims: Vec<usize>,
        /// The reduction, with the expressions applied before and after it.
        reduction: Arc<Reduction>,
    },
    /// The elements of `arg`, rearranged.
    View {
        /// The operand.
        arg: ValueId,
        /// Maps indices of the view to indices of the operand.
        map: IndexMap,
    },
    /// A matrix product or convolution. Operand numbers in `contraction` are positions in `args`.
    Contract {
        /// The operands.
        args: Vec<ValueId>,
        /// What to compute.
        contraction: Contraction,
    },
    /// A special kernel.
    Special {
        /// The operands.
        args: Vec<ValueId>,
        /// What to compute.
        special: Special,
    },
    /// A library call: result number `result` of call `call`.
    Routine {
        /// Index into [`Tir::calls`].
        call: usize,
        /// The index in the flattened results.
        result: usize,
    },
}

/// A value's definition and type.
#[derive(Clone, Debug)]
pub struct ValueDef {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// The definition.
    pub def: Def,
    /// The name of the graph node it was made for.
    pub name: Arc<str>,
}

impl ValueDef {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A library call.
#[derive(Clone, Debug)]
pub struct TirRoutineCall {
    /// The op and its arguments.
    pub call: Call<ValueId>,
    /// The tensors among the results, flattened. A call without results has one empty tensor.
    pub results: Vec<ValueId>,
    /// For control flow, the graphs it calls.
    pub graphs: Vec<Tir>,
}

impl TirRoutineCall {
    /// Whether the call has side effects: it draws random numbers or calls graphs, which may.
    pub fn has_side_effects(&self) -> bool {
        self.call.op.effect != op::Effect::Pure || !self.graphs.is_empty()
    }
}

/// Thresholds for splitting and merging kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// A kernel with few iterations is split if it takes at least this long, in nanoseconds.
    pub long: f64,
    /// The approximate duration of a part, in nanoseconds.
    pub part: f64,
    /// Independent kernels of at most this duration, in nanoseconds, run as one. They run on about one thread anyway.
    pub small: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            long: 20_000.0,
            part: 5_000.0,
            small: 4_000.0,
        }
    }
}

/// The tensor IR of a graph.
#[derive(Clone, Debug, Default)]
pub struct Tir {
    /// The values, operands before users.
    pub values: Vec<ValueDef>,
    /// The library calls.
    pub calls: Vec<TirRoutineCall>,
    /// The program's inputs: the name, and the value (or the plain value for inputs that are not tensors).
    pub inputs: Vec<(Arc<str>, Val<ValueId>)>,
    /// The initial values of the inputs that are buffers which the graph updates.
    pub state: FxHashMap<usize, Tensor>,
    /// The program's result.
    pub output: Option<Val<ValueId>>,
    /// Pointwise values that a contraction can apply to its result as an activation.
    pub activations: FxHashMap<ValueId, Activation>,
    /// The roles of pointwise f32 values in a softmax.
    pub softmax: FxHashMap<ValueId, SoftmaxPart>,
    /// Whether a convolution has its channels last: in its input, in its output.
    pub channels_last: FxHashMap<ValueId, [bool; 2]>,
    /// Thresholds for splitting and merging kernels.
    pub limits: Limits,
    /// The buffers and inputs whose new values are the leading results.
    pub mutations: Vec<Mutation>,
    /// Whether it is a graph that a control-flow call runs, which reads the results and does not return them.
    pub is_called: bool,
    /// Whether the program gets no report of its fusion.
    pub skips_report: bool,
    /// What is known of the calls that were lowered.
    pub(in crate::lower) known: KnownCalls,
    /// The graph node that values are currently created for.
    pub(in crate::lower) name: Arc<str>,
    /// Whether all users of that node permute its dims so that the third comes before the second.
    pub(in crate::lower) users_swap_dims_1_2: bool,
}

impl Tir {
    /// The value `v`.
    pub fn value(&self, v: ValueId) -> &ValueDef {
        &self.values[v.0 as usize]
    }

    /// The operands of a value.
    pub fn operands(&self, v: ValueId) -> SmallVec<[ValueId; 4]> {
        match &self.value(v).def {
            Def::Input(_) | Def::Constant(_) => smallvec![],
            Def::Pointwise { args, .. } | Def::Contract { args, .. } | Def::Special { args, .. } => args[..].into(),
            Def::Reduce { arg, .. } | Def::View { arg, .. } => smallvec![*arg],
            Def::Routine { call, .. } => {
                let args = self.calls[*call].call.args.iter();
                args.flat_map(|a| a.leaves().into_iter().copied().collect::<Vec<_>>())
                    .collect()
            }
        }
    }

    pub(in crate::lower) fn push(&mut self, dtype: DType, shape: &[usize], def: Def) -> OpResult<ValueId> {
        if byte_len(dtype, shape).is_none() {
            return Err(OpError::shape(format!(
                "a tensor of shape {shape:?} exceeds the address space"
            )));
        }
        let dtype_of = |v: &ValueId| self.value(*v).dtype;
        let operands = match &def {
            Def::Pointwise { args, .. } | Def::Special { args, .. } | Def::Contract { args, .. } => Some(&args[..]),
            Def::Reduce { arg, .. } => Some(std::slice::from_ref(arg)),
            _ => None,
        };
        let of_kernel = operands.map(|v| v.iter().map(dtype_of).chain([dtype]));
        if let Some(d) = of_kernel.and_then(|mut all| all.find(|d| !d.is_computed())) {
            let title = format!("kernels know no {}", d.torch_name());
            return Err(OpError::refused(title));
        }
        let id = ValueId(self.values.len() as u32);
        self.values.push(ValueDef {
            dtype,
            shape: shape.to_vec(),
            def,
            name: self.name.clone(),
        });
        Ok(id)
    }

    /// Adds a library call whose results have been pushed. Only values are executed, so a call without results, such as
    /// an assertion, gets an empty one.
    pub(in crate::lower) fn add_call(&mut self, mut call: TirRoutineCall) -> OpResult<()> {
        if call.results.is_empty() {
            let def = Def::Routine {
                call: self.calls.len(),
                result: 0,
            };
            call.results.push(self.push(DType::B8, &[0], def)?);
        }
        self.calls.push(call);
        Ok(())
    }

    pub(in crate::lower) fn traced(&self, v: ValueId) -> Traced {
        let d = self.value(v);
        Traced {
            id: v.0,
            ty: TensorType::with_fixed_shape(d.dtype, &d.shape),
        }
    }

    /// A view of `arg`.
    pub(in crate::lower) fn view(&mut self, arg: ValueId, map: IndexMap, shape: &[usize]) -> OpResult<ValueId> {
        if map == IndexMap::Reshape && self.value(arg).shape == shape {
            return Ok(arg);
        }
        let dtype = self.value(arg).dtype;
        let v = self.push(dtype, shape, Def::View { arg, map })?;
        // Later stages rely on every view having strides. If there are none, the operand is copied first.
        if self.access(v).is_some() {
            return Ok(v);
        }
        match self.values.pop().map(|d| d.def) {
            Some(Def::View { arg, map }) => {
                let arg = self.copy(arg)?;
                self.push(dtype, shape, Def::View { arg, map })
            }
            _ => unreachable!("pushed above"),
        }
    }

    /// Merges equal reductions: a variance computes a mean that the graph may also compute.
    pub(in crate::lower) fn merge_reductions(&mut self) -> OpResult<()> {
        // As text: zeros of different sign must differ, and NaN must equal itself.
        let text = |e: &ScalarExpr| format!("{:?} {:?}", e.roots, e.nodes().map(|n| (n.1, n.2)).collect::<Vec<_>>());
        let same_expr = |a: &ScalarExpr, b: &ScalarExpr| text(a) == text(b);
        let same = |a: &Reduction, b: &Reduction| {
            a.combine == b.combine && a.acc == b.acc && same_expr(&a.pre, &b.pre) && same_expr(&a.post, &b.post)
        };
        let mut known: FxHashMap<(ValueId, Vec<usize>), Vec<ValueId>> = FxHashMap::default();
        for v in (0..self.values.len() as u32).map(ValueId) {
            let Def::Reduce { arg, dims, reduction } = &self.value(v).def else {
                continue;
            };
            let others = known.entry((*arg, dims.clone())).or_default();
            let before = others.iter().copied().find(|&o| match &self.value(o).def {
                Def::Reduce { reduction: other, .. } => {
                    same(reduction, other) && self.value(o).dtype == self.value(v).dtype
                }
                _ => false,
            });
            match before {
                Some(arg) => {
                    let map = IndexMap::Reshape;
                    self.values[v.0 as usize].def = Def::View { arg, map };
                }
                None => others.push(v),
            }
        }
        Ok(())
    }

    /// Copies the program's results that have no memory of their own: views, inputs, constants, and the new values of buffers. Callers
    /// may write to results, so each must be a whole row-major buffer that nothing else uses. Without a kernel, the caller's thread would
    /// copy it after the run, to new memory.
    pub(in crate::lower) fn copy_shared_results(&mut self) -> OpResult<()> {
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        let base_of = |tir: &Tir, v: ValueId| tir.access(v).map_or(v, |a| a.base);
        let new_values: Vec<ValueId> = match &output {
            Val::Tuple(items) => {
                let leading = items.iter().take(self.mutations.len()).filter_map(Val::as_leaf);
                leading.map(|&v| base_of(self, v)).collect()
            }
            _ => vec![],
        };
        let mut leaves = 0;
        // A result that is returned twice is one tensor.
        let mut copies = FxHashMap::default();
        let copied = output.try_map(&mut |&v| {
            let is_new_value = leaves < self.mutations.len();
            leaves += 1;
            let is_taken = !is_new_value && new_values.contains(&base_of(self, v));
            if !is_taken && self.has_own_memory(v) {
                return Ok(Val::Leaf(v));
            }
            let copy = match copies.get(&(v, is_new_value)) {
                Some(&copy) => copy,
                None => self.copy(v)?,
            };
            copies.insert((v, is_new_value), copy);
            Ok(Val::Leaf(copy))
        });
        self.output = Some(copied?);
        Ok(())
    }

    /// Whether a result's memory is a whole row-major buffer that belongs to the results.
    fn has_own_memory(&self, v: ValueId) -> bool {
        let shown = self
            .access(v)
            .filter(|a| a.offset == 0 && a.is_contiguous(&self.value(v).shape));
        let whole = shown.filter(|a| self.value(a.base).numel() == self.value(v).numel());
        let base = whole.map(|a| self.value(a.base));
        match base {
            None => !matches!(self.value(v).def, Def::View { .. }),
            // The results of a called graph are read only. Kernels cannot copy every dtype, but the caller can.
            Some(base) => {
                let is_foreign = matches!(base.def, Def::Input(_) | Def::Constant(_));
                !is_foreign || self.is_called || !base.dtype.is_computed()
            }
        }
    }

    /// Where the elements of `v` are stored, if every value that is not a view has a buffer.
    pub(in crate::lower) fn access(&self, v: ValueId) -> Option<Access> {
        resolve_access(self, v, &|v| !matches!(self.value(v).def, Def::View { .. }))
    }

    /// A row-major copy of `v`.
    pub(in crate::lower) fn copy(&mut self, v: ValueId) -> OpResult<ValueId> {
        let (dtype, shape) = (self.value(v).dtype, self.value(v).shape.clone());
        let expr = self.known.cast(dtype, dtype);
        self.push(dtype, &shape, Def::Pointwise { expr, args: vec![v] })
    }

    /// `v` converted to `dtype`, as a separate value (fused into its producer where possible).
    pub(in crate::lower) fn convert(&mut self, v: ValueId, dtype: DType) -> OpResult<ValueId> {
        let from = self.value(v).dtype;
        if from == dtype {
            return Ok(v);
        }
        let shape = self.value(v).shape.clone();
        let expr = self.known.cast(from, dtype);
        self.push(dtype, &shape, Def::Pointwise { expr, args: vec![v] })
    }
}

/// The affine index that equals dim `d` of the result.
pub(in crate::lower) fn same_dim(d: usize) -> AffineIndex {
    AffineIndex {
        offset: 0,
        terms: vec![(d, 1)],
    }
}
