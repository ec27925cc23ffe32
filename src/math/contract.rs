//! The seam between the compiler and the routines that Cranelift cannot express well: matrix products, convolutions and
//! attention.
//!
//! A *descriptor* ([`MatMul`], [`Conv`], [`Attention`]) says what is to be computed, with sizes and strides. A
//! [`Library`] turns it, and those operands that are constant, into a *plan*: operands packed, kernels and blocking
//! chosen. A plan runs as often as one likes on raw memory, on a [`Pool`], allocating nothing after the first call.
//! Everything behind the seam can be replaced: another library implements [`Library`], and nothing else changes.
//!
//! All strides are in elements, of the dtype of the operand. 0 repeats an operand along a dimension.
//!
//! Results do not depend on the number of threads, and depend on the instruction set only by the rounding of fused
//! multiply-adds.

use crate::parallel::Pool;
use crate::types::DType;
use std::ffi::c_void;
use std::fmt;

/// What is done to each element of a result before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `min(max(x, lo), hi)`, as `relu6` and `hardtanh`; NaN stays.
    Clamp(f32, f32),
}

impl Activation {
    /// The bounds of the clamp that this is, if it is one.
    pub fn bounds(self) -> Option<(f32, f32)> {
        match self {
            Activation::None => None,
            Activation::Relu => Some((0.0, f32::INFINITY)),
            Activation::Clamp(lo, hi) => Some((lo, hi)),
        }
    }
}

/// A finished rectangle of a result, for a [`Tail`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Its first element, of the result's dtype.
    pub data: *mut u8,
    /// The index of that element, counted in elements from the start of the result.
    pub offset: usize,
    /// Which matrix of the batch (row-major over the batch dimensions); for a convolution the image.
    pub batch: usize,
    /// Its first row: of the matrix; for a convolution the channel (channels first) or the flat pixel (channels last).
    pub row: usize,
    /// Its first column: of the matrix; for a convolution the flat pixel (channels first) or the channel (channels last).
    pub col: usize,
    /// How many rows.
    pub rows: usize,
    /// How many columns; elements of a row are contiguous.
    pub cols: usize,
    /// From one row to the next, in elements.
    pub row_stride: usize,
}

/// A pointwise function that runs on every tile of a result when it is finished and still in cache: a fused kernel.
///
/// Every element of the result belongs to exactly one tile. Tiles come in any order and from several threads at once.
#[derive(Clone, Copy)]
pub struct Tail {
    /// The function: reads and writes the tile in place.
    pub call: unsafe extern "C" fn(context: *const c_void, tile: *const Tile),
    /// Passed to every call.
    pub context: *const c_void,
}

// SAFETY: whoever makes a tail promises that it may be called from several threads (see the type).
unsafe impl Send for Tail {}
// SAFETY: as above.
unsafe impl Sync for Tail {}

impl Tail {
    /// Runs the function on a tile.
    ///
    /// # Safety
    /// The tile is finished, valid, and used by nothing else.
    pub unsafe fn run(&self, tile: &Tile) {
        // SAFETY: the caller's promise; the function accepts every finished tile.
        unsafe { (self.call)(self.context, tile) };
    }
}

/// One dimension of a batch: its size and each operand's stride along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDim {
    /// The size.
    pub size: usize,
    /// Stride of A.
    pub a: usize,
    /// Stride of B.
    pub b: usize,
    /// Stride of C.
    pub c: usize,
    /// Stride of the addend.
    pub addend: usize,
}

/// The matrix that is added to a product: a bias, or the first operand of `addmm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// From one row to the next; 0 for a bias per column.
    pub row: usize,
    /// From one column to the next; 0 for a bias per row.
    pub col: usize,
}

/// `C = activation(alpha * (A · B) + beta * addend)` for a batch of matrices (`mm`, `bmm`, `addmm`, `baddbmm`, `linear`).
///
/// f32 sums in f32; f64 in f64; integers wrap; f16 and bf16 sum in f32 and round once. As in torch, `beta == 0` or no
/// addend means that the addend is not read, `k == 0` gives `beta * addend`.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Dtype of every operand.
    pub dtype: DType,
    /// Batch dimensions, outermost first.
    pub batch: Vec<BatchDim>,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Strides of A: from row to row, from product index to product index.
    pub a: [usize; 2],
    /// Strides of B: from product index to product index, from column to column.
    pub b: [usize; 2],
    /// From one row of C to the next, at least `n`; columns of C are contiguous.
    pub c_row: usize,
    /// The strides of the addend, if there is one.
    pub addend: Option<Addend>,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend.
    pub beta: f64,
    /// Applied last.
    pub activation: Activation,
}

impl MatMul {
    /// `A[m, k] · B[k, n]`, all row-major and without gaps.
    pub fn new(dtype: DType, m: usize, n: usize, k: usize) -> MatMul {
        MatMul {
            dtype,
            batch: vec![],
            m,
            n,
            k,
            a: [k, 1],
            b: [n, 1],
            c_row: n,
            addend: None,
            alpha: 1.0,
            beta: 1.0,
            activation: Activation::None,
        }
    }

    /// `linear(x[m, k], w[n, k])`: B is the transpose of row-major `w`.
    pub fn linear(dtype: DType, m: usize, n: usize, k: usize) -> MatMul {
        MatMul {
            b: [1, k],
            ..MatMul::new(dtype, m, n, k)
        }
    }

    /// How many elements each of A, B, addend and C spans, or `None` if one does not fit the address space. A plan
    /// reads and writes within these.
    pub fn extents(&self) -> Option<[usize; 4]> {
        let dims = |f: fn(&BatchDim) -> usize| self.batch.iter().map(move |d| (d.size, f(d)));
        let size = self.dtype.size();
        let addend = self.addend.unwrap_or(Addend { row: 0, col: 0 });
        Some([
            extent(size, dims(|d| d.a).chain([(self.m, self.a[0]), (self.k, self.a[1])]))?,
            extent(size, dims(|d| d.b).chain([(self.k, self.b[0]), (self.n, self.b[1])]))?,
            match self.addend {
                None => 0,
                Some(_) => extent(
                    size,
                    dims(|d| d.addend).chain([(self.m, addend.row), (self.n, addend.col)]),
                )?,
            },
            extent(size, dims(|d| d.c).chain([(self.m, self.c_row), (self.n, 1)]))?,
        ])
    }

    /// How many matrices the batch has.
    pub fn batch_size(&self) -> usize {
        self.batch.iter().map(|d| d.size).product()
    }
}

/// One past the greatest element index of a strided operand; 0 if it is empty. `None` if its bytes exceed `isize`.
pub(crate) fn extent(size: usize, dims: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    let mut last = Some(0usize);
    let mut empty = false;
    for (n, stride) in dims {
        empty |= n == 0;
        let step = n.saturating_sub(1).checked_mul(stride);
        last = last.and_then(|l| l.checked_add(step?));
    }
    if empty {
        return Some(0);
    }
    let n = last?.checked_add(1)?;
    (n.checked_mul(size)? <= isize::MAX as usize).then_some(n)
}

/// Where the operands of a [`MatMul`] are.
#[derive(Clone, Copy)]
pub struct MatMulArgs {
    /// A; not read if it was constant.
    pub a: *const u8,
    /// B; not read if it was constant.
    pub b: *const u8,
    /// The addend; not read if there is none.
    pub addend: *const u8,
    /// C; overlaps no other operand.
    pub c: *mut u8,
    /// What to run on finished tiles.
    pub tail: Option<Tail>,
}

/// The order of a convolution's activations in memory; without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[N, C, spatial…]`, torch's default.
    ChannelsFirst,
    /// `[N, spatial…, C]`.
    ChannelsLast,
}

/// `activation(conv(x, weight) + bias)`, one to three spatial dimensions (missing ones are of size 1, in front), plain or
/// transposed, as torch's `convolution`. Weights are in torch's order: `[out, in / groups, kernel…]`, transposed
/// `[in, out / groups, kernel…]`. Padding is with zeros, the same at both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Dtype of every operand.
    pub dtype: DType,
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Groups; divides both channel counts.
    pub groups: usize,
    /// Depth, height and width of the input.
    pub input: [usize; 3],
    /// Size of the kernel.
    pub kernel: [usize; 3],
    /// Stride; not 0.
    pub stride: [usize; 3],
    /// Padding; may be larger than the kernel.
    pub padding: [usize; 3],
    /// Dilation; not 0.
    pub dilation: [usize; 3],
    /// Whether this is the transposed convolution.
    pub transposed: bool,
    /// Added to one end of the output; transposed only.
    pub output_padding: [usize; 3],
    /// Whether there is a bias per output channel.
    pub bias: bool,
    /// Order of the input.
    pub input_layout: Layout,
    /// Order of the output.
    pub output_layout: Layout,
    /// Applied last.
    pub activation: Activation,
}

impl Conv {
    /// A dense f32 convolution of stride 1 without padding, channels first, over one `height x width` image.
    pub fn new2d(in_channels: usize, out_channels: usize, image: [usize; 2], kernel: [usize; 2]) -> Conv {
        Conv {
            dtype: DType::F32,
            batch: 1,
            in_channels,
            out_channels,
            groups: 1,
            input: [1, image[0], image[1]],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            transposed: false,
            output_padding: [0; 3],
            bias: false,
            input_layout: Layout::ChannelsFirst,
            output_layout: Layout::ChannelsFirst,
            activation: Activation::None,
        }
    }

    /// Depth, height and width of the output; `None` if the parameters are not legal (a zero stride, kernel or dilation,
    /// groups that do not divide, a kernel larger than the padded input) or a size overflows.
    pub fn output(&self) -> Option<[usize; 3]> {
        let groups = self.groups != 0
            && self.in_channels.is_multiple_of(self.groups)
            && self.out_channels.is_multiple_of(self.groups);
        if !groups {
            return None;
        }
        let mut out = [0; 3];
        for (d, size) in out.iter_mut().enumerate() {
            *size = self.output_dim(d)?;
        }
        Some(out)
    }

    fn output_dim(&self, d: usize) -> Option<usize> {
        let (input, kernel, stride) = (self.input[d], self.kernel[d], self.stride[d]);
        let (padding, dilation) = (self.padding[d], self.dilation[d]);
        if kernel == 0 || stride == 0 || dilation == 0 {
            return None;
        }
        let reach = dilation.checked_mul(kernel - 1)?.checked_add(1)?;
        let pad2 = padding.checked_mul(2)?;
        if self.transposed {
            let full = input.checked_sub(1)?.checked_mul(stride)?.checked_add(reach)?;
            full.checked_add(self.output_padding[d])?.checked_sub(pad2)
        } else {
            Some(input.checked_add(pad2)?.checked_sub(reach)? / stride + 1)
        }
    }

    /// How many elements each of input, weight, bias and output has, or `None` if the parameters are not legal or one
    /// does not fit the address space.
    pub fn extents(&self) -> Option<[usize; 4]> {
        let out = self.output()?;
        let size = self.dtype.size();
        let len = |dims: &[usize]| {
            let n = dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d))?;
            (n.checked_mul(size)? <= isize::MAX as usize).then_some(n)
        };
        let [id, ih, iw] = self.input;
        let [kd, kh, kw] = self.kernel;
        let (outer, inner) = match self.transposed {
            false => (self.out_channels, self.in_channels / self.groups),
            true => (self.in_channels, self.out_channels / self.groups),
        };
        Some([
            len(&[self.batch, self.in_channels, id, ih, iw])?,
            len(&[outer, inner, kd, kh, kw])?,
            if self.bias { self.out_channels } else { 0 },
            len(&[self.batch, self.out_channels, out[0], out[1], out[2]])?,
        ])
    }

    /// Multiply-adds of the whole convolution, for estimates.
    pub fn macs(&self) -> f64 {
        let at = if self.transposed {
            Some(self.input)
        } else {
            self.output()
        };
        let pixels: f64 = at.unwrap_or([0; 3]).iter().map(|&x| x as f64).product();
        let taps: f64 = self.kernel.iter().map(|&x| x as f64).product();
        let pairs = self.in_channels as f64 * self.out_channels as f64 / self.groups.max(1) as f64;
        self.batch as f64 * pixels * taps * pairs
    }
}

/// Where the operands of a [`Conv`] are.
#[derive(Clone, Copy)]
pub struct ConvArgs {
    /// The input.
    pub x: *const u8,
    /// The weight; not read if it was constant.
    pub weight: *const u8,
    /// The bias; not read if it was constant or there is none.
    pub bias: *const u8,
    /// The output; overlaps no other operand.
    pub y: *mut u8,
    /// What to run on finished tiles.
    pub tail: Option<Tail>,
}

/// The mask of an [`Attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// B8 (true keeps a key) or the dtype of the operands (added to the scores).
    pub dtype: DType,
    /// Strides over batch, head, query and key; 0 where it is broadcast.
    pub strides: [usize; 4],
}

/// `softmax(scale * q · kᵀ + mask) · v` (`scaled_dot_product_attention` without dropout): q is `[batch, heads, L, E]`,
/// k `[batch, kv_heads, S, E]`, v `[batch, kv_heads, S, Ev]`, the result `[batch, heads, L, Ev]`; the last dimension of
/// each is contiguous. Query head `h` meets key head `h / (heads / kv_heads)`.
///
/// A row whose keys are all masked (or whose `S` is 0) gives zeros, as in torch. The score matrix is never stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Dtype of q, k, v and the result: a float.
    pub dtype: DType,
    /// Batch.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Queries (L).
    pub queries: usize,
    /// Keys (S).
    pub keys: usize,
    /// Size of a query and of a key (E).
    pub size: usize,
    /// Size of a value (Ev).
    pub value_size: usize,
    /// Strides of q over batch, head and row.
    pub q: [usize; 3],
    /// Strides of k.
    pub k: [usize; 3],
    /// Strides of v.
    pub v: [usize; 3],
    /// Strides of the result.
    pub out: [usize; 3],
    /// The mask, if there is one.
    pub mask: Option<Mask>,
    /// Whether query `i` sees keys `0..=i` only.
    pub causal: bool,
    /// Factor of the scores; torch's default is `1 / sqrt(E)`.
    pub scale: f64,
}

impl Attention {
    /// Attention over row-major operands without gaps, with torch's default scale.
    pub fn new(batch: usize, heads: usize, queries: usize, keys: usize, size: usize) -> Attention {
        let strides = |rows: usize| [heads * rows * size, rows * size, size];
        Attention {
            dtype: DType::F32,
            batch,
            heads,
            kv_heads: heads,
            queries,
            keys,
            size,
            value_size: size,
            q: strides(queries),
            k: strides(keys),
            v: strides(keys),
            out: strides(queries),
            mask: None,
            causal: false,
            scale: 1.0 / (size as f64).sqrt(),
        }
    }

    /// How many elements each of q, k, v, mask and result spans, or `None` if one does not fit the address space or the
    /// heads do not divide.
    pub fn extents(&self) -> Option<[usize; 5]> {
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return None;
        }
        let size = self.dtype.size();
        let one = |heads: usize, rows: usize, last: usize, s: [usize; 3]| {
            extent(
                size,
                [(self.batch, s[0]), (heads, s[1]), (rows, s[2]), (last, 1)].into_iter(),
            )
        };
        let mask = match self.mask {
            None => 0,
            Some(m) => {
                let dims = [self.batch, self.heads, self.queries, self.keys];
                extent(m.dtype.size(), dims.into_iter().zip(m.strides))?
            }
        };
        Some([
            one(self.heads, self.queries, self.size, self.q)?,
            one(self.kv_heads, self.keys, self.size, self.k)?,
            one(self.kv_heads, self.keys, self.value_size, self.v)?,
            mask,
            one(self.heads, self.queries, self.value_size, self.out)?,
        ])
    }
}

/// Where the operands of an [`Attention`] are.
#[derive(Clone, Copy)]
pub struct AttentionArgs {
    /// q.
    pub q: *const u8,
    /// k.
    pub k: *const u8,
    /// v.
    pub v: *const u8,
    /// The mask; not read if there is none.
    pub mask: *const u8,
    /// The result; overlaps no other operand.
    pub out: *mut u8,
}

/// Why a library makes no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// torch has no such operation for this dtype either, or this library has not.
    Dtype(DType),
    /// A size or an index does not fit the address space, or the parameters are not legal.
    Size,
    /// A constant operand does not have the length that the descriptor says, in bytes.
    Constant {
        /// What the descriptor needs.
        need: usize,
        /// What was given.
        got: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Dtype(d) => write!(f, "no kernel for {d}"),
            PlanError::Size => f.write_str("sizes that are not legal or do not fit the address space"),
            PlanError::Constant { need, got } => write!(f, "a constant operand of {got} bytes where {need} are needed"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A [`MatMul`] ready to run.
pub trait MatMulPlan: Send + Sync {
    /// Computes C.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; C is writable and
    /// overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs);
    /// How it computes, for reports: `packed 14x32 avx512`.
    fn describe(&self) -> String;
}

/// A [`Conv`] ready to run.
pub trait ConvPlan: Send + Sync {
    /// Computes the output.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; the output is
    /// writable and overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs);
    /// How it computes, for reports.
    fn describe(&self) -> String;
}

/// An [`Attention`] ready to run.
pub trait AttentionPlan: Send + Sync {
    /// Computes the result.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; the result is
    /// writable and overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs);
    /// How it computes, for reports.
    fn describe(&self) -> String;
}

/// Constant operands of a [`MatMul`], as bytes of the descriptor's dtype, of at least its extents.
#[derive(Clone, Copy, Default)]
pub struct MatMulConstants<'a> {
    /// A.
    pub a: Option<&'a [u8]>,
    /// B; ignored if A is constant too.
    pub b: Option<&'a [u8]>,
}

/// Constant operands of a [`Conv`], as bytes of the descriptor's dtype.
#[derive(Clone, Copy, Default)]
pub struct ConvConstants<'a> {
    /// The weight.
    pub weight: Option<&'a [u8]>,
    /// The bias; taken only if the weight is constant too.
    pub bias: Option<&'a [u8]>,
}

/// A maker of plans.
pub trait Library: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;
    /// Plans a matrix product.
    fn matmul(&self, desc: &MatMul, constants: MatMulConstants) -> Result<Box<dyn MatMulPlan>, PlanError>;
    /// Plans a convolution.
    fn conv(&self, desc: &Conv, constants: ConvConstants) -> Result<Box<dyn ConvPlan>, PlanError>;
    /// Plans an attention.
    fn attention(&self, desc: &Attention) -> Result<Box<dyn AttentionPlan>, PlanError>;
}
