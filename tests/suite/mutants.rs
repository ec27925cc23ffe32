//! Damaged texts and files, and a function that does everything with a model that was read from one.
//!
//! The random numbers are the same in every run. `FXC_MUTANTS=20 cargo test --test suite no_panic` makes twenty times
//! as many mutants.

use fxc::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use fxc::internals::driver::{Dims, Fill, Function, Given, LoadedModel, Provided, Request, Session, bind::bind_inputs};
use fxc::internals::op::{Op, ParamType};
use fxc::interp;
use fxc::types::{DType, Dim, TensorType, Val};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A linear congruential generator.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// `n` rounds, times the factor in the environment.
pub fn rounds(n: usize) -> usize {
    let times = std::env::var("FXC_MUTANTS").ok().and_then(|t| t.parse().ok());
    n * times.unwrap_or(1)
}

/// Runs `work` on a mutant. If it panics, the test fails and shows the mutant.
pub fn survives(what: &dyn Fn() -> String, work: impl FnOnce()) {
    let result = catch_unwind(AssertUnwindSafe(work));
    assert!(result.is_ok(), "this panics:\n{}", what());
}

const PIECES: [&str; 36] = [
    "(",
    ")",
    "[",
    "{",
    "}",
    ",",
    "%",
    "%x",
    "@",
    "\"",
    "'",
    "-",
    "9223372036854775808",
    "1e400",
    "None",
    "f32[",
    "N",
    "call_function",
    "output",
    "\u{0}",
    "é",
    "\\",
    "//0",
    ":",
    "\n",
    "\n    ",
    "\n        class a(torch.nn.Module):\n",
    "def forward(self, x):\n",
    "self.",
    " = None",
    ";  x = ",
    "# File: ",
    "ExportedProgram:\n",
    "Graph signature:\n",
    "[value=",
    "prim::",
];

/// A text with some pieces removed, duplicated or inserted.
pub fn text(text: &str, r: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + r.below(4) {
        let (a, n) = (r.below(bytes.len()), r.below(12));
        let b = (a + n).min(bytes.len());
        match r.below(4) {
            0 => drop(bytes.drain(a..b)),
            1 => {
                let piece = bytes[a..b].to_vec();
                let at = r.below(bytes.len());
                bytes.splice(at..at, piece);
            }
            2 => drop(bytes.splice(a..b, r.pick(&PIECES).bytes())),
            _ => {
                if let Some(x) = bytes.get_mut(a) {
                    *x = r.below(256) as u8;
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(b'(');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text with one of its numbers, usually a size, replaced by an extreme one. The text stays well formed, so that it
/// gets past the parser.
pub fn number(text: &str, r: &mut Random) -> String {
    let is_number = |w: &str| w.starts_with(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).collect();
    let at: Vec<usize> = (0..words.len()).filter(|&i| is_number(words[i])).collect();
    if at.is_empty() {
        return text.to_string();
    }
    let chosen = *r.pick(&at);
    let limits = [
        "0",
        "1",
        "-1",
        "2147483648",
        "4611686018427387904",
        "9223372036854775807",
    ];
    let mut out = String::new();
    for (i, w) in words.iter().enumerate() {
        match i == chosen {
            true => {
                out.push_str(r.pick::<&str>(&limits));
                out.push_str(w.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
            }
            false => out.push_str(w),
        }
    }
    out
}

/// Bytes with some flipped, overwritten by extreme numbers, cut out or truncated. Most formats start with a header, so
/// the start is changed most often.
pub fn bytes(whole: &[u8], r: &mut Random) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..1 + r.below(3) {
        let reach = *r.pick(&[16, 200, bytes.len()]);
        let at = r.below(reach.min(bytes.len()));
        let end = (at + 8).min(bytes.len());
        match r.below(5) {
            0 => bytes[at] ^= 1 << r.below(8),
            1 => {
                let limit = r
                    .pick(&[0u64, 1, 1 << 31, 1 << 62, u64::MAX, i64::MAX as u64])
                    .to_le_bytes();
                bytes[at..end].copy_from_slice(&limit[..end - at]);
            }
            2 => bytes[at] = *r.pick(b"0123456789-,[]{}()'\":\0\xff"),
            3 => drop(bytes.drain(at..end)),
            _ => bytes.truncate(at + 1),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// JSON with one of its values replaced by an unusual one or by another of its values.
pub fn json(whole: &Value, r: &mut Random) -> Value {
    fn each<'a>(v: &'a Value, path: &str, out: &mut Vec<(String, &'a Value)>) {
        out.push((path.to_string(), v));
        match v {
            Value::Array(items) => {
                for (i, x) in items.iter().enumerate() {
                    each(x, &format!("{path}/{i}"), out);
                }
            }
            Value::Object(fields) => {
                for (k, x) in fields {
                    each(x, &format!("{path}/{}", k.replace('~', "~0").replace('/', "~1")), out);
                }
            }
            _ => {}
        }
    }
    let mut all = vec![];
    each(whole, "", &mut all);
    let deep = (0..100).fold(json!(1), |v, _| json!([v]));
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!("x"),
        json!("é\u{0}"),
        json!([]),
        json!({}),
        deep,
    ];
    let new = match r.below(2) {
        0 => r.pick(&odd).clone(),
        _ => r.pick(&all).1.clone(),
    };
    let path = r.pick(&all).0.clone();
    let mut out = whole.clone();
    *out.pointer_mut(&path).expect("a path of this value") = new;
    out
}

/// Checks and prints a model. If it is small, also optimises, interprets, compiles and runs it. Errors are reported to
/// the session.
pub fn exercise(s: &mut Session, mut model: LoadedModel, run: bool) {
    if s.check(&mut model.module, &[]).is_err() {
        return;
    }
    let _ = fxc::graph::print(&model.module);
    if !run {
        return;
    }
    let Some(graph) = model.module.entry() else { return };
    let fill = |p: NodeId| Provided {
        name: graph[p].target().to_string(),
        given: Given::Fill(Fill::Normal(0), None),
        origin: "random numbers".into(),
        must_match: true,
    };
    let tensors = graph.placeholders().into_iter().filter(|&p| graph[p].args().is_empty());
    let provided = tensors.map(fill).collect();
    if !is_small(&model.module) {
        return;
    }
    let (Some(bound), _) = bind_inputs(&model.module, provided, sizes(&model.module)) else {
        return;
    };
    if s.check(&mut model.module, &bound.types).is_err() || !is_small(&model.module) {
        return;
    }
    let _ = interp::run(&model.module, bound.values.clone());
    let request = Request {
        threads: 1,
        ..Request::default()
    };
    let _ = Function::new(model, request).call(s, &bound);
}

/// A value for every symbolic size.
fn sizes(module: &GraphModule) -> Dims {
    let declared = module.dims.iter().map(|(n, d)| (n.to_string(), d.min.max(2)));
    let mut out: Dims = declared.collect();
    let Some(graph) = module.entry() else { return out };
    for p in graph.placeholders() {
        for t in graph[p].meta.ty.iter().flat_map(|t| t.leaves()) {
            for d in t.shape.iter().flatten() {
                d.visit_vars(&mut |v| {
                    out.entry(v.to_string()).or_insert(2);
                });
            }
        }
    }
    out
}

/// Whether no value of the module's graphs is large, according to their types, and no graph runs for an unknown time.
fn is_small(module: &GraphModule) -> bool {
    let dims = sizes(module);
    let size = |d: &Dim| d.eval(&|v| dims.get(v).copied());
    module.graphs.values().all(|graph| {
        graph.iter().all(|n| {
            let node = &graph[n];
            let endless = node.op() == Opcode::CallFunction && node.target().contains("while_loop");
            let types = node.meta.ty.iter().flat_map(|t| t.leaves());
            let small = types.into_iter().all(|t| {
                let mut sizes = t.shape.iter().flatten();
                sizes
                    .try_fold(1i64, |n, d| n.checked_mul(size(d)?))
                    .is_some_and(|n| n < 1 << 16)
            });
            !endless && small
        })
    })
}

/// A graph with one call of `op`. Its arguments conform to the schema; many of them are at or beyond the limits of what
/// the op accepts.
pub fn call(op: &Op, r: &mut Random) -> GraphModule {
    let mut g = Graph::new();
    let mut kwargs = vec![];
    for p in &op.schema.params {
        if p.default.is_none() || r.below(2) == 0 {
            let value = argument(&p.ty, &mut g, r);
            kwargs.push((p.name.as_str().into(), value));
        }
    }
    let y = g.call_function(op.name, vec![], kwargs);
    g.set_output(Val::Leaf(y));
    GraphModule::new("call", g)
}

fn argument(ty: &ParamType, g: &mut Graph, r: &mut Random) -> Arg {
    const DTYPES: [DType; 6] = [DType::F32, DType::F64, DType::I64, DType::B8, DType::F16, DType::U8];
    const TEXTS: [&str; 9] = ["none", "mean", "sum", "constant", "reflect", "linear", "floor", "", "é"];
    match ty {
        ParamType::Tensor => tensor(*r.pick(&DTYPES), g, r),
        ParamType::Int => Val::int(int(r)),
        ParamType::Float => Val::Float(*r.pick(&[0.0, -0.0, -1.0, 0.5, 3.0, 1e308, f64::NAN, f64::INFINITY])),
        ParamType::Number => match r.below(2) {
            0 => argument(&ParamType::Int, g, r),
            _ => argument(&ParamType::Float, g, r),
        },
        ParamType::Bool => Val::Bool(r.below(2) == 0),
        ParamType::Str => Val::str(r.pick::<&str>(&TEXTS)),
        ParamType::DType => Val::DType(*r.pick(&DTYPES)),
        ParamType::Any => {
            let list = ParamType::List(Box::new(ParamType::Int), None);
            let kinds = [
                ParamType::Tensor,
                ParamType::Int,
                ParamType::Str,
                list,
                ParamType::Layout,
            ];
            argument(r.pick(&kinds), g, r)
        }
        ParamType::Optional(inner) => match r.below(3) {
            0 => Val::None,
            _ => argument(inner, g, r),
        },
        ParamType::List(inner, n) => {
            let n = n.filter(|_| r.below(2) == 0).unwrap_or(r.below(4));
            Val::List((0..n).map(|_| argument(inner, g, r)).collect())
        }
        ParamType::Device | ParamType::Layout | ParamType::MemoryFormat | ParamType::Generator => Val::None,
    }
}

fn int(r: &mut Random) -> i64 {
    const LIMITS: [i64; 7] = [
        i64::MIN,
        i64::MAX,
        i64::MAX - 1,
        1 << 62,
        1 << 32,
        i32::MAX as i64,
        -(1 << 33),
    ];
    match r.below(4) {
        0 => *r.pick(&LIMITS),
        _ => r.below(9) as i64 - 3,
    }
}

fn tensor(dtype: DType, g: &mut Graph, r: &mut Random) -> Arg {
    let shapes: [&[usize]; 8] = [
        &[],
        &[3],
        &[2, 3],
        &[3, 3],
        &[0, 3],
        &[2, 2, 4],
        &[1, 2, 4, 4],
        &[1, 1, 2, 2, 2],
    ];
    let x = g.placeholder(&format!("x{}", g.len()), None);
    let meta = g.meta_mut(x);
    let shape: &&[usize] = r.pick(&shapes);
    meta.ty = Some(Val::Leaf(TensorType::with_fixed_shape(dtype, shape)));
    meta.declared = true;
    Val::Leaf(x)
}
