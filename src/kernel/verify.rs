//! The verifier: proves that a kernel is valid before it is compiled. A failure is a bug in the stage that built the
//! kernel, never an error of the user.

use super::*;
use crate::scalar::Unary;
use crate::tensor::byte_len;
use std::collections::HashMap;
use std::fmt;

/// The property that does not hold, and the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The kernel.
    pub kernel: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: {}", self.kernel, self.message)
    }
}

impl std::error::Error for VerifyError {}

type Checked<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond { return Err(format!($($message)+)); }
    };
}

/// Checks a kernel:
///
/// * buffers have sizes in range and dtypes that kernels can compute with;
/// * values are defined once, before their uses, and in scope;
/// * operands have the dtypes that each operation takes;
/// * loops nest as their kinds allow;
/// * every access, also a guarded or dynamic one, lies within its buffer;
/// * different iterations of a parallel or vector loop do not write to the same element.
pub fn verify(k: &Kernel) -> Result<(), VerifyError> {
    check_kernel(k).map_err(|message| VerifyError {
        kernel: k.name.clone(),
        message,
    })
}

fn check_kernel(k: &Kernel) -> Checked {
    for b in &k.buffers {
        ensure!(
            b.dtype.is_computed(),
            "buffer {} is out of range of {}",
            b.name,
            b.dtype
        );
        ensure!(byte_len(b.dtype, &b.shape).is_some(), "buffer {} is too large", b.name);
    }
    let local = k.buffers.iter().filter(|b| b.role == BufferRole::Local);
    let scratch: usize = local.map(|b| b.numel() * b.dtype.size()).fold(0, usize::saturating_add);
    ensure!(
        scratch <= MAX_SCRATCH,
        "local buffers need {scratch} bytes, more than the limit of {MAX_SCRATCH}"
    );
    if let Some(l) = k.parallel_loop() {
        let total = l.vars.iter().try_fold(1usize, |a, &v| {
            k.extents.get(v.0 as usize).and_then(|&e| a.checked_mul(e.max(1)))
        });
        ensure!(
            total.is_some_and(|t| t <= i64::MAX as usize),
            "the parallel range is too large"
        );
        let before = &k.body[..k.body.len() - 1];
        ensure!(
            before
                .iter()
                .all(|s| matches!(s, Stmt::Let(_, Inst::Op(ScalarOp::Const(_))))),
            "only constants may come before a parallel loop"
        );
    }
    let mut v = Verifier {
        k,
        defined: vec![ScopeState::Unseen; k.values.len()],
        vars: vec![ScopeState::Unseen; k.extents.len()],
        sizes: HashMap::new(),
        open: vec![],
    };
    v.check_body(&k.body)
}

/// The largest amount of scratch memory that a kernel may use, in bytes.
const MAX_SCRATCH: usize = 1 << 30;

#[derive(Clone, Copy, PartialEq)]
enum ScopeState {
    Unseen,
    Live,
    Gone,
}

struct OpenLoop<'k> {
    l: &'k Loop,
}

struct Verifier<'k> {
    k: &'k Kernel,
    defined: Vec<ScopeState>,
    vars: Vec<ScopeState>,
    /// The sizes of bounded values.
    sizes: HashMap<Value, usize>,
    open: Vec<OpenLoop<'k>>,
}

impl<'k> Verifier<'k> {
    fn check_body(&mut self, body: &'k [Stmt]) -> Checked {
        let mut here = vec![];
        for s in body {
            match s {
                Stmt::Let(v, i) => {
                    let d = self.check_inst(i)?;
                    ensure!(
                        self.k.values.get(v.0 as usize) == Some(&d),
                        "v{} is not declared as {d}",
                        v.0
                    );
                    self.define_value(*v, &mut here)?;
                    if let Inst::Bounded(_, n, _) = i {
                        self.sizes.insert(*v, *n);
                    }
                }
                Stmt::Store(b, i, v) => self.check_store(*b, i, *v)?,
                Stmt::Loop(l) => self.check_loop(l, &mut here)?,
            }
        }
        for v in here {
            self.defined[v.0 as usize] = ScopeState::Gone;
        }
        Ok(())
    }

    fn define_value(&mut self, v: Value, here: &mut Vec<Value>) -> Checked {
        let state = self.defined.get_mut(v.0 as usize).ok_or("unknown value")?;
        ensure!(*state == ScopeState::Unseen, "v{} is defined twice", v.0);
        *state = ScopeState::Live;
        here.push(v);
        Ok(())
    }

    fn check_used(&self, v: Value) -> Checked<DType> {
        ensure!(
            self.defined.get(v.0 as usize) == Some(&ScopeState::Live),
            "v{} is not defined here",
            v.0
        );
        Ok(self.k.dtype(v))
    }

    fn check_same_dtype(&self, a: Value, b: Value) -> Checked<DType> {
        let (x, y) = (self.check_used(a)?, self.check_used(b)?);
        ensure!(x == y, "v{} is {x} but v{} is {y}", a.0, b.0);
        Ok(x)
    }

    fn check_inst(&self, i: &Inst) -> Checked<DType> {
        match i {
            Inst::Op(ScalarOp::Const(s)) => {
                ensure!(s.dtype().is_computed(), "constants of {} are not supported", s.dtype());
                Ok(s.dtype())
            }
            Inst::Index(a) => {
                self.check_affine(a)?;
                let (lo, hi) = a.value_range(|v| self.k.extent(v).max(1));
                ensure!(
                    lo >= i64::MIN as i128 && hi <= i64::MAX as i128,
                    "index {a} does not fit in 64 bits"
                );
                Ok(DType::I64)
            }
            Inst::Load(b, i, g) => {
                let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
                if let Some(g) = g {
                    ensure!(
                        g.other.dtype() == buffer.dtype,
                        "the guard's value does not have dtype {}",
                        buffer.dtype
                    );
                    g.conds.iter().try_for_each(|c| self.check_affine(&c.expr))?;
                }
                self.check_access(*b, i, g.as_ref().map_or(&[], |g| &g.conds))?;
                Ok(buffer.dtype)
            }
            Inst::Bounded(v, n, _) => {
                ensure!(self.check_used(*v)? == DType::I64, "a bounded index is not an i64");
                ensure!(*n <= i64::MAX as usize, "the bound is too large");
                Ok(DType::I64)
            }
            Inst::Op(ScalarOp::Unary(op, x)) => check_unary(*op, self.check_used(*x)?),
            Inst::Op(ScalarOp::Binary(op, x, y)) => check_binary(*op, self.check_same_dtype(*x, *y)?),
            Inst::Op(ScalarOp::Compare(op, x, y)) => {
                let d = self.check_same_dtype(*x, *y)?;
                ensure!(d.compute_dtype() == d, "{op:?} does not support {d}");
                Ok(DType::B8)
            }
            Inst::Op(ScalarOp::Fma(x, y, z)) => {
                let d = self.check_same_dtype(*x, *y)?;
                self.check_same_dtype(*y, *z)?;
                ensure!(matches!(d, DType::F32 | DType::F64), "Fma does not support {d}");
                Ok(d)
            }
            Inst::Op(ScalarOp::Select(c, x, y)) => {
                ensure!(self.check_used(*c)? == DType::B8, "the condition v{} is not a b8", c.0);
                self.check_same_dtype(*x, *y)
            }
            Inst::Op(ScalarOp::Cast(d, x)) => {
                self.check_used(*x)?;
                ensure!(d.is_computed(), "casts to {d} are not supported");
                Ok(*d)
            }
        }
    }

    fn check_affine(&self, a: &Affine) -> Checked {
        for (v, _) in a.terms() {
            ensure!(
                self.vars.get(v.0 as usize) == Some(&ScopeState::Live),
                "i{} is not a loop variable here",
                v.0
            );
        }
        Ok(())
    }

    /// Whether an enclosing loop never runs, so that nothing needs to be proven.
    fn is_unreachable(&self) -> bool {
        self.open
            .iter()
            .any(|o| o.l.vars.iter().any(|&v| self.k.extent(v) == 0))
    }

    fn check_access(&self, b: Buf, i: &Index, conds: &[Cond]) -> Checked {
        let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
        self.check_affine(&i.affine)?;
        let mut dynamic = (0i128, 0i128);
        let mut possible = true;
        for &(v, s) in &i.dynamic {
            self.check_used(v)?;
            let n = *self.sizes.get(&v).ok_or(format!("the index v{} is not bounded", v.0))?;
            // A bounded value is at least 0 even for an empty dimension, where index 0 would be out of bounds.
            possible &= n > 0;
            let span = s as i128 * (n.max(1) as i128 - 1);
            dynamic = (dynamic.0 + span.min(0), dynamic.1 + span.max(0));
        }
        if self.is_unreachable() {
            return Ok(());
        }
        ensure!(possible, "the access to {} indexes an empty dimension", buffer.name);
        let Some((lo, hi)) = guarded_range(&i.affine, conds, |v| self.k.extent(v)) else {
            return Ok(());
        };
        let (lo, hi) = (lo + dynamic.0, hi + dynamic.1);
        let n = buffer.numel();
        ensure!(
            lo >= 0 && hi < n as i128,
            "{}[{}] reaches {lo}..={hi} of {n} elements",
            buffer.name,
            i.affine
        );
        Ok(())
    }

    fn check_store(&self, b: Buf, i: &Index, v: Value) -> Checked {
        let buffer = self.k.buffers.get(b.0 as usize).ok_or("unknown buffer")?;
        ensure!(
            buffer.role != BufferRole::In,
            "input {} cannot be stored to",
            buffer.name
        );
        let d = self.check_used(v)?;
        ensure!(
            d == buffer.dtype,
            "a value of {d} cannot be stored to {} of {}",
            buffer.name,
            buffer.dtype
        );
        self.check_access(b, i, &[])?;
        if self.is_unreachable() {
            return Ok(());
        }
        for o in &self.open {
            // Local buffers belong to one thread, so parallel iterations do not share them.
            if o.l.vector || (o.l.parallel && buffer.role != BufferRole::Local) {
                ensure!(
                    self.are_disjoint(i, &o.l.vars),
                    "iterations of i{} may write to the same element of {}",
                    o.l.vars[0].0,
                    buffer.name
                );
            }
        }
        Ok(())
    }

    /// Whether different values of `vars` are certain to give different elements. The test: each stride is larger than
    /// what all smaller strides can add up to.
    fn are_disjoint(&self, i: &Index, vars: &[Var]) -> bool {
        let missing = |&v: &Var| self.k.extent(v) > 1 && i.affine.stride(v) == 0;
        if vars.iter().any(missing) {
            return false;
        }
        let affine = i.affine.terms().iter().map(|&(v, s)| (s, self.k.extent(v)));
        let dynamic = i
            .dynamic
            .iter()
            .map(|&(v, s)| (s, self.sizes.get(&v).copied().unwrap_or(usize::MAX)));
        let mut terms: Vec<(u128, u128)> = affine
            .chain(dynamic)
            .filter(|t| t.1 > 1)
            .map(|(s, e)| (s.unsigned_abs() as u128, e as u128))
            .collect();
        terms.sort();
        let mut reach = 0u128;
        terms.into_iter().all(|(s, e)| {
            let free = s > reach;
            reach += s * (e - 1);
            free
        })
    }

    fn check_loop(&mut self, l: &'k Loop, here: &mut Vec<Value>) -> Checked {
        self.check_loop_kind(l)?;
        for &v in &l.vars {
            let state = self.vars.get_mut(v.0 as usize).ok_or("unknown loop variable")?;
            ensure!(
                *state == ScopeState::Unseen,
                "i{} is used as the variable of two loops",
                v.0
            );
            *state = ScopeState::Live;
        }
        for init in l
            .reduces
            .iter()
            .flat_map(|r| &r.init)
            .chain(l.carries.iter().map(|c| &c.init))
        {
            self.check_used(*init)?;
        }
        let mut inner = vec![];
        for c in &l.carries {
            self.define_value(c.phi, &mut inner)?;
        }
        self.open.push(OpenLoop { l });
        self.check_loop_body(l)?;
        self.open.pop();
        for v in inner {
            self.defined[v.0 as usize] = ScopeState::Gone;
        }
        for &v in &l.vars {
            self.vars[v.0 as usize] = ScopeState::Gone;
        }
        for r in &l.reduces {
            for &v in &r.out {
                self.define_value(v, here)?;
            }
        }
        for c in &l.carries {
            self.define_value(c.out, here)?;
        }
        Ok(())
    }

    /// Checks the body and the values that the loop's results take from it, which are in scope only at the end of the
    /// body.
    fn check_loop_body(&mut self, l: &'k Loop) -> Checked {
        self.check_body(&l.body)?;
        let in_body = |v: &Value| {
            let outer = self.defined.get(v.0 as usize) == Some(&ScopeState::Live);
            let own = l.body.iter().any(|s| defines_value(s, *v)) || l.carries.iter().any(|c| c.phi == *v);
            (own || outer).then(|| self.k.dtype(*v))
        };
        for r in &l.reduces {
            let n = r.op.arity();
            ensure!(
                [r.init.len(), r.value.len(), r.out.len()] == [n; 3],
                "{:?} takes {n} values",
                r.op
            );
            for i in 0..n {
                let d = in_body(&r.value[i]).ok_or("the reduced value is not defined in the loop's body")?;
                ensure!(
                    d == self.k.dtype(r.init[i]) && Some(&d) == self.k.values.get(r.out[i].0 as usize),
                    "a reduction of {d} has an accumulator of another dtype"
                );
                ensure!(d.compute_dtype() == d, "reductions in {d} are not supported");
                ensure!(i == 0 || d == DType::I64, "the index of {:?} is not an i64", r.op);
            }
            if let Some(op) = r.op.as_binary() {
                check_binary(op, self.k.dtype(r.value[0]))?;
            }
        }
        for c in &l.carries {
            let d = in_body(&c.next).ok_or("the carried value is not defined in the loop's body")?;
            let same = [c.init, c.phi, c.out]
                .iter()
                .all(|v| self.k.values.get(v.0 as usize) == Some(&d));
            ensure!(same, "a carried value of {d} gets a value of another dtype");
        }
        Ok(())
    }

    fn check_loop_kind(&self, l: &Loop) -> Checked {
        ensure!(!l.vars.is_empty(), "a loop must have a variable");
        ensure!(
            l.vars.len() == 1 || l.parallel,
            "only parallel loops can have several variables"
        );
        ensure!(l.vars.len() == 1 || !l.vector, "a vector loop must have one variable");
        ensure!(
            !l.parallel || self.open.is_empty(),
            "a parallel loop cannot be nested in a loop"
        );
        if l.parallel {
            ensure!(
                self.k.parallel_loop().is_some_and(|p| std::ptr::eq(p, l)),
                "a parallel loop must be the last statement"
            );
            ensure!(
                l.reduces.is_empty() && l.carries.is_empty(),
                "a parallel loop cannot have results"
            );
        }
        if l.vector {
            ensure!(!self.open.iter().any(|o| o.l.vector), "vector loops cannot be nested");
            ensure!(l.carries.is_empty(), "a vector loop cannot carry values");
        }
        Ok(())
    }
}

fn defines_value(s: &Stmt, v: Value) -> bool {
    match s {
        Stmt::Let(w, _) => *w == v,
        Stmt::Store(..) => false,
        Stmt::Loop(l) => l.reduces.iter().any(|r| r.out.contains(&v)) || l.carries.iter().any(|c| c.out == v),
    }
}

/// The range of `index` where all `conds` hold, or `None` if they never hold together. Each condition's expression is
/// subtracted from the index as many times as the index contains it, and contributes the range that the condition
/// allows. The loop extents bound the rest.
fn guarded_range(index: &Affine, conds: &[Cond], extent: impl Fn(Var) -> usize + Copy) -> Option<(i128, i128)> {
    let extent = |v| extent(v).max(1);
    let mut rest = index.clone();
    let (mut lo, mut hi) = (0i128, 0i128);
    for c in conds {
        let (a, b) = c.expr.value_range(extent);
        let (a, b) = (a.max(c.lo as i128), b.min(c.hi as i128 - 1));
        if a > b {
            return None;
        }
        let Some(&(v, s)) = c.expr.terms().first() else {
            continue;
        };
        let times = rest.stride(v) / s;
        if times == 0 || rest.stride(v) % s != 0 {
            continue;
        }
        rest = rest - c.expr.clone() * times;
        let (x, y) = (times as i128 * a, times as i128 * b);
        lo += x.min(y);
        hi += x.max(y);
    }
    let (a, b) = rest.value_range(extent);
    Some((lo + a, hi + b))
}

fn check_unary(op: Unary, d: DType) -> Checked<DType> {
    use Unary::*;
    let float = matches!(d, DType::F32 | DType::F64);
    let ok = match op {
        Not => d == DType::B8,
        BitNot => d.is_int() || d == DType::B8,
        Neg | Floor | Ceil | Round | Trunc => float || d.is_int(),
        Abs | Sign | IsNan | IsInf | SignBit => float || d.is_int() || d == DType::B8,
        _ => float,
    };
    ensure!(ok, "{op:?} does not support {d}");
    Ok(match op {
        IsNan | IsInf | SignBit | Not => DType::B8,
        _ => d,
    })
}

fn check_binary(op: Binary, d: DType) -> Checked<DType> {
    use Binary::*;
    let float = matches!(d, DType::F32 | DType::F64);
    let ok = match op {
        Add | Mul | Max | Min | Fmax | Fmin | Pow => float || d.is_int() || d == DType::B8,
        Sub | FloorDiv | TruncDiv | Mod | Fmod => float || d.is_int(),
        And | Or | Xor => d.is_int() || d == DType::B8,
        Shl | Shr | Gcd => d.is_int(),
        Div | Atan2 | Copysign | Hypot | Nextafter | Zeta => float,
    };
    ensure!(ok, "{op:?} does not support {d}");
    Ok(d)
}

#[cfg(test)]
mod tests;
