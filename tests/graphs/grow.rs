//! Grows a random graph call by call. A call that does not check or does not run is taken back.

use crate::control;
use crate::outcome::panic_text;
use crate::shapes::{Changes, adapt, change_literal};
use crate::templates::TEMPLATES;
use crate::values::random_tensor;
use fxc::diag::{Code, Diagnostic};
use fxc::graph::{Arg, Graph, GraphModule, NodeId, Opcode, print};
use fxc::internals::driver::Session;
use fxc::internals::op::{self, Meaning, Op, ParamType, random};
use fxc::internals::tensor::{SplitMix, Tensor};
use fxc::interp::{Env, Hooked, Hooks, Interpreter, RunningNode};
use fxc::pass;
use fxc::types::{DType, TensorType, Val};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most elements of a value.
const MOST_ELEMENTS: usize = 4096;

/// A graph and its inputs.
pub struct Case {
    /// The graph in FXIR.
    pub text: String,
    /// The inputs, in the order of the placeholders.
    pub inputs: Vec<Tensor>,
    /// The rows that were added, each once.
    pub calls: Vec<String>,
}

/// A graph that grows.
pub struct Grower {
    pub module: GraphModule,
    pub inputs: Vec<Tensor>,
    /// The value of each node.
    pub env: Env,
    pub r: SplitMix,
    calls: Vec<String>,
    /// Whether it is a graph that another calls: it gets no inputs and writes to none.
    nested: bool,
}

/// The graph of a seed; `None` if no call fits.
pub fn grow(seed: u64) -> Option<Case> {
    let mut g = Grower::new(SplitMix::new(seed), false);
    let calls = 2 + g.r.next_below(14);
    g.add_calls(calls);
    g.finish()
}

/// Whether a branch or a loop body writes to its inputs, which is an error: some ops update running statistics.
fn writes_in_called_graph(m: &GraphModule) -> bool {
    let refused = |d: &Diagnostic| d.title.contains("which is not allowed in a called graph");
    m.graphs.len() > 1 && pass::functionalize(&mut m.clone()).is_err_and(|d| refused(&d))
}

/// Hooks that give the values of nodes that ran before, and refuse calls that would run forever or whose results are undetermined.
struct Known<'a>(&'a Env);

impl Hooks for Known<'_> {
    fn run_node(&mut self, at: RunningNode<'_>) -> Hooked {
        // A node of a called graph may have the same id.
        let of_entry = at.module.entry().is_some_and(|g| std::ptr::eq(g, at.graph));
        let known = self.0.get(&at.id).filter(|_| of_entry).cloned();
        let refused = |title: &str| Err(Diagnostic::new(Code::E0502, title));
        match known {
            None if has_huge_degree(&at) => refused("the degree is too large"),
            None if has_infinite_weights(&at) => refused("a convolution has weights that are not finite"),
            known => Ok(known),
        }
    }
}

/// Whether a call computes a polynomial of a huge degree. As in torch, it counts to the degree.
fn has_huge_degree(at: &RunningNode<'_>) -> bool {
    const HUGE: f64 = 1e6;
    let huge = |t: &Tensor| (0..t.numel()).any(|i| t.get(i).to_f64() > HUGE);
    let arguments = at.args.iter().chain(at.kwargs.iter().map(|(_, v)| v));
    at.target().contains("polynomial")
        && arguments
            .skip(1)
            .any(|v| v.leaves().into_iter().any(huge) || v.as_f64().is_some_and(|n| n > HUGE))
}

/// Whether a call is a convolution by infinity or NaN. Beside padding, results are NaN if the algorithm multiplies such weights by zero: in
/// torch, that depends on the algorithm it chooses. Transposed convolutions multiply the margin of the input, which torch's do not.
fn has_infinite_weights(at: &RunningNode<'_>) -> bool {
    let infinite = |t: &Tensor| (0..t.numel()).any(|i| !t.get(i).to_f64().is_finite());
    let is_convolution = |part: &str| part.trim_start_matches('_').starts_with("conv");
    let named = at.kwargs.iter().find(|(k, _)| &**k == "weight").map(|(_, v)| v);
    let weight = at.args.get(1).or(named);
    at.target().split('.').any(is_convolution) && weight.is_some_and(|v| v.leaves().into_iter().any(infinite))
}

impl Grower {
    pub fn new(r: SplitMix, nested: bool) -> Grower {
        Grower {
            module: GraphModule::new("main", Graph::new()),
            inputs: vec![],
            env: Env::new(),
            r,
            calls: vec![],
            nested,
        }
    }

    /// Adds up to `count` calls.
    pub fn add_calls(&mut self, count: usize) {
        for _ in 0..count * 3 {
            if self.calls.len() < count {
                self.try_step();
            }
        }
    }

    pub fn graph(&mut self) -> &mut Graph {
        self.module.entry_mut().expect("an entry")
    }

    fn try_step(&mut self) {
        let before = (self.module.clone(), self.inputs.clone(), self.env.clone());
        let name = match self.r.next_below(24) {
            0 if !self.nested => control::add(self),
            1 => self.add_by_schema(),
            _ => self.add_template(),
        };
        let runs = catch_unwind(AssertUnwindSafe(|| name.is_some() && self.evaluate()));
        let runs = runs.unwrap_or_else(|e| panic!("{} after\n{}", panic_text(&*e), print::print(&self.module)));
        match name.filter(|_| runs) {
            Some(name) => self.calls.push(name),
            None => (self.module, self.inputs, self.env) = before,
        }
    }

    /// Whether the finished graph runs.
    fn runs(&self) -> bool {
        let mut module = self.module.clone();
        random::seed(0);
        let inputs = self.inputs.iter().map(|t| Val::Leaf(t.deep_copy())).collect();
        Session::new().check(&mut module, &[]).is_ok() && Interpreter::new(&module).run(inputs).is_ok()
    }

    /// Checks the graph as far as it is and runs the nodes that have no value yet: running all of them would take most of
    /// the time. Writes in place do not reach the values of earlier nodes. False if it fails or a value is large.
    fn evaluate(&mut self) -> bool {
        let mut whole = self.module.clone();
        let Some(graph) = whole.entry_mut() else { return false };
        let calls: Vec<Arg> = graph
            .iter()
            .filter(|&n| graph[n].op().is_call())
            .map(Val::Leaf)
            .collect();
        graph.set_output(Val::Tuple(calls));
        let mut session = Session::new();
        if session.check(&mut whole, &[]).is_err() || !self.has_small_types(&whole) || writes_in_called_graph(&whole) {
            return false;
        }
        random::seed(0);
        let mut interpreter = Interpreter::new(&whole);
        interpreter.keep_values();
        let inputs = self.inputs.iter().map(|t| Val::Leaf(t.deep_copy())).collect();
        if interpreter.run_with(inputs, &mut Known(&self.env)).is_err() {
            return false;
        }
        self.env = interpreter.env().clone();
        true
    }

    /// Few graphs have sizes that depend on values: what follows them is interpreted.
    fn has_small_types(&mut self, m: &GraphModule) -> bool {
        let open = self.r.one_in(16);
        m.graphs.values().all(|g| {
            g.iter().all(|n| {
                let types = g[n].meta.ty.iter().flat_map(|t| t.leaves());
                let small = |t: &TensorType| {
                    t.fixed_shape()
                        .map_or(open, |s| s.iter().product::<usize>() <= MOST_ELEMENTS)
                };
                types.into_iter().all(small)
            })
        })
    }

    /// The nodes that are tensors, in order.
    pub fn tensors(&self) -> Vec<(NodeId, Tensor)> {
        let graph = self.module.entry().expect("an entry");
        let tensor = |n: NodeId| Some((n, self.env.get(&n)?.as_leaf()?.clone()));
        graph.iter().filter_map(tensor).collect()
    }

    /// A random one of the nodes that fit, more often a late one.
    pub fn pick(&mut self, fits: impl Fn(&Tensor) -> bool) -> Option<(NodeId, Tensor)> {
        let mut fitting = self.tensors();
        fitting.retain(|(_, t)| fits(t));
        if fitting.is_empty() {
            return None;
        }
        let count = if self.r.one_in(2) {
            fitting.len().min(4)
        } else {
            fitting.len()
        };
        let at = fitting.len() - 1 - self.r.next_below(count);
        Some(fitting.swap_remove(at))
    }

    /// A node of this type: one that exists, one made of another, or an input.
    pub fn source(&mut self, dtype: DType, shape: &[usize]) -> Option<NodeId> {
        let way = self.r.next_below(10);
        if way < 6
            && let Some((n, _)) = self.pick(|t| t.dtype() == dtype && t.shape() == shape)
        {
            return Some(n);
        }
        if way < 9 || self.nested {
            let alike = self.r.next_below(4) > 0 || !dtype.is_float();
            let other = self.pick(|t| !alike || t.dtype() == dtype);
            let made = other.and_then(|(n, t)| self.adapt(n, &t, (dtype, shape)));
            if made.is_some() || self.nested {
                return made;
            }
        }
        Some(self.add_input(dtype, shape))
    }

    pub fn adapt(&mut self, n: NodeId, t: &Tensor, to: (DType, &[usize])) -> Option<NodeId> {
        let graph = self.module.entry_mut().expect("an entry");
        adapt(graph, n, (t.dtype(), t.shape()), to, &mut self.r)
    }

    pub fn add_input(&mut self, dtype: DType, shape: &[usize]) -> NodeId {
        let value = random_tensor(dtype, shape, &mut self.r);
        self.add_input_value(value)
    }

    pub fn add_input_value(&mut self, value: Tensor) -> NodeId {
        let name = format!("x{}", self.inputs.len());
        let g = self.graph();
        let first = g.iter().find(|&n| g[n].op() != Opcode::Placeholder);
        let n = match first {
            Some(_) => g
                .inserting_before(first, |g| g.placeholder(&name, None))
                .expect("a node of the graph"),
            None => g.placeholder(&name, None),
        };
        let meta = g.meta_mut(n);
        meta.ty = Some(Val::Leaf(value.ty()));
        meta.declared = true;
        self.env.insert(n, Val::Leaf(value.clone()));
        self.inputs.push(value);
        n
    }

    /// A row: views and pointwise ops more often, as they combine in most ways.
    fn pick_row(&mut self) -> &'static str {
        let wanted: fn(&Op) -> bool = match self.r.next_below(20) {
            0..5 => |op| matches!(op.meaning, Meaning::View(_)),
            5..9 => |op| matches!(op.meaning, Meaning::Pointwise(_)),
            9..11 => |op| matches!(op.meaning, Meaning::Reduce(_) | Meaning::Contract(_)),
            _ => |_| true,
        };
        let fits = |name: &&str| op::by_name(name).is_some_and(wanted);
        let rows: Vec<&'static str> = TEMPLATES.rows.iter().copied().filter(fits).collect();
        self.r.pick(&rows)
    }

    fn add_template(&mut self) -> Option<String> {
        let row = self.pick_row();
        let templates = TEMPLATES.of(row);
        let template = templates[self.r.next_below(templates.len())].graph()?;
        let placeholders = template.placeholders();
        let types = placeholders.iter().map(|&p| {
            let ty = template[p].meta.ty.as_ref()?.as_leaf()?;
            Some((ty.dtype, ty.fixed_shape()?))
        });
        let types: Vec<(DType, Vec<usize>)> = types.collect::<Option<_>>()?;
        let changes = Changes::random(&types, &mut self.r);
        let mut map: HashMap<NodeId, NodeId> = HashMap::new();
        for (&p, ty) in placeholders.iter().zip(&types) {
            let (dtype, shape) = changes.of_type(ty);
            map.insert(p, self.source(dtype, &shape)?);
        }
        for n in template.iter().filter(|&n| template[n].op().is_call()) {
            let new = self.copy_call(template, n, &map, &changes);
            map.insert(n, new);
        }
        Some(row.to_string())
    }

    fn copy_call(&mut self, from: &Graph, n: NodeId, map: &HashMap<NodeId, NodeId>, changes: &Changes) -> NodeId {
        let node = &from[n];
        let mapped = |v: &Arg| match v.try_map(&mut |i| Ok::<Arg, ()>(Val::Leaf(map[i]))) {
            Ok(v) => changes.of_argument(&v, false),
            Err(()) => Val::None,
        };
        let mut args: Vec<Arg> = node.args().iter().map(mapped).collect();
        let kwargs = node.kwargs().iter().map(|(k, v)| (k.clone(), mapped(v))).collect();
        if changes.literals && !args.is_empty() {
            let at = self.r.next_below(args.len());
            args[at] = change_literal(&args[at], &mut self.r);
        }
        let (mut op, mut target) = (node.op(), node.target().to_string());
        if !self.nested && self.r.one_in(8) {
            (op, target) = self.in_place(op, &target).unwrap_or((op, target));
        }
        self.graph().create_node(op, &target, args, kwargs, None)
    }

    /// The spelling of a call that writes its result to its first argument.
    fn in_place(&mut self, op: Opcode, target: &str) -> Option<(Opcode, String)> {
        let path = op::canonical_path(target, op == Opcode::CallMethod);
        let row = op::candidates(&path).first()?.op;
        let forms = row.forms.iter().filter(|f| f.inplace);
        let paths: Vec<&'static str> = forms.flat_map(|f| f.paths()).collect();
        if paths.is_empty() {
            return None;
        }
        let path = self.r.pick(&paths);
        Some(match path.strip_prefix("Tensor.") {
            Some(method) => (Opcode::CallMethod, method.to_string()),
            None => (Opcode::CallFunction, path.to_string()),
        })
    }

    /// A call with arguments of the types in the row's schema.
    fn add_by_schema(&mut self) -> Option<String> {
        let all = op::all();
        let row = &all[self.r.next_below(all.len())];
        let mut args = vec![];
        for p in &row.schema.params {
            if p.default.is_some() && self.r.next_below(3) > 0 {
                continue;
            }
            args.push((p.name.as_str().into(), self.argument(&p.ty)?));
        }
        self.graph().call_function(row.name, vec![], args);
        Some(row.name.to_string())
    }

    fn argument(&mut self, ty: &ParamType) -> Option<Arg> {
        Some(match ty {
            ParamType::Tensor => match self.pick(|_| true).filter(|_| self.nested) {
                Some((n, _)) => Val::Leaf(n),
                None => {
                    let shapes: [&[usize]; 6] = [&[], &[3], &[2, 3], &[3, 3], &[2, 3, 4], &[1, 2, 4, 4]];
                    let dtype = self.r.pick(&[DType::F32, DType::F32, DType::I64, DType::B8]);
                    let shape = self.r.pick(&shapes);
                    Val::Leaf(self.source(dtype, shape)?)
                }
            },
            ParamType::Int => Val::int(self.r.next_below(6) as i64 - 2),
            ParamType::Float => Val::Float(self.r.pick(&[0.0, -1.0, 0.5, 3.0, f64::INFINITY])),
            ParamType::Number if self.r.one_in(2) => Val::int(self.r.next_below(5) as i64 - 1),
            ParamType::Number => Val::Float(self.r.pick(&[-0.0, 0.25, 2.5])),
            ParamType::Bool => Val::Bool(self.r.one_in(2)),
            ParamType::Str => Val::str(self.r.pick(&["none", "mean", "sum", "constant", "reflect", "floor"])),
            ParamType::DType => Val::DType(self.r.pick(&[DType::F32, DType::F64, DType::I64, DType::F16])),
            ParamType::Optional(inner) if self.r.one_in(2) => self.argument(inner)?,
            ParamType::List(inner, n) => {
                let n = n.unwrap_or(1 + self.r.next_below(3));
                Val::List((0..n).map(|_| self.argument(inner)).collect::<Option<_>>()?)
            }
            ParamType::Any => return None,
            _ => Val::None,
        })
    }

    /// The results are the values that nothing uses, and some others.
    fn finish(mut self) -> Option<Case> {
        let graph = self.module.entry()?;
        let is_result =
            |n: NodeId, r: &mut SplitMix| graph[n].op().is_call() && (graph[n].users().len() == 0 || r.one_in(8));
        let results: Vec<Arg> = graph
            .iter()
            .filter(|&n| is_result(n, &mut self.r))
            .map(Val::Leaf)
            .collect();
        if results.is_empty() {
            return None;
        }
        self.graph().set_output(Val::Tuple(results));
        if !self.runs() {
            return None;
        }
        let mut calls = self.calls;
        calls.sort();
        calls.dedup();
        Some(Case {
            text: print::print(&self.module),
            inputs: self.inputs,
            calls,
        })
    }
}
