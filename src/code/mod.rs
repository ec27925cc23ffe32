//! Machine code of kernels as callable functions, whether compiled in this process or loaded from a file.
//!
//! [`codegen`](crate::codegen) produces these functions and the runtime calls them. Neither depends on the other.

mod host;
mod image;

pub(crate) use host::{host_function, host_functions, lane_symbol, transpose_symbol};
pub(crate) use image::{CodeImage, HostCall, LoadedFunction, load_functions};

use crate::kernel::{Kernel, Status};
use crate::tensor::AlignedBytes;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The signature of compiled kernels: the caller's buffers (in the order of [`Kernel::params`]), the range of the
/// parallel loop to run, scratch memory ([`CompiledKernels::scratch_bytes`] of it, 64-byte aligned, separate for each
/// thread) and the kernel's constants. The result contains the bits of a [`Status`].
type KernelEntry = unsafe extern "C" fn(*const *mut u8, usize, usize, *mut u8, *const u8) -> u32;

/// Properties of a function.
pub struct FunctionInfo {
    /// The constants that the code reads.
    pub constants: AlignedBytes,
    /// The size of the machine code in bytes.
    pub code_bytes: usize,
    /// The vector size in bytes: 16, 32 or 64.
    pub width: usize,
    /// The scratch memory of a call in bytes.
    pub scratch: usize,
    /// The reason why the code could not be widened, if that was tried.
    pub refused: Option<String>,
    /// The reason why the vectors are narrower than the target's widest.
    pub narrow: Option<String>,
    /// The code as text, if texts were requested.
    pub text: Option<Box<dyn CodeText>>,
    /// The code in relocatable form, if that was requested and is possible.
    pub(crate) image: Option<CodeImage>,
}

/// A function's code as text.
pub trait CodeText: Send + Sync {
    /// Cranelift's intermediate representation.
    fn clif(&self) -> &str;

    /// The machine code of the kernel `k`. A comment that begins with `mark` names the node that the following code
    /// computes, and `place` returns the source location of a node.
    fn asm(&self, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String;
}

/// One function; kernels of equal structure share it.
pub struct KernelFunction {
    entry: KernelEntry,
    /// Owns the memory of the code.
    _memory: Arc<dyn Any + Send + Sync>,
    info: FunctionInfo,
}

impl KernelFunction {
    /// The function at `entry`.
    ///
    /// # Safety
    /// `entry` is the code of a function with the calling convention of compiled kernels for this processor. It stays
    /// valid while `memory` lives.
    pub unsafe fn new(entry: *const u8, memory: Arc<dyn Any + Send + Sync>, info: FunctionInfo) -> KernelFunction {
        KernelFunction {
            // SAFETY: guaranteed by the caller.
            entry: unsafe { std::mem::transmute::<*const u8, KernelEntry>(entry) },
            _memory: memory,
            info,
        }
    }
}

impl KernelFunction {
    /// The function's properties.
    pub(crate) fn info(&self) -> &FunctionInfo {
        &self.info
    }
}

/// An error of compiling or loading kernels. It indicates a bug in fxc, not a mistake of the user.
#[derive(Clone, Debug)]
pub struct CodeError {
    /// The kernel that failed, if a single one did.
    pub kernel: String,
    /// The message of the compiler or loader.
    pub message: String,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot compile kernel `{}`: {}", self.kernel, self.message)
    }
}

impl std::error::Error for CodeError {}

/// A source of machine code for kernels.
pub trait CompileKernels: Send + Sync {
    /// The functions of verified kernels, in their order.
    fn compile(&self, kernels: &[Kernel]) -> Result<CompiledKernels, CodeError>;

    /// Whether it compiles kernels, rather than loading existing code.
    fn is_compiler(&self) -> bool {
        true
    }
}

/// Kernels with their code. The memory is freed when none of the functions that were created with it is in use.
pub struct CompiledKernels {
    functions: Vec<Arc<KernelFunction>>,
    /// The function of each kernel.
    kernels: Vec<usize>,
    /// The number of buffers of each kernel.
    arity: Vec<usize>,
}

impl CompiledKernels {
    /// Kernel `i` of `kernels` runs `functions[which[i]]`.
    pub fn new(kernels: &[Kernel], functions: Vec<Arc<KernelFunction>>, which: Vec<usize>) -> CompiledKernels {
        CompiledKernels {
            functions,
            kernels: which,
            arity: kernels.iter().map(|k| k.params().count()).collect(),
        }
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The number of functions. Kernels of equal structure share one.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The properties of each function.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = &FunctionInfo> {
        self.functions.iter().map(|f| &f.info)
    }

    /// The functions.
    pub(crate) fn shared_functions(&self) -> &[Arc<KernelFunction>] {
        &self.functions
    }

    /// The index in [`CompiledKernels::functions`] of the function of kernel `i`.
    pub fn function_index(&self, i: usize) -> usize {
        self.kernels[i]
    }

    fn function_info(&self, i: usize) -> &FunctionInfo {
        &self.functions[self.kernels[i]].info
    }

    /// The number of functions that `other` also has.
    pub fn shared_with(&self, other: &CompiledKernels) -> usize {
        let has = |f: &&Arc<KernelFunction>| other.functions.iter().any(|g| Arc::ptr_eq(f, g));
        self.functions.iter().filter(has).count()
    }

    /// The size of kernel `i`'s machine code in bytes.
    pub fn code_bytes(&self, i: usize) -> usize {
        self.function_info(i).code_bytes
    }

    /// The scratch memory that a call of kernel `i` uses, in bytes: [`Kernel::scratch_layout`] for each row that its
    /// code computes at the same time.
    pub fn scratch_bytes(&self, i: usize) -> usize {
        self.function_info(i).scratch
    }

    /// The vector size of kernel `i` in bytes: 16, 32 or 64.
    pub fn vector_bytes(&self, i: usize) -> usize {
        self.function_info(i).width
    }

    /// The reason why kernel `i` could not be widened, if that was tried.
    pub fn why_not_widened(&self, i: usize) -> Option<&str> {
        self.function_info(i).refused.as_deref()
    }

    /// The reason why the vectors of kernel `i` are narrower than the target's widest.
    pub fn why_narrow(&self, i: usize) -> Option<&str> {
        let f = self.function_info(i);
        f.refused.as_deref().or(f.narrow.as_deref())
    }

    /// Kernel `i` in Cranelift's intermediate representation; empty unless texts were requested.
    pub fn clif(&self, i: usize) -> &str {
        self.function_info(i).text.as_ref().map_or("", |t| t.clif())
    }

    /// [`CodeText::asm`] of kernel `i`, which is `k`; empty unless texts were requested.
    pub fn asm(&self, i: usize, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String {
        let text = self.function_info(i).text.as_ref();
        text.map(|t| t.asm(k, mark, place)).unwrap_or_default()
    }

    /// The number of buffers of kernel `i`.
    pub fn buffer_count(&self, i: usize) -> usize {
        self.arity[i]
    }

    /// Runs iterations `begin..end` of kernel `i`'s parallel loop (`0..1` if it has none).
    ///
    /// # Safety
    /// `buffers` are those of [`Kernel::params`], each valid for its declared size (reads for inputs, reads and
    /// writes for the others) and aligned to its elements. A buffer that is written may overlap another one only if
    /// each iteration reads of it no elements except those that it then writes. `scratch` is valid for
    /// [`CompiledKernels::scratch_bytes`], aligned to 64 bytes, and not used by another thread during the call. `end`
    /// is at most [`Kernel::parallel_extent`].
    pub unsafe fn run(&self, i: usize, buffers: &[*mut u8], begin: usize, end: usize, scratch: *mut u8) -> Status {
        let f = &self.functions[self.kernels[i]];
        assert_eq!(buffers.len(), self.arity[i], "the buffers of kernel {i}");
        // SAFETY: the caller guarantees that the buffers and the scratch memory are valid; the code lives as long as
        // `self`.
        Status(unsafe { (f.entry)(buffers.as_ptr(), begin, end, scratch, f.info.constants.bytes().as_ptr()) })
    }
}
