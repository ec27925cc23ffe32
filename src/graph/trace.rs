//! Tracing: a Rust closure over proxies becomes a graph, as a Python function does in torch's `symbolic_trace`.
//!
//! ```
//! use fxc::graph::Graph;
//!
//! let graph = Graph::trace(&["x", "y"], |t, p| {
//!     let (x, y) = (&p[0], &p[1]);
//!     let sum = (x + y) * 2.0 - 1;
//!     t.relu(sum).method("sum", (-1,))
//! });
//! let targets: Vec<&str> = graph.iter().map(|n| graph[n].target()).collect();
//! assert_eq!(targets, ["x", "y", "operator.add", "operator.mul", "operator.sub", "relu", "sum", "output"]);
//! ```
//!
//! Ops of the table are methods of [`Tracer`]. Their parameters are those without a default; [`Proxy::with`] sets the
//! others (`t.softmax(x, 1).with("dtype", DType::F64)`). [`Tracer::function`] calls a function by any other name.
//!
//! [`Tracer::module`] calls a [`Module`]. A leaf module becomes a `call_module` node; the calls of any other module are
//! recorded individually. Control flow cannot depend on the value of a proxy, since a proxy is not a `bool`.

mod calls;

mod operators;

use super::{Arg, Graph, Loc, ModuleFrame, NodeId, Opcode};
use crate::types::{DType, Val};
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// Decides by path whether a module is a leaf.
type IsLeaf = dyn Fn(&str, &dyn Module) -> bool;

/// Records the calls that a closure makes.
pub struct Tracer {
    recording: SharedRecording,
    leaf: Rc<IsLeaf>,
}

/// A value of the graph being recorded.
#[derive(Clone)]
pub struct Proxy {
    node: NodeId,
    recording: SharedRecording,
}

/// The graph recorded so far, and the context of the next node.
#[derive(Default)]
struct Recording {
    graph: Graph,
    /// Whether nodes get the location of their call in the Rust source.
    places: bool,
    /// The modules being recorded, outermost first.
    modules: Vec<ModuleFrame>,
    /// The annotations of new nodes.
    custom: Vec<(Arc<str>, Arc<str>)>,
}

type SharedRecording = Rc<RefCell<Recording>>;

/// Records a call that is located at `location`.
fn record_call(
    recording: &SharedRecording,
    op: Opcode,
    target: &str,
    args: Vec<Arg>,
    kwargs: Vec<(Arc<str>, Arg)>,
    location: &Location<'_>,
) -> Proxy {
    let mut r = recording.borrow_mut();
    let node = r.graph.create_node(op, target, args, kwargs, None);
    let modules: Arc<[ModuleFrame]> = r.modules.as_slice().into();
    let loc = r.places.then(|| Loc {
        file: location.file().into(),
        line: location.line(),
        function: r.modules.last().map_or("", |m| m.class_name()).into(),
    });
    let custom = r.custom.clone();
    let meta = r.graph.meta_mut(node);
    meta.modules = modules;
    meta.loc = loc;
    meta.custom = custom;
    drop(r);
    Proxy {
        node,
        recording: recording.clone(),
    }
}

/// A module whose call can be recorded.
pub trait Module {
    /// Records the module's computation and returns its result.
    fn forward(&self, tracer: &Tracer, inputs: &[Proxy]) -> Proxy;

    /// The name of its class in the nodes' [`Meta::modules`](super::Meta::modules), by default the name of the Rust
    /// type.
    fn class(&self) -> &str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Whether a call of it is recorded as one `call_module` node. torch's own modules are leaves.
    fn is_leaf(&self) -> bool {
        false
    }
}

/// A type that can be an argument of a recorded call.
pub trait IntoArg {
    /// Converts it to an argument.
    fn into_arg(self) -> Arg;
}

/// A type that can be the positional arguments of a recorded call: a tuple or a list of proxies.
pub trait IntoArgs {
    /// Converts it to arguments.
    fn into_args(self) -> Vec<Arg>;
}

impl Graph {
    /// Records what `f` does with one proxy for each name of `inputs`. The result of `f` becomes the graph's output.
    pub fn trace<R: IntoArg>(inputs: &[&str], f: impl FnOnce(&Tracer, &[Proxy]) -> R) -> Graph {
        Graph::trace_with(inputs, |_, m| m.is_leaf(), f)
    }

    /// [`Graph::trace`], but `leaf` decides by path which modules are leaves (torch's `is_leaf_module`).
    pub fn trace_with<R: IntoArg>(
        inputs: &[&str],
        leaf: impl Fn(&str, &dyn Module) -> bool + 'static,
        f: impl FnOnce(&Tracer, &[Proxy]) -> R,
    ) -> Graph {
        let tracer = Tracer {
            recording: Rc::default(),
            leaf: Rc::new(leaf),
        };
        let proxies: Vec<Proxy> = inputs
            .iter()
            .map(|name| {
                let node = tracer.recording.borrow_mut().graph.placeholder(name, None);
                let recording = tracer.recording.clone();
                Proxy { node, recording }
            })
            .collect();
        let result = f(&tracer, &proxies).into_arg();
        let mut graph = tracer.recording.take().graph;
        graph.set_output(result);
        graph
    }
}

impl Tracer {
    /// From now on, gives each recorded node the location of its call in the Rust source (torch's
    /// `record_stack_traces`).
    pub fn record_stack_traces(&self) {
        self.recording.borrow_mut().places = true;
    }

    /// Annotates the nodes that `f` records (torch's `fx.traceback.annotate`). Passes propagate annotations together
    /// with a node's location.
    pub fn annotate<R>(&self, key: &str, value: &str, f: impl FnOnce() -> R) -> R {
        self.recording.borrow_mut().custom.push((key.into(), value.into()));
        let result = f();
        self.recording.borrow_mut().custom.pop();
        result
    }

    /// Calls a function by its path: `torch.nn.functional.gelu`, or one of fxc's own ops.
    #[track_caller]
    pub fn function(&self, target: &str, args: impl IntoArgs, kwargs: &[(&str, Arg)]) -> Proxy {
        let args = args.into_args();
        let (op, location) = (Opcode::CallFunction, Location::caller());
        record_call(&self.recording, op, target, args, owned_kwargs(kwargs), location)
    }

    /// Reads a parameter, buffer or constant of the module.
    #[track_caller]
    pub fn attribute(&self, path: &str) -> Proxy {
        record_call(
            &self.recording,
            Opcode::GetAttr,
            path,
            vec![],
            vec![],
            Location::caller(),
        )
    }

    /// Calls a module. A leaf becomes one node; any other module records its own computation.
    #[track_caller]
    pub fn module(&self, path: &str, module: &dyn Module, inputs: &[Proxy]) -> Proxy {
        let frame = ModuleFrame {
            path: path.into(),
            class: module.class().into(),
        };
        self.recording.borrow_mut().modules.push(frame);
        let result = if (self.leaf)(path, module) {
            let args = inputs.iter().map(|p| Val::Leaf(p.node)).collect();
            let (op, location) = (Opcode::CallModule, Location::caller());
            record_call(&self.recording, op, path, args, vec![], location)
        } else {
            module.forward(self, inputs)
        };
        self.recording.borrow_mut().modules.pop();
        result
    }
}

impl Proxy {
    /// The node that the proxy represents.
    pub fn node(&self) -> NodeId {
        self.node
    }

    #[track_caller]
    fn function(&self, target: &str, args: Vec<Arg>) -> Proxy {
        let (op, location) = (Opcode::CallFunction, Location::caller());
        record_call(&self.recording, op, target, args, vec![], location)
    }

    /// Calls a method.
    #[track_caller]
    pub fn method(&self, name: &str, args: impl IntoArgs) -> Proxy {
        self.method_with(name, args, &[])
    }

    /// Calls a method with keyword arguments.
    #[track_caller]
    pub fn method_with(&self, name: &str, args: impl IntoArgs, kwargs: &[(&str, Arg)]) -> Proxy {
        let mut all = vec![Val::Leaf(self.node)];
        all.extend(args.into_args());
        let (op, location) = (Opcode::CallMethod, Location::caller());
        record_call(&self.recording, op, name, all, owned_kwargs(kwargs), location)
    }

    /// `self[index]`, where the index is a slice, a list of slices, or the number of a tuple item.
    #[track_caller]
    pub fn item(&self, index: impl IntoArg) -> Proxy {
        self.function("operator.getitem", vec![Val::Leaf(self.node), index.into_arg()])
    }

    /// `self @ other`.
    #[track_caller]
    pub fn matmul(&self, other: impl IntoArg) -> Proxy {
        self.function("operator.matmul", vec![Val::Leaf(self.node), other.into_arg()])
    }

    /// `self ** other`.
    #[track_caller]
    pub fn pow(&self, other: impl IntoArg) -> Proxy {
        self.function("operator.pow", vec![Val::Leaf(self.node), other.into_arg()])
    }

    /// Names the node. torch's rules make the name unique.
    pub fn named(self, name: &str) -> Proxy {
        self.recording.borrow_mut().graph.rename(self.node, name);
        self
    }
}

fn owned_kwargs(kwargs: &[(&str, Arg)]) -> Vec<(Arc<str>, Arg)> {
    kwargs.iter().map(|(k, v)| (Arc::from(*k), v.clone())).collect()
}

macro_rules! into_arg {
    ($($t:ty, $v:ident => $e:expr;)*) => {
        $(impl IntoArg for $t {
            fn into_arg(self) -> Arg {
                let $v = self;
                $e
            }
        })*
    };
}
into_arg! {
    Arg, v => v;
    Proxy, p => Val::Leaf(p.node);
    &Proxy, p => Val::Leaf(p.node);
    i32, i => Val::int(i as i64);
    i64, i => Val::int(i);
    usize, i => Val::int(i as i64);
    f32, x => Val::Float(x as f64);
    f64, x => Val::Float(x);
    bool, b => Val::Bool(b);
    &str, s => Val::str(s);
    DType, d => Val::DType(d);
    (), _v => Val::None;
}

impl<T: IntoArg> IntoArg for Vec<T> {
    fn into_arg(self) -> Arg {
        Val::List(self.into_iter().map(IntoArg::into_arg).collect())
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+);)*) => {
        $(impl<$($t: IntoArg),+> IntoArg for ($($t,)+) {
            fn into_arg(self) -> Arg {
                Val::Tuple(self.into_args())
            }
        }
        impl<$($t: IntoArg),+> IntoArgs for ($($t,)+) {
            fn into_args(self) -> Vec<Arg> {
                vec![$(self.$i.into_arg()),+]
            }
        })*
    };
}
tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
}

impl IntoArgs for () {
    fn into_args(self) -> Vec<Arg> {
        vec![]
    }
}

impl IntoArgs for Vec<Arg> {
    fn into_args(self) -> Vec<Arg> {
        self
    }
}

#[cfg(test)]
mod tests;
