//! Random graphs, for tests and fuzzing: the same seed gives the same graph.
//!
//! [`module`] generates modules with every construct of the language, to test properties of all graphs (printing,
//! parsing, editing); their ops need not exist. [`program`] generates graphs that can be run: every op exists and every
//! shape fits.

mod difference;
mod program;

pub use difference::{graph_difference, module_difference};
pub use program::program;

use super::{
    Arg, Attribute, AttributeKind, DimRange, Frame, Graph, GraphModule, Loc, Meta, ModuleDecl, ModuleFrame, Mutation,
    NodeId, Opcode, SizeGuard,
};
use crate::op::Literal;
use crate::scalar::Compare;
use crate::tensor::{Scalar, SplitMix as Rng, Tensor};
use crate::types::{DType, Dim, ScalarKind, TensorType, Type, Val};
use std::sync::Arc;

const TEXTS: [&str; 12] = [
    "",
    "tanh",
    "a b",
    "it's",
    "say \"hi\"",
    "back\\slash",
    "line\nfeed\t",
    "é😀\u{200b}",
    "%x",
    "None",
    "1",
    "\u{7}\0",
];
const PATHS: [&str; 12] = [
    "torch.add",
    "operator.getitem",
    "aten.add.Tensor",
    "torch.ops.aten.relu.default",
    "relu",
    "layer1.0.conv",
    "0.weight",
    "in",
    "output",
    "<built-in function add>",
    "a..b",
    "weird name",
];

fn random_word(r: &mut Rng) -> String {
    let words = [
        "x", "add", "relu_1", "graph", "dim", "Loc", "_w", "output", "sum", "sum_1", "buffer",
    ];
    r.pick(&words).to_string()
}

fn random_text(r: &mut Rng) -> Arc<str> {
    r.pick(&TEXTS).into()
}

fn random_float(r: &mut Rng) -> f64 {
    let special = [
        0.0,
        -0.0,
        1.0,
        1e-5,
        1e16,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        5e-324,
        f64::MAX,
    ];
    match r.one_in(2) {
        true => special[r.next_below(special.len())],
        false => f64::from_bits(r.next_u64()),
    }
}

fn random_dim(r: &mut Rng) -> Dim {
    let n = Dim::var(r.pick(&["N", "M", "s77"]));
    let c = Dim::Const(r.next_below(7) as i64 + 1);
    match r.next_below(7) {
        0 => n,
        1 => n.mul(&c).add(&Dim::var("M")),
        2 => n.sub(&c),
        3 => n.floordiv(&c),
        4 => n.add(&c).modulo(&Dim::var("M")),
        5 => n.max_of(&c),
        _ => c,
    }
}

/// A literal, nested up to `depth`. Its leaves come from `leaf`.
fn random_literal<T>(r: &mut Rng, depth: usize, leaf: &mut dyn FnMut(&mut Rng) -> Option<Val<T>>) -> Val<T> {
    if r.one_in(3)
        && let Some(v) = leaf(r)
    {
        return v;
    }
    let n = if depth == 0 { 12 } else { 18 };
    let choice = r.next_below(n);
    let mut seq = |r: &mut Rng, n: usize| (0..n).map(|_| random_literal(r, depth - 1, leaf)).collect::<Vec<_>>();
    match choice {
        0 => Val::None,
        1 => Val::Bool(r.one_in(2)),
        2 => Val::int(r.next_u64() as i64),
        3 => Val::int(r.next_below(20) as i64 - 10),
        4 => Val::Int(random_dim(r)),
        5 => Val::Float(random_float(r)),
        6 => Val::Complex(random_float(r), random_float(r)),
        7 => Val::Str(random_text(r)),
        8 => Val::DType(DType::all().nth(r.next_below(18)).unwrap_or(DType::F32)),
        9 => Val::Device(r.pick(&["cpu", "cuda:1", "meta"]).into()),
        10 => Val::TorchName(r.pick(&["contiguous_format", "strided"]).into()),
        11 => Val::Opaque(r.pick(&["<class 'int'>", "tensor([1., 2.])"]).into()),
        12 => Val::Ellipsis,
        13 => {
            let n = r.next_below(4);
            Val::List(seq(r, n))
        }
        14 => {
            let n = r.next_below(4);
            Val::Tuple(seq(r, n))
        }
        15 => {
            let keys: Vec<Val<T>> = (0..r.next_below(3)).map(|i| random_key(r, i)).collect();
            let values = seq(r, keys.len());
            Val::Dict(keys.into_iter().zip(values).collect())
        }
        16 => Val::Slice(take_three(seq(r, 3))),
        _ => Val::Range(take_three(seq(r, 3))),
    }
}

/// A key of a dict; keys with different `i` differ if they are numbers.
fn random_key<T>(r: &mut Rng, i: usize) -> Val<T> {
    match r.one_in(3) {
        true => Val::int(i as i64),
        false => Val::Str(random_text(r)),
    }
}

fn take_three<T>(v: Vec<Val<T>>) -> Box<[Val<T>; 3]> {
    let mut v = v.into_iter();
    Box::new([(); 3].map(|_| v.next().unwrap_or(Val::None)))
}

fn tensor_type(r: &mut Rng) -> TensorType {
    let dtype = DType::COMPUTED[r.next_below(10)];
    match r.next_below(6) {
        0 => TensorType { dtype, shape: None },
        _ => {
            let size = |r: &mut Rng| if r.one_in(8) { Dim::Unknown } else { dim_type(r) };
            let n = r.next_below(4);
            TensorType::new(dtype, (0..n).map(|_| size(r)).collect::<Vec<_>>())
        }
    }
}

/// A size that is valid in a type: a constant is not negative.
fn dim_type(r: &mut Rng) -> Dim {
    match random_dim(r) {
        Dim::Const(c) => Dim::Const(c.abs()),
        d => d,
    }
}

fn random_type(r: &mut Rng, depth: usize) -> Type {
    match r.next_below(if depth == 0 { 7 } else { 10 }) {
        0 => Val::Any(ScalarKind::Int),
        1 => Val::Any(ScalarKind::Float),
        2 => Val::Any(ScalarKind::Bool),
        3 => Val::Any(ScalarKind::Str),
        4 => Val::None,
        5 | 6 => Val::Leaf(tensor_type(r)),
        7 => Val::Tuple((0..r.next_below(3)).map(|_| random_type(r, depth - 1)).collect()),
        8 => Val::List(vec![random_type(r, depth - 1)]),
        _ => Val::Dict(vec![(Val::Str(random_text(r)), random_type(r, depth - 1))]),
    }
}

fn random_constant(r: &mut Rng) -> Tensor {
    let dtype = DType::COMPUTED[r.next_below(10)];
    let shape: Vec<usize> = (0..r.next_below(4)).map(|_| r.next_below(4)).collect();
    let mut values = r.clone();
    r.next_u64();
    Tensor::from_fn(dtype, &shape, |_| match dtype.is_float() {
        true => Scalar::from_f64(dtype, random_float(&mut values)),
        false => Scalar::Int(DType::I64, values.next_u64() as i64),
    })
}

/// Generates a module: declarations and up to three graphs with every opcode, nested arguments, types and locations.
pub fn module(seed: u64) -> GraphModule {
    let r = &mut Rng::new(seed);
    let mut m = GraphModule {
        name: "random".into(),
        ..GraphModule::default()
    };
    if r.one_in(2) {
        m.weights = Some((random_text(r).to_string(), None));
    }
    for (min, n) in (0..).zip(["N", "M"]) {
        let max = r.one_in(2).then(|| r.next_below(1000) as i64 + 10);
        m.dims.insert(n.into(), DimRange { min, max, span: None });
    }
    for _ in 0..r.next_below(3) {
        let compare = r.pick(&Compare::ALL);
        let (left, right) = (random_dim(r), random_dim(r));
        m.guards.push(SizeGuard { left, compare, right });
    }
    for i in 0..r.next_below(4) {
        let decl = module_decl(r);
        m.modules.insert(format!("{}.{i}", random_word(r)).into(), decl);
    }
    for i in 0..r.next_below(5) {
        m.attributes.insert(format!("{i}.w").into(), random_attribute(r));
    }
    for i in 0..r.next_below(3) + 1 {
        m.graphs
            .insert(format!("{}_{i}", random_word(r)).into(), random_graph(r));
    }
    m
}

fn module_decl(r: &mut Rng) -> ModuleDecl {
    let mut none = |_: &mut Rng| -> Option<Literal> { None };
    // A bare name would be a string here.
    let plain = |v: Literal| match &v {
        Val::Int(d) if d.as_var().is_some() => Val::Bool(true),
        _ => v,
    };
    let class = r.pick(&["Linear", "torch.nn.ReLU", "LayerNorm"]).into();
    let args = (0..r.next_below(3))
        .map(|_| plain(random_literal(r, 2, &mut none)))
        .collect();
    let kwargs = random_kwargs(r, &mut none)
        .into_iter()
        .map(|(k, v)| (k, plain(v)))
        .collect();
    ModuleDecl {
        class,
        args,
        kwargs,
        span: None,
        places: None,
    }
}

fn random_attribute(r: &mut Rng) -> Attribute {
    let (kind, ty, value) = match r.next_below(4) {
        0 => (AttributeKind::Parameter, Val::Leaf(tensor_type(r)), None),
        1 => (AttributeKind::Buffer, Val::Leaf(tensor_type(r)), None),
        _ => {
            let t = random_constant(r);
            (AttributeKind::Constant, Val::Leaf(t.ty()), Some(t))
        }
    };
    let (ty, span) = (Some(ty), None);
    Attribute { kind, ty, value, span }
}

fn random_kwargs<T>(r: &mut Rng, leaf: &mut dyn FnMut(&mut Rng) -> Option<Val<T>>) -> Vec<(Arc<str>, Val<T>)> {
    let names = ["dim", "in", "device", "odd name", "None"];
    let n = r.next_below(3);
    let first = r.next_below(names.len());
    (0..n)
        .map(|i| (names[(first + i) % names.len()].into(), random_literal(r, 2, leaf)))
        .collect()
}

fn random_placeholder(r: &mut Rng, g: &mut Graph, i: usize) -> NodeId {
    let default = r.one_in(4).then(|| random_literal(r, 2, &mut |_| None));
    match r.pick(&["x", "*args", "**kwargs", "input", "odd name"]) {
        "x" => g.placeholder(&format!("x{i}"), default),
        target => g.placeholder(target, default),
    }
}

fn random_graph(r: &mut Rng) -> Graph {
    let mut g = Graph::new();
    let mut nodes: Vec<NodeId> = (0..r.next_below(4)).map(|i| random_placeholder(r, &mut g, i)).collect();
    for _ in 0..r.next_below(12) {
        let known = nodes.clone();
        let mut leaf = |r: &mut Rng| match known.len() {
            0 => r.one_in(2).then(|| Val::Graph("main".into())),
            n => Some(Val::Leaf(known[r.next_below(n)])),
        };
        let args: Vec<Arg> = (0..r.next_below(4)).map(|_| random_literal(r, 3, &mut leaf)).collect();
        let kw = random_kwargs(r, &mut leaf);
        let target = r.pick(&PATHS);
        let name = random_word(r);
        let name = r.one_in(2).then_some(&*name);
        let op = [
            Opcode::CallFunction,
            Opcode::CallMethod,
            Opcode::CallModule,
            Opcode::GetAttr,
        ][r.next_below(4)];
        nodes.push(match op {
            Opcode::GetAttr => g.create_node(op, target, vec![], vec![], name),
            _ => g.create_node(op, target, args, kw, name),
        });
    }
    let mut leaf = |r: &mut Rng| (!nodes.is_empty()).then(|| Val::Leaf(nodes[r.next_below(nodes.len())]));
    let out = random_literal(r, 3, &mut leaf);
    g.set_output(out);
    decorate_nodes(r, &mut g);
    if r.one_in(3) {
        g.mutations = vec![Mutation::Buffer(r.pick(&PATHS).into()), Mutation::Input("x0".into())];
        g.mutations.truncate(if g.find("x0").is_some() { 2 } else { 1 });
    }
    g
}

/// Adds types, annotations and locations.
fn decorate_nodes(r: &mut Rng, g: &mut Graph) {
    for n in g.ids() {
        let (typed, placed, python) = (r.one_in(3), r.one_in(4), r.one_in(8));
        let ty = typed.then(|| random_type(r, 2));
        let loc = placed.then(|| Loc {
            file: random_text(r),
            line: r.next_below(1000) as u32,
            function: r.pick(&["", "forward", "<lambda>"]).into(),
        });
        let meta = g.meta_mut(n);
        let annotation = (python && ty.is_none()).then(|| "typing.Optional[int]".into());
        meta.declared = ty.is_some();
        meta.ty = ty;
        meta.loc = loc;
        g.text_mut(n).annotation = annotation;
        random_trace(r, g.meta_mut(n));
    }
}

/// Adds frames, modules, the function and annotations. There are few different ones, so some are shared.
fn random_trace(r: &mut Rng, meta: &mut Meta) {
    for _ in 0..r.next_below(8).saturating_sub(4) {
        let loc = Loc {
            file: r.pick(&["a.py", "b c.py"]).into(),
            line: r.next_below(3) as u32,
            function: r.pick(&["", "forward", "<lambda>"]).into(),
        };
        let code = r.one_in(2).then(|| r.pick(&["f(x)", "\"", ""]).into());
        meta.frame = Frame::new(loc, code, meta.frame.take());
    }
    let module = |r: &mut Rng| ModuleFrame {
        path: r.pick(&["", "a", "a.0", "odd path"]).into(),
        class: r.pick(&["nets.Net", "pkg.Pair[int, str]"]).into(),
    };
    meta.modules = (0..r.next_below(6).saturating_sub(3)).map(|_| module(r)).collect();
    meta.function = r.one_in(5).then(|| ("relu_1".into(), "function.relu".into()));
    meta.custom = (0..r.next_below(4).saturating_sub(2))
        .map(|_| (random_text(r), random_text(r)))
        .collect();
}
