//! The builder of kernels.

mod halves;
mod inline;
mod loops;
mod simplify;

use super::*;
use crate::scalar::{Binary, Compare, ScalarOp, Unary};
use rustc_hash::FxHashMap;

/// Builds a [`Kernel`] statement by statement. A loop's body is a closure that receives the builder and the loop
/// variables. The builder reuses equal values that are in scope instead of computing them twice. Buffers, variables and
/// values of another builder must not be passed in.
///
/// A pointwise map with a broadcast operand, `out[i, j] = relu(x[i, j] + b[j])`:
/// ```
/// use fxc::internals::kernel::{KernelBuilder, ReduceOp};
/// use fxc::internals::scalar::Binary;
/// use fxc::internals::tensor::Scalar;
/// use fxc::types::DType::F32;
///
/// let mut k = KernelBuilder::new("bias_relu");
/// let (x, b, out) = (k.input("x", F32, &[16, 64]), k.input("b", F32, &[64]), k.output("out", F32, &[16, 64]));
/// k.parallel(&[16], |k, i| {
///     k.vector(64, |k, j| {
///         let (xv, bv) = (k.load(x, i[0] * 64 + j), k.load(b, j));
///         let sum = k.binary(Binary::Add, xv, bv);
///         let zero = k.constant(Scalar::F32(0.0));
///         let r = k.binary(Binary::Max, sum, zero);
///         k.store(out, i[0] * 64 + j, r);
///     });
/// });
/// let kernel = k.finish().unwrap();
/// # fxc::internals::kernel::verify(&kernel).unwrap();
/// ```
///
/// Rows in phases, with a local buffer: a softmax over the last dimension:
/// ```
/// # use fxc::internals::kernel::{KernelBuilder, ReduceOp};
/// # use fxc::internals::scalar::{Binary, Unary};
/// # use fxc::internals::tensor::Scalar;
/// # use fxc::types::DType::F32;
/// let mut k = KernelBuilder::new("softmax");
/// let (x, out) = (k.input("x", F32, &[16, 64]), k.output("out", F32, &[16, 64]));
/// let row = k.local("row", F32, &[64]);
/// k.parallel(&[16], |k, i| {
///     let max = k.vector_reduce(ReduceOp::Max, F32, 64, |k, j| k.load(x, i[0] * 64 + j));
///     let sum = k.vector_reduce(ReduceOp::Add, F32, 64, |k, j| {
///         let v = k.load(x, i[0] * 64 + j);
///         let d = k.binary(Binary::Sub, v, max);
///         let e = k.unary(Unary::Exp, d);
///         k.store(row, j, e);
///         e
///     });
///     k.vector(64, |k, j| {
///         let e = k.load(row, j);
///         let r = k.binary(Binary::Div, e, sum);
///         k.store(out, i[0] * 64 + j, r);
///     });
/// });
/// # fxc::internals::kernel::verify(&k.finish().unwrap()).unwrap();
/// ```
///
/// A gather with a checked index (`embedding`), and a padded load:
/// ```
/// # use fxc::internals::kernel::*;
/// # use fxc::internals::tensor::Scalar;
/// # use fxc::types::DType::{F32, I64};
/// let mut k = KernelBuilder::new("embedding");
/// let (ids, table, out) = (k.input("ids", I64, &[10]), k.input("table", F32, &[100, 32]), k.output("out", F32, &[10, 32]));
/// k.parallel(&[10], |k, i| {
///     let id = k.load(ids, i[0]);
///     let id = k.bounded(id, 100, IndexBound::Check);
///     k.vector(32, |k, j| {
///         let v = k.load(table, Index::from(j).plus_dynamic(id, 32));
///         k.store(out, i[0] * 32 + j, v);
///     });
/// });
/// # verify(&k.finish().unwrap()).unwrap();
///
/// let mut k = KernelBuilder::new("pad1");
/// let (x, out) = (k.input("x", F32, &[8]), k.output("out", F32, &[10]));
/// k.parallel_vector(10, |k, i| {
///     let v = k.load_or(x, i - 1, vec![Cond::within(i - 1, 8)], Scalar::F32(0.0));
///     k.store(out, i, v);
/// });
/// # verify(&k.finish().unwrap()).unwrap();
/// ```
pub struct KernelBuilder {
    kernel: Kernel,
    /// The statements of the open loops, outermost first. The first entry is the kernel's body.
    open: Vec<Vec<Stmt>>,
    /// The values in scope by their encoded instruction, for value numbering. One map for each open loop.
    known: Vec<FxHashMap<Vec<u64>, Value>>,
    /// The operations that define values.
    ops: FxHashMap<Value, ScalarOp<Value>>,
    /// The values that are indices.
    indices: FxHashMap<Value, Affine>,
    /// The graph node whose values are being computed.
    node: Option<Arc<str>>,
    /// Whether conversions to bf16 are [`Kernel::flushing`].
    flushes: bool,
}

impl KernelBuilder {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> KernelBuilder {
        KernelBuilder {
            kernel: Kernel {
                name: name.into(),
                buffers: vec![],
                extents: vec![],
                values: vec![],
                body: vec![],
                shares: vec![],
                flushing: vec![],
                nodes: vec![],
            },
            node: None,
            flushes: false,
            ops: FxHashMap::default(),
            indices: FxHashMap::default(),
            open: vec![vec![]],
            known: vec![FxHashMap::default()],
        }
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, name: &str, dtype: DType, shape: &[usize], role: BufferRole) -> Buf {
        let bytes = shape.iter().fold(dtype.size(), |n, &d| n.saturating_mul(d));
        self.kernel.buffers.push(KernelBuffer {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            role,
            // So large a result leaves the caches before anything reads it.
            streams: role == BufferRole::Out && bytes >= LARGE,
        });
        Buf(self.kernel.buffers.len() as u32 - 1)
    }

    /// A buffer that is only read.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Buf {
        self.buffer(name, dtype, shape, BufferRole::In)
    }

    /// A buffer that is written.
    pub fn output(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Buf {
        self.buffer(name, dtype, shape, BufferRole::Out)
    }

    /// Scratch memory of the thread.
    pub fn local(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Buf {
        self.buffer(name, dtype, shape, BufferRole::Local)
    }

    /// The dtype of a value.
    pub fn dtype(&self, v: Value) -> DType {
        self.kernel.dtype(v)
    }

    /// The dtype of a buffer.
    pub fn buffer_dtype(&self, b: Buf) -> DType {
        self.kernel.buffer(b).dtype
    }

    /// Attributes the values defined from now on to this node of the graph.
    pub fn at_node(&mut self, node: &Arc<str>) {
        self.node = Some(node.clone());
    }

    fn new_value(&mut self, dtype: DType) -> Value {
        self.kernel.values.push(dtype);
        self.kernel.nodes.push(self.node.clone());
        Value(self.kernel.values.len() as u32 - 1)
    }

    fn push(&mut self, s: Stmt) {
        self.open.last_mut().expect("the kernel's body is always open").push(s);
    }

    fn define_value(&mut self, inst: Inst, dtype: DType) -> Value {
        let mut key = vec![];
        key::encode_inst(&inst, &mut key);
        // Decompositions repeat expressions, and members of a cluster repeat loads and indices. Equal instructions
        // are one value.
        if let Some(&v) = self.known.iter().rev().find_map(|m| m.get(&key)) {
            return v;
        }
        let v = self.new_value(dtype);
        self.known
            .last_mut()
            .expect("as many maps as open loops")
            .insert(key, v);
        self.push(Stmt::Let(v, inst));
        v
    }

    /// An operation on scalars, or a value that equals it: a cast to the operand's own dtype returns the operand.
    pub fn op(&mut self, op: ScalarOp<Value>) -> Value {
        self.simplify(&op).unwrap_or_else(|| self.define_op(op))
    }

    fn define_op(&mut self, op: ScalarOp<Value>) -> Value {
        let dtype = op.result_dtype(|v| self.dtype(v));
        let v = self.define_value(Inst::Op(op), dtype);
        self.ops.insert(v, op);
        if let ScalarOp::Cast(DType::BF16, x) = op
            && self.flushes
            && self.dtype(x) == DType::F32
            && !self.kernel.flushing.contains(&v)
        {
            self.kernel.flushing.push(v);
        }
        v
    }

    /// A constant.
    pub fn constant(&mut self, s: Scalar) -> Value {
        self.op(ScalarOp::Const(s))
    }

    /// An affine expression of loop variables as an i64 value.
    pub fn index(&mut self, a: impl Into<Affine>) -> Value {
        let a = a.into();
        let v = self.define_value(Inst::Index(a.clone()), DType::I64);
        self.indices.insert(v, a);
        v
    }

    /// An element of a buffer.
    pub fn load(&mut self, b: Buf, index: impl Into<Index>) -> Value {
        let dtype = self.buffer_dtype(b);
        self.define_value(Inst::Load(b, index.into(), None), dtype)
    }

    /// An element of a buffer where all conditions hold, and `other` elsewhere.
    pub fn load_or(&mut self, b: Buf, index: impl Into<Index>, conds: Vec<Cond>, other: Scalar) -> Value {
        let dtype = self.buffer_dtype(b);
        self.define_value(Inst::Load(b, index.into(), Some(LoadGuard { conds, other })), dtype)
    }

    /// The i64 `v` as an index in `0..size`.
    pub fn bounded(&mut self, v: Value, size: usize, bound: IndexBound) -> Value {
        self.define_value(Inst::Bounded(v, size, bound), DType::I64)
    }

    /// `op(x)`.
    pub fn unary(&mut self, op: Unary, x: Value) -> Value {
        self.op(ScalarOp::Unary(op, x))
    }

    /// `op(x, y)`.
    pub fn binary(&mut self, op: Binary, x: Value, y: Value) -> Value {
        self.op(ScalarOp::Binary(op, x, y))
    }

    /// `x op y` as a b8.
    pub fn compare(&mut self, op: Compare, x: Value, y: Value) -> Value {
        self.op(ScalarOp::Compare(op, x, y))
    }

    /// `x * y + z`.
    pub fn fma(&mut self, x: Value, y: Value, z: Value) -> Value {
        self.op(ScalarOp::Fma(x, y, z))
    }

    /// `c ? x : y`.
    pub fn select(&mut self, c: Value, x: Value, y: Value) -> Value {
        self.op(ScalarOp::Select(c, x, y))
    }

    /// `x` converted to `to`; `x` itself if it has that dtype.
    pub fn cast(&mut self, to: DType, x: Value) -> Value {
        self.op(ScalarOp::Cast(to, x))
    }

    /// Writes `v`, converted to the buffer's dtype.
    pub fn store(&mut self, b: Buf, index: impl Into<Index>, v: Value) {
        let v = self.cast(self.buffer_dtype(b), v);
        self.forget_loads(b);
        self.push(Stmt::Store(b, index.into(), v));
    }

    /// Forgets the known loads of a buffer after a store to it.
    fn forget_loads(&mut self, b: Buf) {
        // The store may change any element, so a load after it is another value.
        for m in &mut self.known {
            m.retain(|k, _| !key::is_load_of(k, b));
        }
    }

    /// Makes all following conversions from f32 to bf16 [`Kernel::flushing`].
    pub fn flush_denormals(&mut self) {
        self.flushes = true;
    }

    /// Marks an exponential as one of [`Kernel::shares`].
    pub fn mark_share(&mut self, v: Value) {
        if !self.kernel.shares.contains(&v) {
            self.kernel.shares.push(v);
        }
    }

    /// Finishes the kernel with the statements of another one, whose buffers are the same ones by other names. `nodes` are those of its
    /// values.
    pub(crate) fn finish_as(self, other: &Kernel, nodes: Vec<Option<Arc<str>>>) -> Kernel {
        debug_assert_eq!(self.kernel.buffers.len(), other.buffers.len());
        Kernel {
            nodes,
            extents: other.extents.clone(),
            values: other.values.clone(),
            body: other.body.clone(),
            shares: other.shares.clone(),
            flushing: other.flushing.clone(),
            ..self.kernel
        }
    }

    /// Finishes the kernel and verifies it.
    pub fn finish(mut self) -> Result<Kernel, VerifyError> {
        self.kernel.body = self.open.pop().expect("the kernel's body is always open");
        verify(&self.kernel)?;
        Ok(self.kernel)
    }
}
