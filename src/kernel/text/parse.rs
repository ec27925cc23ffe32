//! Parses the text form of kernels.

use super::cursor::LineCursor;
use super::print::{reduce_op_name, role_name};
use crate::diag::words::count;
use crate::kernel::{
    Buf, BufferRole, Inst, Kernel, KernelBuffer, Loop, LoopCarry, Reduce, ReduceOp, Stmt, Value, Var, verify,
};
use crate::scalar::ScalarOp;
use crate::types::DType;
use std::fmt;
use std::sync::Arc;

/// An error in the text of a kernel, or of an IR that is read line by line like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrTextError {
    /// The line number, from 1; 0 for errors that the verifier finds.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for IrTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for IrTextError {}

pub(super) type ParseResult<T> = Result<T, String>;

impl Kernel {
    /// Parses what `Display` prints, and verifies the kernel.
    pub fn parse(text: &str) -> Result<Kernel, IrTextError> {
        let mut r = KernelParser::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if !line.is_empty() {
                r.parse_line(line)
                    .map_err(|message| IrTextError { line: i + 1, message })?;
            }
        }
        let fault = |message: String| IrTextError { line: 0, message };
        let kernel = r.finish().map_err(fault)?;
        verify(&kernel).map_err(|e| fault(e.to_string()))?;
        Ok(kernel)
    }
}

struct KernelParser {
    kernel: Kernel,
    /// The dtype of each value defined so far.
    values: Vec<Option<DType>>,
    /// The open loops. The first entry is the kernel's body.
    open: Vec<Loop>,
}

impl KernelParser {
    fn new() -> KernelParser {
        let mut r = KernelParser {
            kernel: Kernel {
                name: String::new(),
                buffers: vec![],
                extents: vec![],
                values: vec![],
                body: vec![],
                shares: vec![],
                flushing: vec![],
                nodes: vec![],
            },
            values: vec![],
            open: vec![],
        };
        r.begin_loop(vec![], false, false);
        r
    }

    fn begin_loop(&mut self, vars: Vec<Var>, parallel: bool, vector: bool) {
        self.open.push(Loop {
            vars,
            parallel,
            vector,
            reduces: vec![],
            carries: vec![],
            body: vec![],
        });
    }

    fn finish(mut self) -> ParseResult<Kernel> {
        match (self.open.pop(), self.open.is_empty()) {
            (Some(body), true) => self.kernel.body = body.body,
            _ => return Err("missing `}` of a loop".into()),
        }
        let undefined = self.values.iter().position(Option::is_none);
        if let Some(v) = undefined {
            return Err(format!("`v{v}` is missing: value numbers must be consecutive"));
        }
        self.kernel.values = self.values.into_iter().flatten().collect();
        Ok(self.kernel)
    }

    fn current_loop(&mut self) -> ParseResult<&mut Loop> {
        self.open
            .last_mut()
            .ok_or_else(|| "unexpected `}` outside a loop".into())
    }

    fn parse_line(&mut self, line: &str) -> ParseResult<()> {
        if line == "}" {
            let done = if self.open.len() > 1 { self.open.pop() } else { None };
            let done = done.ok_or("unmatched `}`")?;
            self.current_loop()?.body.push(Stmt::Loop(done));
            return Ok(());
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut text = LineCursor { rest };
        match word {
            "kernel" => {
                self.kernel.name = rest.trim().into();
                Ok(())
            }
            "in" | "out" | "inout" | "local" => self.parse_buffer(word, rest),
            "parallel" | "vector" | "for" => self.parse_loop_header(LineCursor { rest: line }),
            "reduce" => self.parse_reduce(&mut text),
            "carry" => self.parse_carry(&mut text),
            _ => self.parse_statement(line),
        }
    }

    /// `in x: f32[4, 8]`
    fn parse_buffer(&mut self, word: &str, rest: &str) -> ParseResult<()> {
        let roles = [BufferRole::In, BufferRole::Out, BufferRole::InOut, BufferRole::Local];
        let role = roles.into_iter().find(|&r| role_name(r) == word);
        let (name, ty) = rest.split_once(": ").ok_or("expected `name: type`")?;
        let (ty, streams) = ty.strip_suffix(" streams").map_or((ty, false), |t| (t, true));
        let wrong = || format!("`{ty}` is not a type like `f32[2, 3]`");
        let (dtype, dims) = ty.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or_else(wrong)?;
        let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
        let shape: Option<Vec<usize>> = dims.map(|d| d.parse().ok()).collect();
        self.kernel.buffers.push(KernelBuffer {
            name: name.split('#').next().unwrap_or_default().into(),
            dtype: DType::from_short(dtype).ok_or_else(wrong)?,
            shape: shape.ok_or_else(wrong)?,
            role: role.unwrap_or(BufferRole::In),
            streams,
        });
        Ok(())
    }

    /// `parallel for i0, i1 in 4, 8 {`
    fn parse_loop_header(&mut self, mut text: LineCursor) -> ParseResult<()> {
        let (parallel, vector) = (text.eat("parallel "), text.eat("vector "));
        text.expect("for")?;
        let vars = text.parse_list(LineCursor::parse_var)?;
        text.expect("in")?;
        let extents: Vec<usize> = text.parse_list(|t| t.parse_number())?;
        text.expect("{")?;
        if vars.len() != extents.len() {
            return Err("the number of extents does not match the number of loop variables".into());
        }
        for (v, extent) in vars.iter().zip(extents) {
            let index = v.0 as usize;
            if self.kernel.extents.len() <= index {
                self.kernel.extents.resize(index + 1, 0);
            }
            self.kernel.extents[index] = extent;
        }
        self.begin_loop(vars, parallel, vector);
        Ok(())
    }

    /// `reduce max v1 from v0 to v2: f32`
    fn parse_reduce(&mut self, text: &mut LineCursor) -> ParseResult<()> {
        use ReduceOp::*;
        let word = text.take_word();
        let op = [Add, Mul, Max, Min, And, Or, ArgMax, ArgMin]
            .into_iter()
            .find(|&op| reduce_op_name(op) == word);
        let op = op.ok_or_else(|| format!("`{word}` is not a reduction"))?;
        let value = text.parse_list(LineCursor::parse_value)?;
        text.expect("from")?;
        let init = text.parse_list(LineCursor::parse_value)?;
        text.expect("to")?;
        let out = text.parse_list(|t| self.parse_declaration(t))?;
        if [value.len(), init.len(), out.len()] != [op.arity(); 3] {
            return Err(format!("`{word}` takes {} values", op.arity()));
        }
        self.current_loop()?.reduces.push(Reduce { op, init, value, out });
        text.expect_end()
    }

    /// `carry v5: f32 from v3 by v7 to v8: f32`
    fn parse_carry(&mut self, text: &mut LineCursor) -> ParseResult<()> {
        let phi = self.parse_declaration(text)?;
        text.expect("from")?;
        let init = text.parse_value()?;
        text.expect("by")?;
        let next = text.parse_value()?;
        text.expect("to")?;
        let out = self.parse_declaration(text)?;
        self.current_loop()?.carries.push(LoopCarry { init, phi, next, out });
        text.expect_end()
    }

    /// `v5: f32 @node`
    fn parse_declaration(&mut self, text: &mut LineCursor) -> ParseResult<Value> {
        let v = text.parse_value()?;
        text.expect(":")?;
        let word = text.take_word();
        let dtype = DType::from_short(word).ok_or_else(|| format!("`{word}` is not a dtype"))?;
        let number = v.0 as usize;
        if self.values.len() <= number {
            self.values.resize(number + 1, None);
            self.kernel.nodes.resize(number + 1, None);
        }
        if self.values[number].replace(dtype).is_some() {
            return Err(format!("`v{number}` is defined twice"));
        }
        if text.eat("@") {
            self.kernel.nodes[number] = Some(Arc::from(text.take_until(&[' ', ','])));
        }
        Ok(v)
    }

    fn parse_statement(&mut self, line: &str) -> ParseResult<()> {
        let mut text = LineCursor { rest: line };
        if let Some(b) = self.parse_buffer_name(&mut text) {
            let index = text.parse_index()?;
            text.expect("]")?;
            text.expect("=")?;
            let v = text.parse_value()?;
            self.current_loop()?.body.push(Stmt::Store(b, index, v));
            return text.expect_end();
        }
        let v = self.parse_declaration(&mut text)?;
        text.expect("=")?;
        let inst = self.parse_inst(&mut text)?;
        if text.eat("share") {
            self.kernel.shares.push(v);
        }
        if text.eat("flush") {
            self.kernel.flushing.push(v);
        }
        self.current_loop()?.body.push(Stmt::Let(v, inst));
        text.expect_end()
    }

    /// The buffer in `x[`.
    fn parse_buffer_name(&self, text: &mut LineCursor) -> Option<Buf> {
        let (name, rest) = text.rest.trim_start().split_once('[')?;
        let numbered = name.split_once('#').and_then(|(_, n)| n.parse().ok());
        let position = self.kernel.buffers.iter().position(|b| b.name == name);
        let index = numbered.filter(|&n| n < self.kernel.buffers.len()).or(position)?;
        text.rest = rest;
        Some(Buf(index as u32))
    }

    fn parse_inst(&self, text: &mut LineCursor) -> ParseResult<Inst> {
        if text.eat("index ") {
            let index = text.parse_index()?;
            return match index.dynamic.is_empty() {
                true => Ok(Inst::Index(index.affine)),
                false => Err("this index may contain only loop variables".into()),
            };
        }
        if let Some(b) = self.parse_buffer_name(text) {
            let index = text.parse_index()?;
            text.expect("]")?;
            let guard = if text.eat("where") {
                Some(text.parse_guard()?)
            } else {
                None
            };
            return Ok(Inst::Load(b, index, guard));
        }
        let head = text.take_word();
        if DType::from_short(head).is_some() {
            return text.parse_scalar(head).map(|s| Inst::Op(ScalarOp::Const(s)));
        }
        text.expect("(")?;
        if head == "bounded" {
            return text.parse_bounded();
        }
        let args = text.parse_list(LineCursor::parse_value)?;
        text.expect(")")?;
        let op = ScalarOp::from_mnemonic(head, &args).map(Inst::Op);
        op.ok_or_else(|| format!("`{head}` does not accept {}", count(args.len(), "operand")))
    }
}
