//! Prints kernels as text.

use crate::kernel::{Buf, BufferRole, Index, Inst, Kernel, Loop, LoopCarry, Reduce, ReduceOp, Stmt, Value};
use crate::scalar::{ScalarOp, lower_case, text::print_constant};
use crate::types::TensorType;
use std::fmt::{self, Write};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {}", self.name)?;
        for (i, b) in self.buffers.iter().enumerate() {
            let ty = TensorType::with_fixed_shape(b.dtype, &b.shape);
            let streams = if b.streams { " streams" } else { "" };
            writeln!(
                f,
                "{} {}: {ty}{streams}",
                role_name(b.role),
                buffer_name(self, Buf(i as u32))
            )?;
        }
        print_block(f, self, &self.body, 0)
    }
}

pub(super) fn role_name(r: BufferRole) -> &'static str {
    match r {
        BufferRole::In => "in",
        BufferRole::Out => "out",
        BufferRole::InOut => "inout",
        BufferRole::Local => "local",
    }
}

/// A buffer's name. If an earlier buffer has the same name, the buffer's number is appended.
fn buffer_name(k: &Kernel, b: Buf) -> String {
    let name = &k.buffer(b).name;
    let taken = k.buffers.iter().take(b.0 as usize).any(|o| o.name == *name);
    match taken {
        true => format!("{name}#{}", b.0),
        false => name.clone(),
    }
}

fn print_block(f: &mut fmt::Formatter<'_>, k: &Kernel, body: &[Stmt], depth: usize) -> fmt::Result {
    let indent = "    ".repeat(depth);
    for s in body {
        match s {
            Stmt::Let(v, i) => {
                let mark = match (k.shares.contains(v), k.flushing.contains(v)) {
                    (true, _) => " share",
                    (_, true) => " flush",
                    _ => "",
                };
                writeln!(f, "{indent}{} = {}{mark}", print_declaration(k, *v), print_inst(k, i))?;
            }
            Stmt::Store(b, index, v) => writeln!(
                f,
                "{indent}{}[{}] = {}",
                buffer_name(k, *b),
                print_index(index),
                value_name(v)
            )?,
            Stmt::Loop(l) => print_loop(f, k, l, depth)?,
        }
    }
    Ok(())
}

fn print_loop(f: &mut fmt::Formatter<'_>, k: &Kernel, l: &Loop, depth: usize) -> fmt::Result {
    let indent = "    ".repeat(depth);
    let parallel = if l.parallel { "parallel " } else { "" };
    let vector = if l.vector { "vector " } else { "" };
    let vars: Vec<String> = l.vars.iter().map(|v| format!("i{}", v.0)).collect();
    let extents: Vec<String> = l.vars.iter().map(|&v| k.extent(v).to_string()).collect();
    let (vars, extents) = (vars.join(", "), extents.join(", "));
    writeln!(f, "{indent}{parallel}{vector}for {vars} in {extents} {{")?;
    for c in &l.carries {
        writeln!(f, "{indent}    {}", print_carry(k, c))?;
    }
    print_block(f, k, &l.body, depth + 1)?;
    for r in &l.reduces {
        writeln!(f, "{indent}    {}", print_reduce(k, r))?;
    }
    writeln!(f, "{indent}}}")
}

fn print_carry(k: &Kernel, c: &LoopCarry) -> String {
    let (phi, out) = (print_declaration(k, c.phi), print_declaration(k, c.out));
    format!(
        "carry {phi} from {} by {} to {out}",
        value_name(&c.init),
        value_name(&c.next)
    )
}

fn print_reduce(k: &Kernel, r: &Reduce) -> String {
    let list = |v: &[Value]| v.iter().map(value_name).collect::<Vec<_>>().join(", ");
    let out: Vec<String> = r.out.iter().map(|&v| print_declaration(k, v)).collect();
    let (values, init) = (list(&r.value), list(&r.init));
    format!(
        "reduce {} {values} from {init} to {}",
        reduce_op_name(r.op),
        out.join(", ")
    )
}

pub(super) fn reduce_op_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Add => "add",
        ReduceOp::Mul => "mul",
        ReduceOp::Max => "max",
        ReduceOp::Min => "min",
        ReduceOp::And => "and",
        ReduceOp::Or => "or",
        ReduceOp::ArgMax => "argmax",
        ReduceOp::ArgMin => "argmin",
    }
}

fn value_name(v: &Value) -> String {
    format!("v{}", v.0)
}

/// A value at its definition, with its dtype and the node that it was computed for.
fn print_declaration(k: &Kernel, v: Value) -> String {
    let node = k.node_of(v).map_or(String::new(), |n| format!(" @{n}"));
    format!("{}: {}{node}", value_name(&v), k.dtype(v))
}

fn print_index(index: &Index) -> String {
    let mut out = index.affine.to_string();
    for (v, stride) in &index.dynamic {
        let _ = write!(out, " + {stride} * v{}", v.0);
    }
    out
}

fn print_inst(k: &Kernel, i: &Inst) -> String {
    match i {
        Inst::Index(a) => format!("index {a}"),
        Inst::Load(b, index, guard) => {
            let mut out = format!("{}[{}]", buffer_name(k, *b), print_index(index));
            if let Some(g) = guard {
                let conds = g.conds.iter().map(|c| format!(" {} <= {} < {}", c.lo, c.expr, c.hi));
                let conds: Vec<String> = conds.collect();
                let _ = write!(out, " where{} else {}", conds.join(" and"), print_constant(g.other));
            }
            out
        }
        Inst::Bounded(v, size, bound) => format!("bounded({}, {size}, {})", value_name(v), lower_case(bound)),
        Inst::Op(ScalarOp::Const(s)) => print_constant(*s),
        Inst::Op(op) => {
            let args: Vec<String> = op.operands().map(|v| value_name(&v)).collect();
            format!("{}({})", op.mnemonic(), args.join(", "))
        }
    }
}
