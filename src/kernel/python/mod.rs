//! Kernels as Python: the readable artifact of the back end.
//!
//! The text runs under Python with numpy and computes what the compiled kernel computes, in the same dtypes: a serial
//! loop is a `for`, a vector loop is one numpy array of all its values of the loop variable, a reduction over it a
//! numpy reduction. `prelude.py` beside this file holds the few functions that numpy lacks.

use super::*;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What every text of kernels begins with.
pub const PRELUDE: &str = include_str!("prelude.py");

/// One kernel as a Python function.
pub fn function(k: &Kernel) -> String {
    function_called(k, &identifier(&k.name))
}

/// One kernel as a Python function of this name.
pub fn function_called(k: &Kernel, name: &str) -> String {
    let mut w = Writer {
        k,
        out: String::new(),
        indent: 1,
        vectors: BTreeSet::new(),
    };
    let params: Vec<&str> = k.params().map(|(_, b)| &*b.name).collect();
    let _ = writeln!(
        w.out,
        "def {name}({}):",
        params.iter().map(|p| identifier(p)).collect::<Vec<_>>().join(", ")
    );
    for b in &k.buffers {
        let ty = crate::types::TensorType::fixed(b.dtype, &b.shape);
        let name = identifier(&b.name);
        if b.role == Role::Local {
            w.line(&format!(
                "{name} = np.empty({}, {})  # {ty}, stays in L1",
                b.numel(),
                numpy(b.dtype)
            ));
        } else {
            let role = match b.role {
                Role::In => "in",
                Role::Out => "out",
                _ => "in and out",
            };
            w.line(&format!("# {name}: {ty} {role}"));
        }
    }
    w.block(&k.body);
    if k.body.is_empty() {
        w.line("pass");
    }
    w.out
}

/// Kernels as a Python module.
pub fn module<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> String {
    let mut out = PRELUDE.to_string();
    for k in kernels {
        out.push_str("\n\n");
        out.push_str(&function(k));
    }
    out
}

/// A name that Python accepts: kernels and buffers are named after graph nodes.
pub fn identifier(name: &str) -> String {
    let mut s: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .collect();
    const TAKEN: &[&str] = &[
        "and", "as", "assert", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for",
        "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield", "None", "True", "False", "np", "math",
    ];
    // Values are v0, v1, …, loop variables i0, i1, …: names of that form, and names of the prelude, get a tail.
    let generated = s.len() > 1 && s.starts_with(['v', 'i']) && s[1..].bytes().all(|b| b.is_ascii_digit());
    let function = PRELUDE.contains(&format!("def {s}("));
    if TAKEN.contains(&&*s) || generated || function {
        s.push('_');
    }
    if s.is_empty() || s.starts_with(|c: char| c.is_ascii_digit()) {
        s.insert(0, '_');
    }
    s
}

/// numpy's type of the elements of a buffer: bits for bf16.
pub fn numpy(d: DType) -> &'static str {
    match d {
        DType::F64 => "np.float64",
        DType::F32 => "np.float32",
        DType::F16 => "np.float16",
        DType::BF16 => "np.uint16",
        DType::I64 => "np.int64",
        DType::I32 => "np.int32",
        DType::I16 => "np.int16",
        DType::I8 => "np.int8",
        DType::U8 => "np.uint8",
        _ => "np.bool_",
    }
}

fn scalar(s: Scalar) -> String {
    let float = |x: f64| match x {
        x if x.is_nan() => "math.nan".to_string(),
        x if x.is_infinite() => if x > 0.0 { "math.inf" } else { "-math.inf" }.to_string(),
        x => crate::types::write_float(x),
    };
    match s {
        Scalar::F64(x) => format!("np.float64({})", float(x)),
        // The shortest text that gives the same f32.
        Scalar::F32(x) if x.is_finite() => format!("np.float32({x:?})"),
        Scalar::F32(x) => format!("np.float32({})", float(x as f64)),
        Scalar::Int(d, x) => format!("{}({x})", numpy(d)),
        Scalar::Bool(b) => format!("np.bool_({})", if b { "True" } else { "False" }),
        Scalar::Half(DType::F16, x) => format!("np.float16({})", float(x as f64)),
        Scalar::Half(_, x) => format!("to_bf16(np.float32({}))", float(x as f64)),
    }
}

struct Writer<'a> {
    k: &'a Kernel,
    out: String,
    indent: usize,
    /// Loop variables that are arrays here.
    vectors: BTreeSet<Var>,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = 4 * self.indent);
    }

    fn buffer(&self, b: Buf) -> String {
        identifier(&self.k.buffer(b).name)
    }

    fn block(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, inst) => {
                    let text = self.inst(inst);
                    self.line(&format!("v{} = {text}", v.0));
                }
                Stmt::Store(b, at, v) => {
                    let (b, at) = (self.buffer(*b), self.index(at));
                    self.line(&format!("{b}[{at}] = v{}", v.0));
                }
                Stmt::Loop(l) => self.nest(l),
            }
        }
    }

    fn nest(&mut self, l: &Loop) {
        if l.vector {
            let v = l.vars[0];
            if self.k.extent(v) == 0 {
                return self.results_of_nothing(l);
            }
            let note = if l.parallel {
                "  # in parallel, in vectors"
            } else {
                "  # in vectors"
            };
            self.line(&format!("i{} = np.arange({}){note}", v.0, self.k.extent(v)));
            self.vectors.insert(v);
            self.block(&l.body);
            self.vectors.remove(&v);
            for r in &l.reduces {
                let text = self.vector_reduce(r, self.k.extent(v));
                self.line(&text);
            }
            return;
        }
        for c in &l.carries {
            self.line(&format!("v{} = v{}", c.phi.0, c.init.0));
        }
        for r in &l.reduces {
            for (o, i) in r.out.iter().zip(&r.init) {
                self.line(&format!("v{} = v{}", o.0, i.0));
            }
        }
        self.line(&self.header(l));
        self.indent += 1;
        self.block(&l.body);
        for r in &l.reduces {
            self.serial_reduce(r);
        }
        for c in &l.carries {
            self.line(&format!("v{} = v{}", c.phi.0, c.next.0));
        }
        if l.body.is_empty() {
            self.line("pass");
        }
        self.indent -= 1;
        for c in &l.carries {
            self.line(&format!("v{} = v{}", c.out.0, c.phi.0));
        }
    }

    fn header(&self, l: &Loop) -> String {
        let note = if l.parallel { "  # in parallel" } else { "" };
        match &l.vars[..] {
            [v] => format!("for i{} in range({}):{note}", v.0, self.k.extent(*v)),
            vars => {
                let names: Vec<String> = vars.iter().map(|v| format!("i{}", v.0)).collect();
                let sizes: Vec<String> = vars.iter().map(|&v| self.k.extent(v).to_string()).collect();
                format!("for {} in np.ndindex({}):{note}", names.join(", "), sizes.join(", "))
            }
        }
    }

    fn results_of_nothing(&mut self, l: &Loop) {
        for r in &l.reduces {
            for (o, i) in r.out.iter().zip(&r.init) {
                self.line(&format!("v{} = v{}", o.0, i.0));
            }
        }
    }

    fn vector_reduce(&self, r: &Reduce, n: usize) -> String {
        let (v, out, init) = (r.value[0].0, r.out[0].0, r.init[0].0);
        let all = format!("np.broadcast_to(v{v}, {n})");
        let d = numpy(self.k.dtype(r.value[0]));
        match r.op {
            ReduceOp::Add => format!("v{out} = v{init} + np.add.reduce({all}, dtype={d})"),
            ReduceOp::Mul => format!("v{out} = v{init} * np.multiply.reduce({all}, dtype={d})"),
            ReduceOp::Max => format!("v{out} = np.maximum(v{init}, np.maximum.reduce({all}))"),
            ReduceOp::Min => format!("v{out} = np.minimum(v{init}, np.minimum.reduce({all}))"),
            ReduceOp::And => format!("v{out} = v{init} & np.bitwise_and.reduce({all})"),
            ReduceOp::Or => format!("v{out} = v{init} | np.bitwise_or.reduce({all})"),
            ReduceOp::ArgMax | ReduceOp::ArgMin => {
                let best = if r.op == ReduceOp::ArgMax {
                    "np.greater"
                } else {
                    "np.less"
                };
                let index = format!("np.broadcast_to(v{}, {n})", r.value[1].0);
                format!(
                    "v{out}, v{} = arg_reduce({all}, {index}, (v{init}, v{}), {best})",
                    r.out[1].0, r.init[1].0
                )
            }
        }
    }

    fn serial_reduce(&mut self, r: &Reduce) {
        let (v, out) = (r.value[0].0, r.out[0].0);
        let text = match r.op {
            ReduceOp::Add => format!("v{out} = v{out} + v{v}"),
            ReduceOp::Mul => format!("v{out} = v{out} * v{v}"),
            ReduceOp::Max => format!("v{out} = np.maximum(v{out}, v{v})"),
            ReduceOp::Min => format!("v{out} = np.minimum(v{out}, v{v})"),
            ReduceOp::And => format!("v{out} = v{out} & v{v}"),
            ReduceOp::Or => format!("v{out} = v{out} | v{v}"),
            ReduceOp::ArgMax | ReduceOp::ArgMin => {
                let (vi, oi) = (r.value[1].0, r.out[1].0);
                let sign = if r.op == ReduceOp::ArgMax { ">" } else { "<" };
                self.line(&format!(
                    "better = np.where(np.isnan(v{out}), np.isnan(v{v}) & (v{vi} < v{oi}), np.isnan(v{v}) | (v{v} {sign} v{out}) \
                     | ((v{v} == v{out}) & (v{vi} < v{oi})))"
                ));
                self.line(&format!("v{oi} = np.where(better, v{vi}, v{oi})"));
                format!("v{out} = np.where(better, v{v}, v{out})")
            }
        };
        self.line(&text);
    }

    fn index(&self, at: &Index) -> String {
        let mut s = at.affine.to_string();
        for (v, stride) in &at.dynamic {
            let _ = write!(s, " + {stride} * v{}", v.0);
        }
        s
    }

    fn inst(&self, inst: &Inst) -> String {
        match inst {
            Inst::Const(s) => scalar(*s),
            Inst::Index(a) if a.is_const() => format!("np.int64({a})"),
            Inst::Index(a) => format!("np.asarray({a}, np.int64)[()]"),
            Inst::Load(b, at, None) => format!("{}[{}]", self.buffer(*b), self.index(at)),
            Inst::Load(b, at, Some(g)) => {
                let conds: Vec<String> = g
                    .conds
                    .iter()
                    .map(|c| format!("({} <= {e}) & ({e} < {})", c.lo, c.hi, e = parenthesised(&c.expr)))
                    .collect();
                let conds = if conds.is_empty() {
                    "True".into()
                } else {
                    conds.join(" & ")
                };
                format!(
                    "load_where({}, {}, {conds}, {})",
                    self.buffer(*b),
                    self.index(at),
                    scalar(g.other)
                )
            }
            Inst::Bounded(v, size, bound) => {
                let mode = match bound {
                    Bound::Check => "check",
                    Bound::Wrap => "wrap",
                    Bound::Clamp => "clamp",
                };
                format!("bounded(v{}, {size}, \"{mode}\")", v.0)
            }
            Inst::Unary(op, x) => unary(*op, x.0, self.k.dtype(*x)),
            Inst::Binary(op, x, y) => binary(*op, x.0, y.0, self.k.dtype(*x)),
            Inst::Compare(op, x, y) => format!("v{} {} v{}", x.0, compare(*op), y.0),
            Inst::Fma(x, y, z) => format!("v{} * v{} + v{}", x.0, y.0, z.0),
            Inst::Select(c, x, y) => format!("np.where(v{}, v{}, v{})[()]", c.0, x.0, y.0),
            Inst::Cast(to, x) => cast(self.k.dtype(*x), *to, x.0),
        }
    }
}

fn parenthesised(a: &Affine) -> String {
    format!("({a})")
}

fn compare(op: Compare) -> &'static str {
    match op {
        Compare::Eq => "==",
        Compare::Ne => "!=",
        Compare::Lt => "<",
        Compare::Le => "<=",
        Compare::Gt => ">",
        Compare::Ge => ">=",
    }
}

fn cast(from: DType, to: DType, x: u32) -> String {
    match (from, to) {
        (DType::BF16, DType::F32) => format!("from_bf16(v{x})"),
        (DType::BF16, _) => cast_text(DType::F32, to, &format!("from_bf16(v{x})")),
        (_, DType::BF16) => format!("to_bf16(np.asarray(v{x}).astype(np.float32))"),
        _ => cast_text(from, to, &format!("v{x}")),
    }
}

fn cast_text(from: DType, to: DType, x: &str) -> String {
    let d = numpy(to);
    if to == DType::B8 {
        return format!("({x} != 0)");
    }
    if to.is_int() && from.is_float() {
        return format!("to_int({x}, {d})");
    }
    format!("np.asarray({x}).astype({d})[()]")
}

fn unary(op: Unary, x: u32, d: DType) -> String {
    let int = !d.is_float();
    let name = match op {
        Unary::Neg => return format!("-v{x}"),
        Unary::Not => return format!("~v{x}"),
        Unary::BitNot => return format!("~v{x}"),
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc if int => return format!("v{x}"),
        Unary::IsNan | Unary::IsInf | Unary::SignBit if int => {
            return if op == Unary::SignBit {
                format!("v{x} < 0")
            } else {
                format!("v{x} != v{x}")
            };
        }
        Unary::Sign | Unary::Abs if d == DType::B8 => return format!("v{x}"),
        Unary::Sign if int => return format!("np.sign(v{x})"),
        Unary::Rsqrt => return format!("{}(1) / np.sqrt(v{x})", numpy(d)),
        Unary::Recip => return format!("{}(1) / v{x}", numpy(d)),
        Unary::Abs => "np.abs",
        Unary::Sign => "sign",
        Unary::Floor => "np.floor",
        Unary::Ceil => "np.ceil",
        Unary::Round => "np.rint",
        Unary::Trunc => "np.trunc",
        Unary::Sqrt => "np.sqrt",
        Unary::Exp => "np.exp",
        Unary::Exp2 => "np.exp2",
        Unary::Expm1 => "np.expm1",
        Unary::Log => "np.log",
        Unary::Log2 => "np.log2",
        Unary::Log10 => "np.log10",
        Unary::Log1p => "np.log1p",
        Unary::Sin => "np.sin",
        Unary::Cos => "np.cos",
        Unary::Tan => "np.tan",
        Unary::Asin => "np.arcsin",
        Unary::Acos => "np.arccos",
        Unary::Atan => "np.arctan",
        Unary::Sinh => "np.sinh",
        Unary::Cosh => "np.cosh",
        Unary::Tanh => "np.tanh",
        Unary::Asinh => "np.arcsinh",
        Unary::Acosh => "np.arccosh",
        Unary::Atanh => "np.arctanh",
        Unary::Erf => "erf",
        Unary::Erfc => "erfc",
        Unary::Erfcx => "erfcx",
        Unary::Erfinv => "erfinv",
        Unary::Lgamma => "lgamma",
        Unary::Digamma => "digamma",
        Unary::I0 => "bessel_i0",
        Unary::I0e => "bessel_i0e",
        Unary::I1 => "bessel_i1",
        Unary::I1e => "bessel_i1e",
        Unary::Ndtri => "ndtri",
        Unary::Sigmoid => "sigmoid",
        Unary::IsNan => "np.isnan",
        Unary::IsInf => "np.isinf",
        Unary::SignBit => "np.signbit",
    };
    format!("{name}(v{x})")
}

fn binary(op: Binary, x: u32, y: u32, d: DType) -> String {
    let infix = |s: &str| format!("v{x} {s} v{y}");
    let call = |s: &str| format!("{s}(v{x}, v{y})");
    let float = d.is_float();
    match op {
        Binary::Add => infix(if d == DType::B8 { "|" } else { "+" }),
        Binary::Sub => infix("-"),
        Binary::Mul => infix(if d == DType::B8 { "&" } else { "*" }),
        Binary::Div => infix("/"),
        Binary::FloorDiv if float => call("floor_div"),
        Binary::FloorDiv => infix("//"),
        Binary::TruncDiv => call("trunc_div"),
        Binary::Mod if float => call("modulo"),
        Binary::Mod => infix("%"),
        Binary::Fmod => call("np.fmod"),
        Binary::Pow if d == DType::B8 => format!("v{x} | ~v{y}"),
        Binary::Pow => call(if float { "np.power" } else { "pow_int" }),
        Binary::Atan2 => call("np.arctan2"),
        Binary::Max if float => call("maximum"),
        Binary::Min if float => call("minimum"),
        Binary::Max | Binary::Fmax if d != DType::B8 => call(if float { "fmax" } else { "np.maximum" }),
        Binary::Min | Binary::Fmin if d != DType::B8 => call(if float { "fmin" } else { "np.minimum" }),
        Binary::Max | Binary::Fmax | Binary::Or => infix("|"),
        Binary::Min | Binary::Fmin | Binary::And => infix("&"),
        Binary::Xor => infix("^"),
        Binary::Shl => call("shift_left"),
        Binary::Shr => call("shift_right"),
        Binary::Copysign => call("np.copysign"),
        Binary::Hypot => call("np.hypot"),
        Binary::Nextafter => call("np.nextafter"),
        Binary::Gcd => call("np.gcd"),
        Binary::Zeta => call("zeta"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn softmax() -> Kernel {
        let mut k = KernelBuilder::new("softmax");
        let (x, out) = (k.input("x", DType::F32, &[4, 8]), k.output("out", DType::F32, &[4, 8]));
        let row = k.local("row", DType::F32, &[8]);
        k.parallel(&[4], |k, i| {
            let max = k.vector_reduce(ReduceOp::Max, DType::F32, 8, |k, j| k.load(x, i[0] * 8 + j));
            let sum = k.vector_reduce(ReduceOp::Add, DType::F32, 8, |k, j| {
                let v = k.load(x, i[0] * 8 + j);
                let d = k.binary(Binary::Sub, v, max);
                let e = k.unary(Unary::Exp, d);
                k.store(row, j, e);
                e
            });
            k.vector(8, |k, j| {
                let e = k.load(row, j);
                let r = k.binary(Binary::Div, e, sum);
                k.store(out, i[0] * 8 + j, r);
            });
        });
        k.finish().unwrap()
    }

    #[test]
    fn reads_as_python() {
        let text = function(&softmax());
        assert!(text.starts_with("def softmax(x, out):\n"), "{text}");
        assert!(text.contains("for i0 in range(4):  # in parallel"), "{text}");
        assert!(text.contains("np.add.reduce(np.broadcast_to("), "{text}");
    }

    /// Runs a module with numpy; `None`, loudly, on a machine without it.
    fn run(source: &str) -> Option<String> {
        let numpy = Command::new("python3").args(["-c", "import numpy"]).output();
        if !numpy.is_ok_and(|o| o.status.success()) {
            eprintln!("SKIPPED: python3 with numpy is not installed, so generated kernels are not run");
            return None;
        }
        let out = Command::new("python3")
            .args(["-c", source])
            .output()
            .expect("python3 just ran");
        assert!(
            out.status.success(),
            "{}\n{source}",
            String::from_utf8_lossy(&out.stderr)
        );
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    #[test]
    fn runs_and_computes_the_same() {
        let mut source = module([&softmax()]);
        source.push_str(
            "\nx = np.linspace(-3, 3, 32).astype(np.float32)\nout = np.zeros(32, np.float32)\nsoftmax(x, out)\n\
             e = np.exp(x.reshape(4, 8) - x.reshape(4, 8).max(1, keepdims=True))\n\
             print(np.abs(out.reshape(4, 8) - e / e.sum(1, keepdims=True)).max() < 1e-6)\n",
        );
        if let Some(out) = run(&source) {
            assert_eq!(out.trim(), "True");
        }
    }

    #[test]
    fn the_prelude_computes_special_functions() {
        let mut source = PRELUDE.to_string();
        source.push_str(
            "\nprint(abs(erfinv(0.5) - 0.4769362762044699) < 1e-12, abs(digamma(1.0) + 0.5772156649015329) < 1e-12, \
             abs(bessel_i1(1.0) - 0.565159103992485) < 1e-12, abs(zeta(2.0, 1.0) - math.pi**2 / 6) < 1e-12, \
             abs(erfcx(10.0) - 0.05614099274382259) < 1e-12, to_int(np.float32(300), np.uint8), to_int(math.nan, np.int64), \
             hex(to_bf16(np.float32(1.004))))\n",
        );
        if let Some(out) = run(&source) {
            assert_eq!(out.trim(), "True True True True True 44 -9223372036854775808 0x3f81");
        }
    }
}
