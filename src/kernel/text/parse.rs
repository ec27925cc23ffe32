//! Text to kernels.

use super::print::{reduce_op, role};
use crate::kernel::{
    Affine, Bound, Buf, Buffer, Carry, Cond, Guard, Index, Inst, Kernel, Loop, Reduce, ReduceOp, Role, Stmt, Value,
    Var, verify,
};
use crate::scalar::ScalarOp;
use crate::scalar::text::parse_constant;
use crate::tensor::Scalar;
use crate::types::DType;
use std::fmt;
use std::sync::Arc;

/// What is wrong with a kernel's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTextError {
    /// The line, from 1; 0 for what the verifier finds.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for KernelTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for KernelTextError {}

/// How many loop variables and values a text may have: they are numbered, and there is one entry for each number.
const MOST: u32 = 1 << 20;

type Parsed<T> = Result<T, String>;

impl Kernel {
    /// Reads what `Display` writes, and verifies it.
    pub fn parse(text: &str) -> Result<Kernel, KernelTextError> {
        let mut r = Reader::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if !line.is_empty() {
                r.line(line)
                    .map_err(|message| KernelTextError { line: i + 1, message })?;
            }
        }
        let fault = |message: String| KernelTextError { line: 0, message };
        let kernel = r.finish().map_err(fault)?;
        verify(&kernel).map_err(|e| fault(e.to_string()))?;
        Ok(kernel)
    }
}

struct Reader {
    kernel: Kernel,
    /// The dtype of each value that is defined.
    values: Vec<Option<DType>>,
    /// The loops that are open; the first is the kernel's body.
    open: Vec<Loop>,
}

impl Reader {
    fn new() -> Reader {
        let mut r = Reader {
            kernel: Kernel {
                name: String::new(),
                buffers: vec![],
                extents: vec![],
                values: vec![],
                body: vec![],
                shares: vec![],
                nodes: vec![],
            },
            values: vec![],
            open: vec![],
        };
        r.begin(vec![], false, false);
        r
    }

    fn begin(&mut self, vars: Vec<Var>, parallel: bool, vector: bool) {
        self.open.push(Loop {
            vars,
            parallel,
            vector,
            reduces: vec![],
            carries: vec![],
            body: vec![],
        });
    }

    fn finish(mut self) -> Parsed<Kernel> {
        match (self.open.pop(), self.open.is_empty()) {
            (Some(body), true) => self.kernel.body = body.body,
            _ => return Err("a loop is not closed".into()),
        }
        let undefined = self.values.iter().position(Option::is_none);
        if let Some(v) = undefined {
            return Err(format!("`v{v}` is not defined, but values after it are"));
        }
        self.kernel.values = self.values.into_iter().flatten().collect();
        Ok(self.kernel)
    }

    fn here(&mut self) -> Parsed<&mut Loop> {
        self.open.last_mut().ok_or_else(|| "no loop is open".into())
    }

    fn line(&mut self, line: &str) -> Parsed<()> {
        if line == "}" {
            let done = if self.open.len() > 1 { self.open.pop() } else { None };
            let done = done.ok_or("`}` closes no loop")?;
            self.here()?.body.push(Stmt::Loop(done));
            return Ok(());
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut text = Text { rest };
        match word {
            "kernel" => {
                self.kernel.name = rest.trim().into();
                Ok(())
            }
            "in" | "out" | "inout" | "local" => self.buffer(word, rest),
            "parallel" | "vector" | "for" => self.header(Text { rest: line }),
            "reduce" => self.reduce(&mut text),
            "carry" => self.carry(&mut text),
            _ => self.statement(line),
        }
    }

    /// `in x: f32[4, 8]`
    fn buffer(&mut self, word: &str, rest: &str) -> Parsed<()> {
        let roles = [Role::In, Role::Out, Role::InOut, Role::Local];
        let found = roles.into_iter().find(|&r| role(r) == word);
        let (name, ty) = rest.split_once(": ").ok_or("expected `name: type`")?;
        let (ty, streams) = ty.strip_suffix(" streams").map_or((ty, false), |t| (t, true));
        let wrong = || format!("`{ty}` is not a type like `f32[2, 3]`");
        let (dtype, dims) = ty.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or_else(wrong)?;
        let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
        let shape: Option<Vec<usize>> = dims.map(|d| d.parse().ok()).collect();
        self.kernel.buffers.push(Buffer {
            name: name.split('#').next().unwrap_or_default().into(),
            dtype: DType::from_short(dtype).ok_or_else(wrong)?,
            shape: shape.ok_or_else(wrong)?,
            role: found.unwrap_or(Role::In),
            streams,
        });
        Ok(())
    }

    /// `parallel for i0, i1 in 4, 8 {`
    fn header(&mut self, mut text: Text) -> Parsed<()> {
        let (parallel, vector) = (text.eat("parallel "), text.eat("vector "));
        text.expect("for")?;
        let vars = text.list(Text::var)?;
        text.expect("in")?;
        let extents: Vec<usize> = text.list(|t| t.number())?;
        text.expect("{")?;
        if vars.len() != extents.len() {
            return Err("a loop has an extent for each variable".into());
        }
        for (v, extent) in vars.iter().zip(extents) {
            let at = v.0 as usize;
            if self.kernel.extents.len() <= at {
                self.kernel.extents.resize(at + 1, 0);
            }
            self.kernel.extents[at] = extent;
        }
        self.begin(vars, parallel, vector);
        Ok(())
    }

    /// `reduce max v1 from v0 to v2: f32`
    fn reduce(&mut self, text: &mut Text) -> Parsed<()> {
        use ReduceOp::*;
        let word = text.word();
        let op = [Add, Mul, Max, Min, And, Or, ArgMax, ArgMin]
            .into_iter()
            .find(|&op| reduce_op(op) == word);
        let op = op.ok_or_else(|| format!("`{word}` is not a reduction"))?;
        let value = text.list(Text::value)?;
        text.expect("from")?;
        let init = text.list(Text::value)?;
        text.expect("to")?;
        let out = text.list(|t| self.declare(t))?;
        if [value.len(), init.len(), out.len()] != [op.arity(); 3] {
            return Err(format!("`{word}` takes {} values", op.arity()));
        }
        self.here()?.reduces.push(Reduce { op, init, value, out });
        text.end()
    }

    /// `carry v5: f32 from v3 by v7 to v8: f32`
    fn carry(&mut self, text: &mut Text) -> Parsed<()> {
        let phi = self.declare(text)?;
        text.expect("from")?;
        let init = text.value()?;
        text.expect("by")?;
        let next = text.value()?;
        text.expect("to")?;
        let out = self.declare(text)?;
        self.here()?.carries.push(Carry { init, phi, next, out });
        text.end()
    }

    /// `v5: f32 @node`
    fn declare(&mut self, text: &mut Text) -> Parsed<Value> {
        let v = text.value()?;
        text.expect(":")?;
        let word = text.word();
        let dtype = DType::from_short(word).ok_or_else(|| format!("`{word}` is not a dtype"))?;
        let at = v.0 as usize;
        if self.values.len() <= at {
            self.values.resize(at + 1, None);
            self.kernel.nodes.resize(at + 1, None);
        }
        if self.values[at].replace(dtype).is_some() {
            return Err(format!("`v{at}` is defined twice"));
        }
        if text.eat("@") {
            self.kernel.nodes[at] = Some(Arc::from(text.until(&[' ', ','])));
        }
        Ok(v)
    }

    fn statement(&mut self, line: &str) -> Parsed<()> {
        let mut text = Text { rest: line };
        if let Some(b) = self.named(&mut text) {
            let at = text.index()?;
            text.expect("]")?;
            text.expect("=")?;
            let v = text.value()?;
            self.here()?.body.push(Stmt::Store(b, at, v));
            return text.end();
        }
        let v = self.declare(&mut text)?;
        text.expect("=")?;
        let inst = self.inst(&mut text)?;
        if text.eat("share") {
            self.kernel.shares.push(v);
        }
        self.here()?.body.push(Stmt::Let(v, inst));
        text.end()
    }

    /// The buffer of `x[`.
    fn named(&self, text: &mut Text) -> Option<Buf> {
        let (name, rest) = text.rest.trim_start().split_once('[')?;
        let numbered = name.split_once('#').and_then(|(_, n)| n.parse().ok());
        let position = self.kernel.buffers.iter().position(|b| b.name == name);
        let at = numbered.filter(|&n| n < self.kernel.buffers.len()).or(position)?;
        text.rest = rest;
        Some(Buf(at as u32))
    }

    fn inst(&self, text: &mut Text) -> Parsed<Inst> {
        if text.eat("index ") {
            let at = text.index()?;
            return match at.dynamic.is_empty() {
                true => Ok(Inst::Index(at.affine)),
                false => Err("an index of loop variables only".into()),
            };
        }
        if let Some(b) = self.named(text) {
            let at = text.index()?;
            text.expect("]")?;
            let guard = if text.eat("where") { Some(text.guard()?) } else { None };
            return Ok(Inst::Load(b, at, guard));
        }
        let head = text.word();
        if DType::from_short(head).is_some() {
            return text.constant(head).map(|s| Inst::Op(ScalarOp::Const(s)));
        }
        text.expect("(")?;
        if head == "bounded" {
            let v = text.value()?;
            text.expect(",")?;
            let size = text.number()?;
            text.expect(",")?;
            let bound = match text.word() {
                "check" => Bound::Check,
                "wrap" => Bound::Wrap,
                "clamp" => Bound::Clamp,
                word => return Err(format!("`{word}` is not a bound (check, wrap, clamp)")),
            };
            text.expect(")")?;
            return Ok(Inst::Bounded(v, size, bound));
        }
        let args = text.list(Text::value)?;
        text.expect(")")?;
        let op = ScalarOp::from_mnemonic(head, &args).map(Inst::Op);
        op.ok_or_else(|| format!("`{head}` does not take these {} operands", args.len()))
    }
}

/// What is left of a line.
struct Text<'a> {
    rest: &'a str,
}

impl<'a> Text<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        rest.map(|r| self.rest = r).is_some()
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(format!("expected `{token}` before `{}`", self.rest.trim())),
        }
    }

    fn end(&self) -> Parsed<()> {
        match self.rest.trim() {
            "" => Ok(()),
            more => Err(format!("`{more}` after the statement")),
        }
    }

    fn until(&mut self, ends: &[char]) -> &'a str {
        self.rest = self.rest.trim_start();
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let (word, rest) = self
            .rest
            .split_at(self.rest.find(|c| !part(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut out = vec![item(self)?];
        while self.eat(",") {
            out.push(item(self)?);
        }
        Ok(out)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        let word = self.word();
        word.parse().map_err(|_| format!("`{word}` is not a number here"))
    }

    /// `v12`, `i3`
    fn numbered(&mut self, prefix: char) -> Parsed<u32> {
        let word = self.word();
        let number = word
            .strip_prefix(prefix)
            .and_then(|n| n.parse().ok())
            .filter(|&n| n < MOST);
        number.ok_or_else(|| format!("expected `{prefix}` with a number and not `{word}`"))
    }

    fn value(&mut self) -> Parsed<Value> {
        self.numbered('v').map(Value)
    }

    fn var(&mut self) -> Parsed<Var> {
        self.numbered('i').map(Var)
    }

    fn constant(&mut self, dtype: &str) -> Parsed<Scalar> {
        let text = format!("{dtype}{})", self.until(&[')']));
        self.expect(")")?;
        parse_constant(&text).ok_or_else(|| format!("`{text}` is not a constant"))
    }

    fn signed(&mut self) -> Parsed<i64> {
        let minus = self.eat("-");
        let number: i128 = self.number()?;
        let number = if minus { -number } else { number };
        i64::try_from(number).map_err(|_| format!("{number} does not fit in 64 bits"))
    }

    /// `8 * i0 + i1 - 3 + 32 * v2`
    fn index(&mut self) -> Parsed<Index> {
        let mut out = Index::default();
        let mut sign = if self.eat("-") { -1 } else { 1 };
        loop {
            sign = if self.eat("-") { -sign } else { sign };
            let first = self.rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
            let number: i128 = if first { self.number()? } else { 1 };
            let number = i64::try_from(sign * number).map_err(|_| format!("{number} does not fit in 64 bits"))?;
            if first && !self.eat("*") {
                out.affine = out.affine + Affine::from(number);
            } else if self.rest.trim_start().starts_with('v') {
                out.dynamic.push((self.value()?, number));
            } else {
                out.affine = out.affine + self.var()? * number;
            }
            sign = match (self.eat("+"), self.eat("-")) {
                (true, false) => 1,
                (false, true) => -1,
                _ => return Ok(out),
            };
        }
    }

    /// `0 <= i0 - 1 < 8 and 0 <= i1 < 8 else f32(0.0)`
    fn guard(&mut self) -> Parsed<Guard> {
        let mut conds = vec![];
        while !self.eat("else") {
            if !conds.is_empty() {
                self.expect("and")?;
            }
            let lo = self.signed()?;
            self.expect("<=")?;
            let expr = self.index()?.affine;
            self.expect("<")?;
            conds.push(Cond {
                expr,
                lo,
                hi: self.signed()?,
            });
        }
        let dtype = self.word();
        let other = self.constant(dtype)?;
        Ok(Guard { conds, other })
    }
}
