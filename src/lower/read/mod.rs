//! Reading a graph: [`GraphReader`] walks the nodes, binds symbolic sizes and makes the values of each call.

mod build;
mod control;
mod facts;
mod known;
mod sized;

pub(crate) use sized::{Binding, SizedNodes};

use self::build::with_defaults;
use super::ir::{Def, Tir, ValueId};
use crate::diag::Code;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::lower::LowerError;
use crate::op::{Call, MemoryUse, Op, OpError, OpResult, Traced};
use crate::tensor::Tensor;
use crate::types::{Dim, TensorType, Type, Val};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::sync::Arc;

impl Tir {
    /// Reads a graph. `dims` binds the symbolic sizes.
    pub fn read(module: &GraphModule, graph: &Graph, dims: &HashMap<String, i64>) -> Result<Tir, LowerError> {
        Tir::read_bound(module, graph, &Binding::new(dims))
    }

    /// [`Tir::read`] with all that is known about the sizes.
    pub(in crate::lower) fn read_bound(
        module: &GraphModule,
        graph: &Graph,
        binding: &Binding<'_>,
    ) -> Result<Tir, LowerError> {
        Tir::read_for(module, graph, binding, &[], 0)
    }

    /// [`Tir::read`] for a graph at call depth `depth`. The types of the leading inputs are `given` rather than taken
    /// from the graph.
    pub(in crate::lower) fn read_for(
        module: &GraphModule,
        graph: &Graph,
        binding: &Binding<'_>,
        inputs: &[Type],
        depth: usize,
    ) -> Result<Tir, LowerError> {
        let mut reader = GraphReader {
            module,
            graph,
            binding,
            given: inputs,
            placeholders: 0,
            depth,
            tir: Tir {
                is_called: depth > 0,
                // Most nodes become one value.
                values: Vec::with_capacity(graph.len() + graph.len() / 2),
                ..Tir::default()
            },
            env: SecondaryMap::with_capacity(graph.len()),
            constants: FxHashMap::default(),
            folded: FxHashMap::default(),
        };
        for n in graph.iter() {
            reader.read_node(n)?;
        }
        Ok(reader.tir)
    }
}

pub(in crate::lower) struct GraphReader<'a> {
    pub(in crate::lower) module: &'a GraphModule,
    pub(in crate::lower) graph: &'a Graph,
    pub(in crate::lower) binding: &'a Binding<'a>,
    /// Types of the leading inputs that replace the graph's own.
    given: &'a [Type],
    /// The number of placeholders read so far.
    placeholders: usize,
    /// The call depth of this graph.
    pub(in crate::lower) depth: usize,
    pub(in crate::lower) tir: Tir,
    env: SecondaryMap<NodeId, Option<Val<ValueId>>>,
    constants: FxHashMap<Arc<str>, ValueId>,
    /// The values of nodes that depend on constants and sizes.
    folded: FxHashMap<ValueId, Tensor>,
}

impl GraphReader<'_> {
    fn read_node(&mut self, n: NodeId) -> Result<(), LowerError> {
        let node = &self.graph[n];
        let facts = self.node_facts(n);
        self.tir.name = facts.name.clone();
        self.tir.users_swap_dims_1_2 = facts.users_swap_dims_1_2;
        let value = match node.op() {
            Opcode::Placeholder => self.placeholder(n),
            Opcode::GetAttr => self.attribute(n),
            Opcode::CallFunction => {
                let key = self.node_key(n, facts.op);
                let known = facts.op.zip(key.as_ref());
                if let Some(value) = known.and_then(|(op, k)| self.read_known_call(n, op, k)) {
                    self.env[n] = Some(value.map_err(|e| self.locate_error(n, e))?);
                    return Ok(());
                }
                let call = self.call(n, facts.op).map_err(|e| self.locate_error(n, e))?;
                match call.op.control() {
                    Some(_) => Ok(self.read_control(&call).map_err(|d| self.note_caller(n, d))?),
                    None => self.read_call(n, call, &facts, key),
                }
            }
            Opcode::Output => {
                let result = node.args().first().cloned().unwrap_or(Val::None);
                let result = self.arg(&result, &|_, v| v);
                result.inspect(|r| self.tir.output = Some(r.clone()))
            }
            op => Err(OpError::refused(format!("`{op}` is not canonical"))),
        };
        let value = value.map_err(|e| self.locate_error(n, e))?;
        self.env[n] = Some(value);
        Ok(())
    }

    fn locate_error(&self, n: NodeId, e: OpError) -> LowerError {
        let node = &self.graph[n];
        LowerError::from(e).with_place(|d| match node.meta.span {
            Some(_) => d.at_opt(node.meta.span, "while compiling this"),
            None => d.note(format!("while compiling `%{}`", node.name())),
        })
    }

    fn bind(&self, d: &Dim) -> OpResult<i64> {
        d.eval(&|v| self.binding.dims.get(v).copied())
            .ok_or_else(|| OpError::refused(format!("the size {d} is unknown")))
    }

    fn placeholder(&mut self, n: NodeId) -> OpResult<Val<ValueId>> {
        let node = &self.graph[n];
        let declared = || node.meta.ty.clone().unwrap_or(Val::Unknown);
        let ty = self.given.get(self.placeholders).cloned().unwrap_or_else(declared);
        self.placeholders += 1;
        let name: Arc<str> = node.target().into();
        self.add_input(name, &ty)
    }

    /// Adds an input of the program; for a nested input, one per tensor.
    fn add_input(&mut self, name: Arc<str>, ty: &Type) -> OpResult<Val<ValueId>> {
        let index = self.tir.inputs.len();
        let value = match ty {
            Type::Leaf(t) => {
                let dims = t.shape.as_ref().ok_or_else(|| {
                    OpError::new(Code::E0304, format!("the shape of input `{name}` is unknown"))
                        .help("annotate the placeholder, or provide example inputs")
                })?;
                let shape = dims
                    .iter()
                    .map(|d| Ok(self.bind(d)?.max(0) as usize))
                    .collect::<OpResult<Vec<usize>>>()?;
                Val::Leaf(self.tir.push(t.dtype, &shape, Def::Input(index))?)
            }
            Type::Unknown => {
                return Err(
                    OpError::new(Code::E0304, format!("the type of input `{name}` is unknown"))
                        .help("annotate the placeholder, or provide example inputs"),
                );
            }
            // Callers of graphs pass one input per placeholder.
            nested if self.depth == 0 && self.given.is_empty() && !nested.leaves().is_empty() => {
                return self.add_item_inputs(&name, nested);
            }
            other => self.bind_plain_value(other)?,
        };
        self.tir.inputs.push((name, value.clone()));
        Ok(value)
    }

    /// The items of a nested input, named `name.0` or `name.key`.
    fn add_item_inputs(&mut self, name: &str, ty: &Type) -> OpResult<Val<ValueId>> {
        let mut all = |v: &[Type]| {
            let items = v.iter().enumerate();
            let read = |(i, t): (usize, &Type)| self.add_input(format!("{name}.{i}").into(), t);
            items.map(read).collect::<OpResult<Vec<_>>>()
        };
        match ty {
            Val::List(v) => Ok(Val::List(all(v)?)),
            Val::Tuple(v) => Ok(Val::Tuple(all(v)?)),
            Val::Dict(v) => {
                let mut pairs = vec![];
                for (k, t) in v {
                    let key = match (k.as_str(), k.as_int()) {
                        (Some(s), _) => s.to_string(),
                        (_, i) => i.unwrap_or_default().to_string(),
                    };
                    pairs.push((
                        self.bind_plain_value(k)?,
                        self.add_input(format!("{name}.{key}").into(), t)?,
                    ));
                }
                Ok(Val::Dict(pairs))
            }
            other => self.bind_plain_value(other),
        }
    }

    /// A value without tensors, with its symbolic sizes bound.
    fn bind_plain_value(&self, v: &Type) -> OpResult<Val<ValueId>> {
        match v {
            Val::Int(d) => Ok(Val::int(self.bind(d)?)),
            Val::List(v) => Ok(Val::List(
                v.iter().map(|x| self.bind_plain_value(x)).collect::<OpResult<_>>()?,
            )),
            Val::Tuple(v) => Ok(Val::Tuple(
                v.iter().map(|x| self.bind_plain_value(x)).collect::<OpResult<_>>()?,
            )),
            v => v.try_map(&mut |t: &TensorType| Err(OpError::refused(format!("a tensor {t} inside an input")))),
        }
    }

    fn attribute(&mut self, n: NodeId) -> OpResult<Val<ValueId>> {
        let target: Arc<str> = self.graph[n].target().into();
        if let Some(&v) = self.constants.get(&target) {
            return Ok(Val::Leaf(v));
        }
        let value = self.module.attributes.get(&target).and_then(|a| a.value.clone());
        let t = value.ok_or_else(|| {
            OpError::new(Code::E0401, format!("`{target}` has no value")).help(
                "name the weights file with `weights \"model.safetensors\"` in the text, or pass `--weights-from FILE`",
            )
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

    fn call(&mut self, n: NodeId, op: Option<&'static Op>) -> OpResult<Call<Traced>> {
        let node = &self.graph[n];
        let op = op.ok_or_else(|| OpError::refused(format!("`{}` is not a canonical op", node.target())))?;
        let traced = |a: &Val<NodeId>| self.arg(a, &Tir::traced);
        let mut call = with_defaults(op, node.args().iter().map(traced).collect::<OpResult<Vec<_>>>()?);
        for (name, v) in node.kwargs() {
            let i = op
                .schema
                .index_of(name)
                .ok_or_else(|| OpError::refused(format!("`{}` has no parameter `{name}`", op.name)))?;
            call.args[i] = traced(v)?;
        }
        if let Some(p) = open_parameter(&call) {
            let title = format!("the value of `{p}` of `{}` is only known at run time", op.name);
            return Err(OpError::refused(title));
        }
        // Here all values are row-major. In torch this also holds for inputs and attributes; for other values only
        // `functionalize` knows the layout.
        let is_stored = |n: &NodeId| matches!(self.graph[*n].op(), Opcode::Placeholder | Opcode::GetAttr);
        let first = node.args().first().and_then(Val::as_leaf);
        if op.facts.memory == MemoryUse::Window && !first.is_some_and(is_stored) {
            let title = format!(
                "`{}` depends on memory layout, which only the pass `functionalize` resolves",
                op.name
            );
            return Err(OpError::refused(title));
        }
        Ok(call)
    }

    /// The argument, with its symbolic ints bound and its nodes replaced by what `f` makes of their values.
    fn arg<T>(&self, a: &Val<NodeId>, f: &dyn Fn(&Tir, ValueId) -> T) -> OpResult<Val<T>> {
        let all = |v: &[Val<NodeId>]| v.iter().map(|x| self.arg(x, f)).collect::<OpResult<Vec<_>>>();
        match a {
            Val::Int(d @ Dim::Poly(_)) => Ok(Val::int(self.bind(d)?)),
            Val::List(v) => Ok(Val::List(all(v)?)),
            Val::Tuple(v) => Ok(Val::Tuple(all(v)?)),
            v => v.try_map(&mut |n| match &self.env[*n] {
                Some(value) => Ok(value.map(|&v| f(&self.tir, v))),
                None => {
                    let title = format!("`%{}` is used before it is defined", self.graph[*n].name());
                    Err(OpError::new(Code::E0101, title))
                }
            }),
        }
    }
}

/// The parameter whose argument is only known at run time, if any.
fn open_parameter<T>(call: &Call<T>) -> Option<&str> {
    let params = call.op.schema.params.iter();
    let arguments = params.zip(&call.args);
    arguments.into_iter().find(|(_, a)| is_open(a)).map(|(p, _)| &*p.name)
}

fn is_open<T>(v: &Val<T>) -> bool {
    match v {
        Val::Any(_) | Val::Unknown | Val::Int(Dim::Unknown) => true,
        v => v.items().is_some_and(|items| items.iter().any(is_open)),
    }
}
