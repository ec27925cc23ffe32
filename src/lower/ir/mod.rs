//! The tensor IR of lowering: a list of values in SSA form, each a pointwise map, a reduction, a view, a contraction or
//! a library call with all sizes known.
//!
//! [`Tir::read`] makes it from an optimised graph: canonical ops become their meaning, composites that have no kernel of
//! their own are decomposed on the way, computations on sizes disappear into constants.

pub mod access;
mod scheduled;
mod text;

pub use scheduled::{Scheduled, Stored};

use self::access::{Access, resolve_access};
use crate::math::contract::{Activation, RecurrentCell};
use crate::op::{self, AffineIndex, Call, Contraction, IndexMap, OpError, OpResult, Reduction, SoftmaxPart, Traced};
use crate::scalar::ScalarExpr;
use crate::tensor::{Tensor, byte_len};
use crate::types::{DType, TensorType, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// A value of the tensor IR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// How a value comes about.
#[derive(Clone, Debug)]
pub enum Def {
    /// Input `n` of the program.
    Input(usize),
    /// A weight or constant.
    Constant(Tensor),
    /// `expr` of the elements of `args`, which broadcast to the value's shape.
    Pointwise {
        /// One argument per operand, one root.
        expr: ScalarExpr,
        /// The operands.
        args: Vec<ValueId>,
    },
    /// A reduction; the reduced dims stay with size 1.
    Reduce {
        /// What is reduced.
        arg: ValueId,
        /// The dims, sorted.
        dims: Vec<usize>,
        /// How, with what goes before and after.
        how: Arc<Reduction>,
    },
    /// The elements of `arg` at other places.
    View {
        /// Of what.
        arg: ValueId,
        /// Which element.
        map: IndexMap,
    },
    /// A matrix product or convolution; operand numbers in `how` are positions in `args`.
    Contract {
        /// The operands.
        args: Vec<ValueId>,
        /// What to compute.
        how: Contraction,
    },
    /// A special kernel: see [`Special`].
    Special {
        /// The operands.
        args: Vec<ValueId>,
        /// What to compute.
        how: Special,
    },
    /// A library call; result number `result` of call `call`.
    Routine {
        /// Index into [`Tir::calls`].
        call: usize,
        /// Which of the flattened results.
        result: usize,
    },
}

/// Computations with a loop nest of their own.
#[derive(Clone, Debug, PartialEq)]
pub enum Special {
    /// `args` joined along a dim.
    Concat {
        /// The dim.
        dim: usize,
    },
    /// `args[0]` (a table) at the rows that `args[1]` (integers) names: `out[i…, d…] = table[ids[i…], d…]`, gathering
    /// along table dim 0.
    Rows {
        /// Whether negative rows count from the end.
        wrap: bool,
    },
    /// `args[0]` with a border of `value`: `before[d]` elements in front along each dim.
    Pad {
        /// Elements in front, per dim; negative crops.
        before: Vec<i64>,
        /// The border's value.
        value: crate::tensor::Scalar,
    },
    /// Maximum over windows of `args[0]`.
    MaxPool(SpatialWindow),
    /// Mean over windows of `args[0]`.
    AvgPool {
        /// The windows.
        window: SpatialWindow,
        /// Whether the border counts as elements.
        count_include_pad: bool,
        /// What to divide by instead of the count.
        divisor: Option<i64>,
    },
    /// Running sums or products along a dim.
    Scan {
        /// The dim.
        dim: usize,
        /// Which of them.
        how: ScanOp,
    },
    /// A recurrent layer over projected inputs, states, recurrent weight, the output's projection and bias: a contraction rather
    /// than a kernel.
    Recurrent {
        /// What a step computes.
        cell: RecurrentCell,
        /// Whether the steps go from the last to the first.
        reverse: bool,
        /// Whether the output is projected.
        projected: bool,
    },
    /// Attention over q, k, v (of rank 4) and what is added to the scores: a contraction rather than a kernel.
    Attention(Attend),
}

/// What a scan computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOp {
    /// The sum so far.
    Sum,
    /// The product so far.
    Product,
}

/// What an attention does besides its products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attend {
    /// Dtypes of the mask and of a bias that is added before it: the operands after v, where there are such.
    pub masks: [Option<DType>; 2],
    /// Whether a query sees only the keys up to its own place.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f64,
    /// Whether a row whose keys are all masked gives zeros and not NaN.
    pub safe: bool,
    /// Whether the result is `[batch, rows, heads, size]`, and not `[batch, heads, rows, size]`.
    pub rows_first: bool,
}

/// Windows over dims that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpatialWindow {
    /// The first of these dims.
    pub first: usize,
    /// Size per dim.
    pub kernel: Vec<usize>,
    /// Step per dim.
    pub stride: Vec<usize>,
    /// Border per dim.
    pub padding: Vec<usize>,
    /// Distance of elements per dim.
    pub dilation: Vec<usize>,
}

/// A value's definition with its type.
#[derive(Clone, Debug)]
pub struct ValueDef {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// How it comes about.
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
    /// The tensors among the results, flattened; an empty one stands for a call that gives none.
    pub results: Vec<ValueId>,
    /// For control flow: the graphs it calls.
    pub graphs: Vec<Tir>,
}

impl TirRoutineCall {
    /// Whether it may do more than compute: draw random numbers, or call graphs that do.
    pub fn has_side_effects(&self) -> bool {
        self.call.op.effect != op::Effect::Pure || !self.graphs.is_empty()
    }
}

/// From where on kernels are cut into parts, or put together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Kernels of few iterations that take at least these nanoseconds are cut into parts.
    pub long: f64,
    /// Nanoseconds of a part, about.
    pub part: f64,
    /// Independent kernels of at most these nanoseconds run as one: it is about what runs on one thread anyway.
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
    /// Values, operands before users.
    pub values: Vec<ValueDef>,
    /// Library calls.
    pub calls: Vec<TirRoutineCall>,
    /// The program's inputs: name and value (or the plain value for inputs that are not tensors).
    pub inputs: Vec<(Arc<str>, Val<ValueId>)>,
    /// The first values of the inputs that are buffers which the graph gives new values.
    pub state: HashMap<usize, Tensor>,
    /// The program's result.
    pub output: Option<Val<ValueId>>,
    /// Activations: pointwise values that a contraction can apply to its result.
    pub activations: HashMap<ValueId, Activation>,
    /// What pointwise f32 values are to a softmax.
    pub softmax: HashMap<ValueId, SoftmaxPart>,
    /// Convolutions whose input or output has its channels last.
    pub channels_last: HashMap<ValueId, [bool; 2]>,
    /// From where on kernels are cut into parts, or put together.
    pub limits: Limits,
    /// The node that values are being made for.
    pub(in crate::lower) name: Arc<str>,
    /// Whether what reads that node permutes its dims so that the third comes before the second.
    pub(in crate::lower) users_swap_dims_1_2: bool,
}

impl Tir {
    /// The value `v`.
    pub fn value(&self, v: ValueId) -> &ValueDef {
        &self.values[v.0 as usize]
    }

    /// The values a value is computed from.
    pub fn operands(&self, v: ValueId) -> Vec<ValueId> {
        match &self.value(v).def {
            Def::Input(_) | Def::Constant(_) => vec![],
            Def::Pointwise { args, .. } | Def::Contract { args, .. } | Def::Special { args, .. } => args.clone(),
            Def::Reduce { arg, .. } | Def::View { arg, .. } => vec![*arg],
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
                "a tensor of shape {shape:?} does not fit the address space"
            )));
        }
        let of = |v: &ValueId| self.value(*v).dtype;
        let kernel = match &def {
            Def::Pointwise { args, .. } | Def::Special { args, .. } | Def::Contract { args, .. } => {
                Some(args.iter().map(of).collect())
            }
            Def::Reduce { arg, .. } => Some(vec![of(arg)]),
            _ => None,
        };
        let all = kernel.map(|v: Vec<DType>| [v, vec![dtype]].concat());
        if let Some(d) = all.and_then(|v| v.into_iter().find(|d| !d.is_computed())) {
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

    /// Adds a library call whose results have been pushed. What is to run must be a value: an assertion, which gives none, gets an
    /// empty one.
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
        let v = self.push(dtype, shape, Def::View { arg, map: map.clone() })?;
        // Later stages rely on every view having strides: where there are none, the operand is copied first.
        if self.access(v).is_some() {
            return Ok(v);
        }
        self.values.pop();
        let arg = self.copy(arg)?;
        self.push(dtype, shape, Def::View { arg, map })
    }

    /// Makes reductions that are computed twice one: a variance has a mean of its own beside the one that is asked for.
    pub(in crate::lower) fn merge_reductions(&mut self) -> OpResult<()> {
        // As text: zeros of two signs are not the same, and NaN is.
        let text = |e: &ScalarExpr| format!("{:?} {:?}", e.roots, e.nodes().map(|n| (n.1, n.2)).collect::<Vec<_>>());
        let same_expr = |a: &ScalarExpr, b: &ScalarExpr| text(a) == text(b);
        let same = |a: &Reduction, b: &Reduction| {
            a.combine == b.combine && a.acc == b.acc && same_expr(&a.pre, &b.pre) && same_expr(&a.post, &b.post)
        };
        let mut known: HashMap<(ValueId, Vec<usize>), Vec<ValueId>> = HashMap::new();
        for v in (0..self.values.len() as u32).map(ValueId) {
            let Def::Reduce { arg, dims, how } = &self.value(v).def else {
                continue;
            };
            let others = known.entry((*arg, dims.clone())).or_default();
            let before = others.iter().copied().find(|&o| match &self.value(o).def {
                Def::Reduce { how: other, .. } => same(how, other) && self.value(o).dtype == self.value(v).dtype,
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

    /// A result must be a whole row-major buffer: results that are views of one get a copy.
    pub(in crate::lower) fn copy_view_results(&mut self) -> OpResult<()> {
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        let is_view = |tir: &Tir, v: ValueId| matches!(tir.value(v).def, Def::View { .. });
        let copied = output.try_map(&mut |&v| {
            let shown = self
                .access(v)
                .filter(|a| a.offset == 0 && a.is_contiguous(&self.value(v).shape));
            let whole = shown.is_some_and(|a| self.value(a.base).numel() == self.value(v).numel());
            match is_view(self, v) && !whole {
                true => self.copy(v).map(Val::Leaf),
                false => Ok(Val::Leaf(v)),
            }
        });
        self.output = Some(copied?);
        Ok(())
    }

    /// Where the elements of `v` are, every value that is not a view having a buffer.
    pub(in crate::lower) fn access(&self, v: ValueId) -> Option<Access> {
        resolve_access(self, v, &|v| !matches!(self.value(v).def, Def::View { .. }))
    }

    /// A row-major copy of `v`.
    pub(in crate::lower) fn copy(&mut self, v: ValueId) -> OpResult<ValueId> {
        let (dtype, shape) = (self.value(v).dtype, self.value(v).shape.clone());
        let mut expr = ScalarExpr::new();
        let root = expr.arg(0, dtype);
        expr.roots.push(root);
        self.push(dtype, &shape, Def::Pointwise { expr, args: vec![v] })
    }
}

/// An affine index that is dim `d` of the result.
pub(in crate::lower) fn same_dim(d: usize) -> AffineIndex {
    AffineIndex {
        offset: 0,
        terms: vec![(d, 1)],
    }
}
