//! Kernels as Python: the readable artifact of the back end.
//!
//! The text runs under Python with numpy and computes what the compiled kernel computes, in the same dtypes. A serial
//! loop is a `for`. In a vector loop, the loop variable is one numpy array of all its values, and a reduction is a
//! numpy reduction. `prelude.py` in this directory has the few functions that numpy lacks.

mod scalar;
#[cfg(test)]
mod tests;

use super::*;

use scalar::{print_binary, print_cast, print_scalar, print_unary};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The prelude that precedes the printed kernels.
pub(crate) const PRELUDE: &str = include_str!("prelude.py");

/// One kernel as a Python function.
pub fn print_function(k: &Kernel) -> String {
    print_function_as(k, &safe_identifier(&k.name))
}

/// One kernel as a Python function of this name.
pub(crate) fn print_function_as(k: &Kernel, name: &str) -> String {
    let mut w = FunctionWriter {
        k,
        out: String::new(),
        indent: 1,
        vectors: BTreeSet::new(),
    };
    let params: Vec<&str> = k.params().map(|(_, b)| &*b.name).collect();
    let _ = writeln!(
        w.out,
        "def {name}({}):",
        params.iter().map(|p| safe_identifier(p)).collect::<Vec<_>>().join(", ")
    );
    for b in &k.buffers {
        let ty = crate::types::TensorType::with_fixed_shape(b.dtype, &b.shape);
        let name = safe_identifier(&b.name);
        if b.role == BufferRole::Local {
            w.write_line(&format!(
                "{name} = np.empty({}, {})  # {ty}, stays in L1",
                b.numel(),
                numpy_dtype(b.dtype)
            ));
        } else {
            let role = match b.role {
                BufferRole::In => "in",
                BufferRole::Out => "out",
                _ => "in and out",
            };
            w.write_line(&format!("# {name}: {ty} {role}"));
        }
    }
    w.write_block(&k.body);
    if k.body.is_empty() {
        w.write_line("pass");
    }
    w.out
}

/// Kernels as a Python module.
#[cfg(test)]
pub(crate) fn print_module<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> String {
    let mut out = PRELUDE.to_string();
    for k in kernels {
        out.push_str("\n\n");
        out.push_str(&print_function(k));
    }
    out
}

/// A name that Python accepts: kernels and buffers are named after graph nodes.
pub(crate) fn safe_identifier(name: &str) -> String {
    let mut s: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .collect();
    const TAKEN: &[&str] = &[
        "and", "as", "assert", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for",
        "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield", "None", "True", "False", "np", "math",
    ];
    // Generated names are v0, v1, … for values and i0, i1, … for loop variables. Names of that form, and names of
    // prelude functions, get a suffix.
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

/// The numpy dtype of a buffer's elements. bf16 is stored as its bits.
pub(crate) fn numpy_dtype(d: DType) -> &'static str {
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

struct FunctionWriter<'a> {
    k: &'a Kernel,
    out: String,
    indent: usize,
    /// The loop variables that are numpy arrays here.
    vectors: BTreeSet<Var>,
}

impl FunctionWriter<'_> {
    fn write_line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = 4 * self.indent);
    }

    fn buffer_name(&self, b: Buf) -> String {
        safe_identifier(&self.k.buffer(b).name)
    }

    fn write_block(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, inst) => {
                    let text = self.print_inst(inst);
                    self.write_line(&format!("v{} = {text}", v.0));
                }
                Stmt::Store(b, index, v) => {
                    let (b, index) = (self.buffer_name(*b), self.print_index(index));
                    self.write_line(&format!("{b}[{index}] = v{}", v.0));
                }
                Stmt::Loop(l) => self.write_loop(l),
            }
        }
    }

    /// Writes a vector loop as numpy operations on arrays.
    fn write_vector_loop(&mut self, l: &Loop) {
        let v = l.vars[0];
        if self.k.extent(v) == 0 {
            return self.write_empty_results(l);
        }
        let note = if l.parallel {
            "  # in parallel, in vectors"
        } else {
            "  # in vectors"
        };
        self.write_line(&format!("i{} = np.arange({}){note}", v.0, self.k.extent(v)));
        self.vectors.insert(v);
        self.write_block(&l.body);
        self.vectors.remove(&v);
        for r in &l.reduces {
            let text = self.vector_reduce(r, self.k.extent(v));
            self.write_line(&text);
        }
    }

    fn write_loop(&mut self, l: &Loop) {
        if l.vector {
            return self.write_vector_loop(l);
        }
        for c in &l.carries {
            self.write_line(&format!("v{} = v{}", c.phi.0, c.init.0));
        }
        for r in &l.reduces {
            for (o, i) in r.out.iter().zip(&r.init) {
                self.write_line(&format!("v{} = v{}", o.0, i.0));
            }
        }
        self.write_line(&self.loop_header(l));
        self.indent += 1;
        self.write_block(&l.body);
        for r in &l.reduces {
            self.serial_reduce(r);
        }
        for c in &l.carries {
            self.write_line(&format!("v{} = v{}", c.phi.0, c.next.0));
        }
        if l.body.is_empty() {
            self.write_line("pass");
        }
        self.indent -= 1;
        for c in &l.carries {
            self.write_line(&format!("v{} = v{}", c.out.0, c.phi.0));
        }
    }

    fn loop_header(&self, l: &Loop) -> String {
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

    fn write_empty_results(&mut self, l: &Loop) {
        for r in &l.reduces {
            for (o, i) in r.out.iter().zip(&r.init) {
                self.write_line(&format!("v{} = v{}", o.0, i.0));
            }
        }
    }

    fn vector_reduce(&self, r: &Reduce, n: usize) -> String {
        let (v, out, init) = (r.value[0].0, r.out[0].0, r.init[0].0);
        let all = format!("np.broadcast_to(v{v}, {n})");
        let d = numpy_dtype(self.k.dtype(r.value[0]));
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
                self.write_line(&format!(
                    "better = np.where(np.isnan(v{out}), np.isnan(v{v}) & (v{vi} < v{oi}), np.isnan(v{v}) | (v{v} {sign} v{out}) \
                     | ((v{v} == v{out}) & (v{vi} < v{oi})))"
                ));
                self.write_line(&format!("v{oi} = np.where(better, v{vi}, v{oi})"));
                format!("v{out} = np.where(better, v{v}, v{out})")
            }
        };
        self.write_line(&text);
    }

    fn print_index(&self, index: &Index) -> String {
        let mut s = index.affine.to_string();
        for (v, stride) in &index.dynamic {
            let _ = write!(s, " + {stride} * v{}", v.0);
        }
        s
    }

    fn print_inst(&self, inst: &Inst) -> String {
        match inst {
            Inst::Op(ScalarOp::Const(s)) => print_scalar(*s),
            Inst::Index(a) if a.is_const() => format!("np.int64({a})"),
            Inst::Index(a) => format!("np.asarray({a}, np.int64)[()]"),
            Inst::Load(b, index, None) => format!("{}[{}]", self.buffer_name(*b), self.print_index(index)),
            Inst::Load(b, index, Some(g)) => {
                let conds: Vec<String> = g
                    .conds
                    .iter()
                    .map(|c| format!("({} <= {e}) & ({e} < {})", c.lo, c.hi, e = print_parenthesised(&c.expr)))
                    .collect();
                let conds = if conds.is_empty() {
                    "True".into()
                } else {
                    conds.join(" & ")
                };
                format!(
                    "load_where({}, {}, {conds}, {})",
                    self.buffer_name(*b),
                    self.print_index(index),
                    print_scalar(g.other)
                )
            }
            Inst::Bounded(v, size, bound) => {
                let mode = match bound {
                    IndexBound::Check => "check",
                    IndexBound::Wrap => "wrap",
                    IndexBound::Clamp => "clamp",
                };
                format!("bounded(v{}, {size}, \"{mode}\")", v.0)
            }
            Inst::Op(ScalarOp::Unary(op, x)) => print_unary(*op, x.0, self.k.dtype(*x)),
            Inst::Op(ScalarOp::Binary(op, x, y)) => print_binary(*op, x.0, y.0, self.k.dtype(*x)),
            Inst::Op(ScalarOp::Compare(op, x, y)) => format!("v{} {} v{}", x.0, op.sign(), y.0),
            Inst::Op(ScalarOp::Fma(x, y, z)) => format!("v{} * v{} + v{}", x.0, y.0, z.0),
            Inst::Op(ScalarOp::Select(c, x, y)) => format!("np.where(v{}, v{}, v{})[()]", c.0, x.0, y.0),
            Inst::Op(ScalarOp::Cast(to, x)) => print_cast(self.k.dtype(*x), *to, x.0),
        }
    }
}

fn print_parenthesised(a: &Affine) -> String {
    format!("({a})")
}
