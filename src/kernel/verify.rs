//! The verifier: proves that a kernel is valid before it is compiled. A failure is a bug in the stage that built the
//! kernel, never an error of the user.

use super::*;
use crate::scalar::Unary;
use crate::tensor::byte_len;
use rustc_hash::FxHashMap;
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

mod access;
mod loops;
mod parallel;

/// Checks a kernel:
///
/// * buffers have sizes in range and dtypes that kernels can compute with;
/// * values are defined once, before their uses, and in scope;
/// * operands have the dtypes that each operation takes;
/// * loops nest as their kinds allow;
/// * every access, also a guarded or dynamic one, lies within its buffer;
/// * different iterations of a parallel or vector loop do not write to the same element, nor do different parallel loops,
///   which do not read each other's results either.
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
    parallel::check_ranges(k)?;
    let mut v = Verifier {
        k,
        defined: vec![ScopeState::Unseen; k.values.len()],
        vars: vec![ScopeState::Unseen; k.extents.len()],
        sizes: FxHashMap::default(),
        open: vec![],
    };
    v.check_body(&k.body)?;
    parallel::check_independence(k)
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
    sizes: FxHashMap<Value, usize>,
    open: Vec<OpenLoop<'k>>,
}

impl<'k> Verifier<'k> {
    fn check_body(&mut self, body: &'k [Stmt]) -> Checked {
        let mut defined_here = vec![];
        for s in body {
            match s {
                Stmt::Let(v, i) => {
                    let d = self.check_inst(i)?;
                    ensure!(
                        self.k.values.get(v.0 as usize) == Some(&d),
                        "v{} is not declared as {d}",
                        v.0
                    );
                    self.define_value(*v, &mut defined_here)?;
                    if let Inst::Bounded(_, n, _) = i {
                        self.sizes.insert(*v, *n);
                    }
                }
                Stmt::Store(b, i, v) => self.check_store(*b, i, *v)?,
                Stmt::Loop(l) => self.check_loop(l, &mut defined_here)?,
            }
        }
        for v in defined_here {
            self.defined[v.0 as usize] = ScopeState::Gone;
        }
        Ok(())
    }

    fn define_value(&mut self, v: Value, defined_here: &mut Vec<Value>) -> Checked {
        let state = self.defined.get_mut(v.0 as usize).ok_or("unknown value")?;
        ensure!(*state == ScopeState::Unseen, "v{} is defined twice", v.0);
        *state = ScopeState::Live;
        defined_here.push(v);
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
            Inst::Index(a) => self.check_index(a),
            Inst::Load(b, i, g) => self.check_load(*b, i, g.as_ref()),
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

    fn check_index(&self, a: &Affine) -> Checked<DType> {
        self.check_affine(a)?;
        let (lo, hi) = a.value_range(|v| self.k.extent(v).max(1));
        ensure!(
            lo >= i64::MIN as i128 && hi <= i64::MAX as i128,
            "index {a} does not fit in 64 bits"
        );
        Ok(DType::I64)
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
}

fn check_unary(op: Unary, d: DType) -> Checked<DType> {
    use Unary::*;
    let float = matches!(d, DType::F32 | DType::F64);
    let half = d.is_half();
    let ok = match op {
        Not => d == DType::B8,
        BitNot => d.is_int() || d == DType::B8,
        Neg | Abs if half => true,
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
        Copysign if d.is_half() => true,
        Div | Atan2 | Copysign | Hypot | Nextafter | Zeta => float,
    };
    ensure!(ok, "{op:?} does not support {d}");
    Ok(d)
}

#[cfg(test)]
mod tests;
