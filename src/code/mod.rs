//! Machine code of kernels as functions to call, wherever it comes from: compiled in this process, or loaded.
//!
//! [`codegen`](crate::codegen) makes such functions, the runtime calls them, and neither knows the other.

mod host;
mod image;

pub(crate) use host::{host_function, host_functions, lane_symbol};
pub(crate) use image::{CodeImage, HostCall, LoadedFunction, load_functions};

use crate::kernel::{Kernel, Status};
use crate::tensor::AlignedBytes;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The convention of compiled kernels: the caller's buffers (as [`Kernel::params`] lists them), the part of the parallel
/// loop to run, scratch memory ([`CompiledKernels::scratch_bytes`] of it, 64-byte aligned, one per thread) and the
/// kernel's constants. The result holds the bits of a [`Status`].
type KernelEntry = unsafe extern "C" fn(*const *mut u8, usize, usize, *mut u8, *const u8) -> u32;

/// What is known of a function besides its address.
pub struct FunctionInfo {
    /// The constants that the code reads.
    pub constants: AlignedBytes,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// Bytes of a vector: 16, 32 or 64.
    pub width: usize,
    /// Bytes of scratch memory of a call.
    pub scratch: usize,
    /// Why the code could not be widened, if that was tried.
    pub refused: Option<String>,
    /// Why the vectors are not the widest that the target has.
    pub narrow: Option<String>,
    /// The code as text, if it was asked for.
    pub text: Option<Box<dyn CodeText>>,
    /// The code as it can be written to a file, if it was asked for and has such a form.
    pub(crate) image: Option<CodeImage>,
}

/// A function's code as text.
pub trait CodeText: Send + Sync {
    /// Cranelift's intermediate representation.
    fn clif(&self) -> &str;

    /// The machine code of the kernel `k` as it runs. A comment that begins with `mark` names the node that the following code
    /// computes, and `place` says where that node comes from.
    fn asm(&self, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String;
}

/// One function; kernels of equal structure share it.
pub struct KernelFunction {
    entry: KernelEntry,
    /// Keeps the code in memory.
    _memory: Arc<dyn Any + Send + Sync>,
    info: FunctionInfo,
}

impl KernelFunction {
    /// The function at `entry`.
    ///
    /// # Safety
    /// `entry` is code with the convention of compiled kernels for this processor, and stays so while `memory` lives.
    pub unsafe fn new(entry: *const u8, memory: Arc<dyn Any + Send + Sync>, info: FunctionInfo) -> KernelFunction {
        KernelFunction {
            // SAFETY: the caller's promise.
            entry: unsafe { std::mem::transmute::<*const u8, KernelEntry>(entry) },
            _memory: memory,
            info,
        }
    }
}

impl KernelFunction {
    /// What is known of the function.
    pub(crate) fn info(&self) -> &FunctionInfo {
        &self.info
    }
}

/// Why kernels have no machine code. Not the user's mistake, and not expected.
#[derive(Clone, Debug)]
pub struct CodeError {
    /// The kernel, if it is one's fault.
    pub kernel: String,
    /// What the compiler or the loader says.
    pub message: String,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot compile kernel `{}`: {}", self.kernel, self.message)
    }
}

impl std::error::Error for CodeError {}

/// What gives kernels their machine code.
pub trait CompileKernels: Send + Sync {
    /// The functions of verified kernels, in their order.
    fn compile(&self, kernels: &[Kernel]) -> Result<CompiledKernels, CodeError>;

    /// Whether it compiles them, rather than to have their code already.
    fn is_compiler(&self) -> bool {
        true
    }
}

/// Kernels with their code. Its memory is freed when no function that was made with it is used any more.
pub struct CompiledKernels {
    functions: Vec<Arc<KernelFunction>>,
    /// The function of each kernel.
    kernels: Vec<usize>,
    /// How many buffers each kernel takes.
    arity: Vec<usize>,
}

impl CompiledKernels {
    /// `kernels`, of which the `i`th runs `functions[which[i]]`.
    pub fn new(kernels: &[Kernel], functions: Vec<Arc<KernelFunction>>, which: Vec<usize>) -> CompiledKernels {
        CompiledKernels {
            functions,
            kernels: which,
            arity: kernels.iter().map(|k| k.params().count()).collect(),
        }
    }

    /// How many kernels there are.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// How many functions there are; kernels of equal structure share one.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// What is known of each function.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = &FunctionInfo> {
        self.functions.iter().map(|f| &f.info)
    }

    /// The functions.
    pub(crate) fn shared_functions(&self) -> &[Arc<KernelFunction>] {
        &self.functions
    }

    /// The place in [`CompiledKernels::functions`] of the function that kernel `i` runs.
    pub fn function_index(&self, i: usize) -> usize {
        self.kernels[i]
    }

    fn function_info(&self, i: usize) -> &FunctionInfo {
        &self.functions[self.kernels[i]].info
    }

    /// How many functions these kernels have that `other` kernels have too.
    pub fn shared_with(&self, other: &CompiledKernels) -> usize {
        let has = |f: &&Arc<KernelFunction>| other.functions.iter().any(|g| Arc::ptr_eq(f, g));
        self.functions.iter().filter(has).count()
    }

    /// Bytes of machine code of kernel `i`.
    pub fn code_bytes(&self, i: usize) -> usize {
        self.function_info(i).code_bytes
    }

    /// Bytes of scratch memory that a call of kernel `i` uses: [`Kernel::scratch_layout`]'s, for each row that its code works on
    /// at a time.
    pub fn scratch_bytes(&self, i: usize) -> usize {
        self.function_info(i).scratch
    }

    /// Bytes of the vectors of kernel `i`: 16, 32 or 64.
    pub fn vector_bytes(&self, i: usize) -> usize {
        self.function_info(i).width
    }

    /// Why kernel `i` has narrower vectors than would suit it, if that is so.
    pub fn why_not_widened(&self, i: usize) -> Option<&str> {
        self.function_info(i).refused.as_deref()
    }

    /// Why the vectors of kernel `i` are not the widest of the target.
    pub fn why_narrow(&self, i: usize) -> Option<&str> {
        let f = self.function_info(i);
        f.refused.as_deref().or(f.narrow.as_deref())
    }

    /// Kernel `i` in Cranelift's intermediate representation; empty unless texts were asked for.
    pub fn clif(&self, i: usize) -> &str {
        self.function_info(i).text.as_ref().map_or("", |t| t.clif())
    }

    /// [`CodeText::asm`] of kernel `i`, which is `k`; empty unless texts were asked for.
    pub fn asm(&self, i: usize, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String {
        let text = self.function_info(i).text.as_ref();
        text.map(|t| t.asm(k, mark, place)).unwrap_or_default()
    }

    /// How many buffers kernel `i` takes.
    pub fn buffer_count(&self, i: usize) -> usize {
        self.arity[i]
    }

    /// Runs iterations `begin..end` of kernel `i`'s parallel loop (`0..1` if it has none).
    ///
    /// # Safety
    /// `buffers` are those of [`Kernel::params`], each valid for its declared size (reads for inputs, reads and writes for the
    /// others) and aligned to its elements; a buffer that is written overlaps another one only if each iteration reads of it what it
    /// then writes. `scratch` is valid for [`CompiledKernels::scratch_bytes`], aligned to 64 bytes, and used by no other thread
    /// during the call. `end` is at most [`Kernel::parallel_extent`].
    pub unsafe fn run(&self, i: usize, buffers: &[*mut u8], begin: usize, end: usize, scratch: *mut u8) -> Status {
        let f = &self.functions[self.kernels[i]];
        assert_eq!(buffers.len(), self.arity[i], "the buffers of kernel {i}");
        // SAFETY: the caller vouches for the buffers and the scratch memory; the code lives as long as `self`.
        Status(unsafe { (f.entry)(buffers.as_ptr(), begin, end, scratch, f.info.constants.bytes().as_ptr()) })
    }
}
