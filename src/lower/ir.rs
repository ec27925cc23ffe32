//! The tensor IR of lowering: a list of values in SSA form, each a pointwise map, a reduction, a view, a contraction or
//! a library call with all sizes known.
//!
//! [`Tir::read`] makes it from an optimised graph: canonical ops become their meaning, composites that have no kernel of
//! their own are decomposed on the way, computations on sizes disappear into constants.

use super::access::{Access, access};
use super::{LowerError, Program};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::math::contract::{Activation, Cell};
use crate::op::{
    self, AffineIndex, Build, Call, Contraction, IndexMap, Meaning, Op, OpError, OpResult, Reduction, Sizes, Traced,
    lift,
};
use crate::scalar::Expr;
use crate::tensor::{Tensor, byte_len};
use crate::types::{DType, Dim, TensorType, Type, Val};
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
        expr: Expr,
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
    /// Maximum over windows of the last dims of `args[0]`.
    MaxPool(Window),
    /// Mean over windows of the last dims of `args[0]`.
    AvgPool {
        /// The windows.
        window: Window,
        /// Whether the border counts as elements.
        count_include_pad: bool,
        /// What to divide by instead of the count.
        divisor: Option<i64>,
    },
    /// Running sum along a dim.
    CumSum {
        /// The dim.
        dim: usize,
    },
    /// A recurrent layer over projected inputs, states, recurrent weight and bias: a contraction rather than a kernel.
    Recurrent {
        /// What a step computes.
        cell: Cell,
        /// Whether the steps go from the last to the first.
        reverse: bool,
    },
    /// Attention over q, k, v (of rank 4) and a mask: a contraction rather than a kernel.
    Attention {
        /// The mask's dtype, if there is one.
        mask: Option<DType>,
        /// Whether a query sees only the keys up to its own place.
        causal: bool,
        /// Factor of the scores.
        scale: f64,
    },
}

/// Windows over the last dims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
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
pub struct RoutineCall {
    /// The op and its arguments.
    pub call: Call<ValueId>,
    /// The tensors among the results, flattened.
    pub results: Vec<ValueId>,
    /// For control flow: the programs of the graphs it calls.
    pub graphs: Vec<Program>,
}

impl RoutineCall {
    /// Whether it may do more than compute: draw random numbers, or call graphs that do.
    pub fn does_more(&self) -> bool {
        self.call.op.effect != op::Effect::Pure || !self.graphs.is_empty()
    }
}

/// The tensor IR of a graph.
#[derive(Clone, Debug, Default)]
pub struct Tir {
    /// Values, operands before users.
    pub values: Vec<ValueDef>,
    /// Library calls.
    pub calls: Vec<RoutineCall>,
    /// The program's inputs: name and value (or the plain value for inputs that are not tensors).
    pub inputs: Vec<(Arc<str>, Val<ValueId>)>,
    /// The first values of the inputs that are buffers which the graph gives new values.
    pub state: HashMap<usize, Tensor>,
    /// The program's result.
    pub output: Option<Val<ValueId>>,
    /// Activations: pointwise values that a contraction can apply to its result.
    pub activations: HashMap<ValueId, Activation>,
    name: Arc<str>,
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

    /// Reads a graph. `dims` binds the symbolic sizes.
    pub fn read(module: &GraphModule, graph: &Graph, dims: &HashMap<String, i64>) -> Result<Tir, LowerError> {
        Tir::read_for(module, graph, dims, &[], 0)
    }

    /// [`Tir::read`], with the types of the leading inputs given rather than taken from the graph, which is called at a
    /// depth of calls.
    pub(super) fn read_for(
        module: &GraphModule,
        graph: &Graph,
        dims: &HashMap<String, i64>,
        inputs: &[Type],
        depth: usize,
    ) -> Result<Tir, LowerError> {
        let mut reader = Reader {
            module,
            graph,
            dims,
            given: inputs,
            depth,
            tir: Tir::default(),
            env: HashMap::new(),
            constants: HashMap::new(),
        };
        for n in graph.iter() {
            reader.node(n)?;
        }
        Ok(reader.tir)
    }

    pub(super) fn push(&mut self, dtype: DType, shape: &[usize], def: Def) -> OpResult<ValueId> {
        if byte_len(dtype, shape).is_none() {
            return Err(OpError::shape(format!(
                "a tensor of shape {shape:?} does not fit the address space"
            )));
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

    pub(super) fn traced(&self, v: ValueId) -> Traced {
        let d = self.value(v);
        Traced {
            id: v.0,
            ty: TensorType::fixed(d.dtype, &d.shape),
        }
    }

    /// A view of `arg`.
    pub(super) fn view(&mut self, arg: ValueId, map: IndexMap, shape: &[usize]) -> OpResult<ValueId> {
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

    /// Where the elements of `v` are, every value that is not a view having a buffer.
    pub(super) fn access(&self, v: ValueId) -> Option<Access> {
        access(self, v, &|v| !matches!(self.value(v).def, Def::View { .. }))
    }

    /// A row-major copy of `v`.
    pub(super) fn copy(&mut self, v: ValueId) -> OpResult<ValueId> {
        let (dtype, shape) = (self.value(v).dtype, self.value(v).shape.clone());
        let mut expr = Expr::new();
        let root = expr.arg(0, dtype);
        expr.roots.push(root);
        self.push(dtype, &shape, Def::Pointwise { expr, args: vec![v] })
    }

    fn apply(&mut self, call: Call<Traced>) -> OpResult<Val<Traced>> {
        let types = call.map(|t| t.ty.clone());
        let ids = call.map(|t| ValueId(t.id));
        if let Some(r) = super::special::recognise(self, &types, &ids)? {
            return Ok(Val::Leaf(self.traced(r)));
        }
        match call.op.meaning {
            Meaning::Pointwise(_) => {
                let p = op::instantiate(&types)?;
                let args = p
                    .operands
                    .iter()
                    .map(|&i| leaf(&ids, i))
                    .collect::<OpResult<Vec<_>>>()?;
                let shape = fixed(&p.out)?;
                let v = self.push(p.out.dtype, &shape, Def::Pointwise { expr: p.expr, args })?;
                if let Some(a) = activation(&types) {
                    self.activations.insert(v, a);
                }
                Ok(Val::Leaf(self.traced(v)))
            }
            Meaning::Reduce(f) => self.reduce(f(&types)?, &ids),
            Meaning::View(f) => {
                let view = f(&types)?;
                let v = self.view(leaf(&ids, view.operand)?, view.map, &view.shape)?;
                Ok(Val::Leaf(self.traced(v)))
            }
            Meaning::Decompose(f) => f(self, &call),
            Meaning::Contract(f) => self.contract(f(&types)?, &ids),
            Meaning::Host => {
                let ty = (call.op.rule)(&types, &mut Sizes::default())?;
                ty.try_map(&mut |t| {
                    Err(OpError::new(
                        Code::E0601,
                        format!("`{}` gives a tensor {t} on the host", call.op.name),
                    ))
                })
            }
            Meaning::Control(_) => Err(OpError::new(
                Code::E0601,
                format!("`{}` calls graphs, which a decomposition cannot", call.op.name),
            )),
            Meaning::Routine(_) => match super::recurrent::recognise(self, &types, &ids)? {
                Some(r) => Ok(r),
                None => self.routine(call.op, ids, &types),
            },
        }
    }

    fn reduce(&mut self, r: Reduction, ids: &Call<ValueId>) -> OpResult<Val<Traced>> {
        let arg = leaf(ids, r.operand)?;
        let mut kept = self.value(arg).shape.clone();
        r.dims.iter().for_each(|&d| kept[d] = 1);
        let out = fixed(&r.out)?;
        let how = Arc::new(r);
        let def = Def::Reduce {
            arg,
            dims: how.dims.clone(),
            how: how.clone(),
        };
        let v = self.push(how.out.dtype, &kept, def)?;
        let v = self.view(v, IndexMap::Reshape, &out)?;
        Ok(Val::Leaf(self.traced(v)))
    }

    fn contract(&mut self, how: Contraction, ids: &Call<ValueId>) -> OpResult<Val<Traced>> {
        let mut args = vec![];
        let mut take = |p: usize| -> OpResult<usize> {
            args.push(leaf(ids, p)?);
            Ok(args.len() - 1)
        };
        let (how, out) = match how {
            Contraction::MatMul {
                a,
                b,
                bias,
                a_transposed,
                b_transposed,
                alpha,
                beta,
                out,
            } => {
                let (a, b) = (take(a)?, take(b)?);
                let bias = bias.map(&mut take).transpose()?;
                let o = out.clone();
                (
                    Contraction::MatMul {
                        a,
                        b,
                        bias,
                        a_transposed,
                        b_transposed,
                        alpha,
                        beta,
                        out,
                    },
                    o,
                )
            }
            Contraction::Conv {
                input,
                weight,
                bias,
                stride,
                padding,
                dilation,
                transposed,
                output_padding,
                groups,
                out,
            } => {
                let (input, weight) = (take(input)?, take(weight)?);
                let bias = bias.map(&mut take).transpose()?;
                let o = out.clone();
                let how = Contraction::Conv {
                    input,
                    weight,
                    bias,
                    stride,
                    padding,
                    dilation,
                    transposed,
                    output_padding,
                    groups,
                    out,
                };
                (how, o)
            }
        };
        super::contract::prepare(self, &how, &mut args)?;
        let v = self.push(out.dtype, &fixed(&out)?, Def::Contract { args, how })?;
        Ok(Val::Leaf(self.traced(v)))
    }

    fn routine(&mut self, op: &'static Op, call: Call<ValueId>, types: &Call<TensorType>) -> OpResult<Val<Traced>> {
        let ty = (op.rule)(types, &mut Sizes::default())?;
        let index = self.calls.len();
        let mut results = vec![];
        let out = ty.try_map(&mut |t: &TensorType| {
            let shape = t.fixed_shape().ok_or_else(|| {
                OpError::new(
                    Code::E0601,
                    format!("the size of the result of `{}` depends on values", op.name),
                )
                .help("`fxc run` compiles what comes before it, and interprets the rest")
            })?;
            let v = self.push(
                t.dtype,
                &shape,
                Def::Routine {
                    call: index,
                    result: results.len(),
                },
            )?;
            results.push(v);
            Ok(Val::Leaf(self.traced(v)))
        })?;
        self.calls.push(RoutineCall {
            call,
            results,
            graphs: vec![],
        });
        Ok(out)
    }
}

impl Build for Tir {
    fn call(&mut self, name: &str, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let op = op::by_name(name).unwrap_or_else(|| panic!("a decomposition calls `{name}`, which is no op"));
        self.apply(with_defaults(op, args))
    }
}

/// The call with defaults for the trailing parameters that are left out.
fn with_defaults<T: Clone>(op: &'static Op, mut args: Vec<Val<T>>) -> Call<T> {
    for p in op.schema.params.iter().skip(args.len()) {
        args.push(p.default.as_ref().map_or(Val::None, lift));
    }
    Call { op, args }
}

fn leaf(call: &Call<ValueId>, param: usize) -> OpResult<ValueId> {
    let found = call.args[param].as_leaf().copied();
    found.ok_or_else(|| OpError::new(Code::E0601, format!("`{}` needs a tensor here", call.op.name)))
}

fn fixed(t: &TensorType) -> OpResult<Vec<usize>> {
    t.fixed_shape()
        .ok_or_else(|| OpError::new(Code::E0601, format!("the size of {t} is not known")))
}

/// The activation of `math` that a pointwise call is.
fn activation(call: &Call<TensorType>) -> Option<Activation> {
    if !matches!(call.op.name, "relu" | "relu6" | "hardtanh") || call.leaf("self").ok()?.dtype != DType::F32 {
        return None;
    }
    match call.op.name {
        "relu" => Some(Activation::Relu),
        "relu6" => Some(Activation::Clamp(0.0, 6.0)),
        "hardtanh" => Some(Activation::Clamp(
            call.f64("min_val").ok()? as f32,
            call.f64("max_val").ok()? as f32,
        )),
        _ => None,
    }
}

/// An affine index that is dim `d` of the result.
pub(super) fn same_dim(d: usize) -> AffineIndex {
    AffineIndex {
        offset: 0,
        terms: vec![(d, 1)],
    }
}

pub(super) struct Reader<'a> {
    pub(super) module: &'a GraphModule,
    pub(super) graph: &'a Graph,
    pub(super) dims: &'a HashMap<String, i64>,
    /// Types of the leading inputs, where they are not the graph's own.
    given: &'a [Type],
    /// How many calls of graphs lead here.
    pub(super) depth: usize,
    pub(super) tir: Tir,
    env: HashMap<NodeId, Val<ValueId>>,
    constants: HashMap<Arc<str>, ValueId>,
}

impl Reader<'_> {
    fn node(&mut self, n: NodeId) -> Result<(), LowerError> {
        let node = &self.graph[n];
        self.tir.name = node.name().into();
        let value = match node.op() {
            Opcode::Placeholder => self.placeholder(n),
            Opcode::GetAttr => self.attribute(n),
            Opcode::CallFunction => {
                let call = self.call(n).map_err(|e| self.error(n, e))?;
                let result = match op::control::control(call.op) {
                    Some(_) => self.control(&call).map_err(|d| self.inside(n, *d))?,
                    None => {
                        let result = self.tir.apply(call).map_err(|e| self.error(n, e))?;
                        result.map(|t| ValueId(t.id))
                    }
                };
                Ok(result)
            }
            Opcode::Output => {
                let result = node.args().first().cloned().unwrap_or(Val::None);
                self.arg(&result).inspect(|r| self.tir.output = Some(r.clone()))
            }
            op => Err(OpError::new(Code::E0601, format!("`{op}` is not canonical"))),
        };
        let value = value.map_err(|e| self.error(n, e))?;
        self.env.insert(n, value);
        Ok(())
    }

    fn error(&self, n: NodeId, e: OpError) -> LowerError {
        let node = &self.graph[n];
        let mut d = Diagnostic::new(e.code, e.title).at_opt(node.meta.span, "while compiling this");
        d.notes = e.notes;
        d.help = e.help;
        if node.meta.span.is_none() {
            d.notes.push(format!("while compiling `%{}`", node.name()));
        }
        Box::new(d)
    }

    fn bind(&self, d: &Dim) -> OpResult<i64> {
        d.eval(&|v| self.dims.get(v).copied())
            .ok_or_else(|| OpError::new(Code::E0601, format!("the size {d} is not bound")))
    }

    fn placeholder(&mut self, n: NodeId) -> OpResult<Val<ValueId>> {
        let node = &self.graph[n];
        let index = self.tir.inputs.len();
        let own = || node.meta.ty.clone().unwrap_or(Val::Unknown);
        let ty = self.given.get(index).cloned().unwrap_or_else(own);
        let name: Arc<str> = node.target().into();
        let value = match &ty {
            Type::Leaf(t) => {
                let dims = t.shape.as_ref().ok_or_else(|| {
                    OpError::new(Code::E0304, format!("the shape of input `{name}` is not known"))
                        .help("annotate the placeholder, or give example inputs")
                })?;
                let shape = dims
                    .iter()
                    .map(|d| Ok(self.bind(d)?.max(0) as usize))
                    .collect::<OpResult<Vec<usize>>>()?;
                Val::Leaf(self.tir.push(t.dtype, &shape, Def::Input(index))?)
            }
            Type::Unknown => {
                return Err(
                    OpError::new(Code::E0304, format!("the type of input `{name}` is not known"))
                        .help("annotate the placeholder, or give example inputs"),
                );
            }
            other => self.plain(other)?,
        };
        self.tir.inputs.push((name, value.clone()));
        Ok(value)
    }

    /// A value without tensors, its sizes bound.
    fn plain(&self, v: &Type) -> OpResult<Val<ValueId>> {
        match v {
            Val::Int(d) => Ok(Val::int(self.bind(d)?)),
            Val::List(v) => Ok(Val::List(v.iter().map(|x| self.plain(x)).collect::<OpResult<_>>()?)),
            Val::Tuple(v) => Ok(Val::Tuple(v.iter().map(|x| self.plain(x)).collect::<OpResult<_>>()?)),
            v => {
                v.try_map(&mut |t: &TensorType| Err(OpError::new(Code::E0601, format!("a tensor {t} inside an input"))))
            }
        }
    }

    fn attribute(&mut self, n: NodeId) -> OpResult<Val<ValueId>> {
        let target: Arc<str> = self.graph[n].target().into();
        if let Some(&v) = self.constants.get(&target) {
            return Ok(Val::Leaf(v));
        }
        let value = self.module.attributes.get(&target).and_then(|a| a.value.clone());
        let t = value.ok_or_else(|| {
            OpError::new(Code::E0401, format!("`{target}` has no value"))
                .help("name the weights file: `weights \"model.safetensors\"`, or pass --weights")
        })?;
        let (dtype, shape) = (t.dtype(), t.shape().to_vec());
        let v = if self.graph.writes_buffer(&target) {
            let index = self.tir.inputs.len();
            let v = self.tir.push(dtype, &shape, Def::Input(index))?;
            self.tir.inputs.push((target.clone(), Val::Leaf(v)));
            self.tir.state.insert(index, t);
            v
        } else {
            self.tir.push(dtype, &shape, Def::Constant(t))?
        };
        self.constants.insert(target, v);
        Ok(Val::Leaf(v))
    }

    fn call(&mut self, n: NodeId) -> OpResult<Call<Traced>> {
        let node = &self.graph[n];
        let op = op::by_name(node.target())
            .ok_or_else(|| OpError::new(Code::E0601, format!("`{}` is not a canonical op", node.target())))?;
        let tir = &self.tir;
        let traced = |a: &Val<NodeId>| Ok(self.arg(a)?.map(|&v| tir.traced(v)));
        let mut call = with_defaults(op, node.args().iter().map(traced).collect::<OpResult<Vec<_>>>()?);
        for (name, v) in node.kwargs() {
            let i = op
                .schema
                .index_of(name)
                .ok_or_else(|| OpError::new(Code::E0601, format!("`{}` has no parameter `{name}`", op.name)))?;
            call.args[i] = traced(v)?;
        }
        Ok(call)
    }

    fn arg(&self, a: &Val<NodeId>) -> OpResult<Val<ValueId>> {
        let a = self.bound(a)?;
        a.try_map(&mut |n| {
            let found = self.env.get(n).cloned();
            found.ok_or_else(|| {
                OpError::new(
                    Code::E0101,
                    format!("`%{}` is used before it is defined", self.graph[*n].name()),
                )
            })
        })
    }

    /// The argument with symbolic ints bound.
    fn bound(&self, a: &Val<NodeId>) -> OpResult<Val<NodeId>> {
        Ok(match a {
            Val::Int(d @ Dim::Poly(_)) => Val::int(self.bind(d)?),
            Val::List(v) => Val::List(v.iter().map(|x| self.bound(x)).collect::<OpResult<_>>()?),
            Val::Tuple(v) => Val::Tuple(v.iter().map(|x| self.bound(x)).collect::<OpResult<_>>()?),
            v => v.clone(),
        })
    }
}
