//! Machine code for kernels, by Cranelift.
//!
//! Each kernel becomes one function. Vector loops run in groups of lanes (`lanes`): several F32X4, F64X2, I32X4 or I64X2
//! vectors for as many iterations, then one vector, then scalars; everything has a vector form, if need be lane by
//! lane. The optimisation level is `none`: it leaves constants beside their uses, where `speed` would
//! hoist and spill them; what must be hoisted is hoisted here ([`kernel::hoist`](crate::kernel::hoist()), addresses in `memory`).
//!
//! Results do not depend on how the parallel loop is split: reductions run within one iteration, in an order that only
//! the kernel decides, and lanes compute what scalars compute.

mod ahead;
mod analysis;
mod asm;
mod cache;
mod calls;
mod convert;
mod elements;
mod exp;
mod folds;
mod forms;
mod func;
mod inside;
mod lanes;
mod loops;
mod memory;
mod ops;
mod poly;
mod reduce;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod vector;
#[cfg_attr(
    not(all(target_arch = "x86_64", unix)),
    allow(dead_code, reason = "only x86-64 widens")
)]
mod wide;
mod widen;

pub use cache::Cache;

use crate::kernel::{Kernel, Status, hoist};
use crate::math::Isa;
use crate::tensor::AlignedBytes;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CompiledCode, Context, ir};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// What to do besides compiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Keep each kernel's CLIF and assembly text.
    pub text: bool,
    /// The widest vectors to use, in bytes: 16, 32 or 64; `None` for the machine's widest.
    pub width: Option<usize>,
    /// The level of instructions to use; `None` for the machine's.
    pub level: Option<Isa>,
}

/// Why kernels could not be compiled. Not the user's mistake, and not expected.
#[derive(Clone, Debug)]
pub struct CodegenError {
    /// The kernel, if it is one's fault.
    pub kernel: String,
    /// What Cranelift or the host says.
    pub message: String,
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot compile kernel `{}`: {}", self.kernel, self.message)
    }
}

impl std::error::Error for CodegenError {}

/// The convention of compiled kernels: the caller's buffers (as [`Kernel::params`] lists them), the part of the parallel
/// loop to run, scratch memory ([`CompiledKernels::scratch_bytes`] of it, 64-byte aligned, one per thread) and the
/// kernel's constants. The result holds the bits of a [`Status`].
type Entry = unsafe extern "C" fn(*const *mut u8, usize, usize, *mut u8, *const u8) -> u32;

/// One function; kernels of equal structure share it.
struct Function {
    entry: Entry,
    /// Owns the code.
    _code: Arc<Code>,
    made: Made,
}

/// A function that has been defined, but not yet linked.
struct Made {
    id: FuncId,
    constants: AlignedBytes,
    code_bytes: usize,
    clif: String,
    asm: asm::Listing,
    /// Bytes of a vector.
    width: usize,
    /// Bytes of scratch memory of a call.
    scratch: usize,
    /// Why wider vectors were tried in vain.
    refused: Option<String>,
    /// Why the vectors are not the widest there are.
    narrow: Option<String>,
}

/// Compiled kernels. The memory of their code is freed when nothing that was compiled together is used any more.
pub struct CompiledKernels {
    functions: Vec<Arc<Function>>,
    /// The function of each kernel.
    kernels: Vec<usize>,
    /// How many buffers each kernel takes.
    arity: Vec<usize>,
}

/// The memory of functions that were compiled together; locked never, only kept.
struct Code(Mutex<Option<JITModule>>);

impl Drop for Code {
    fn drop(&mut self) {
        let module = match self.0.get_mut() {
            Ok(m) => m.take(),
            Err(e) => e.into_inner().take(),
        };
        if let Some(m) = module {
            // SAFETY: entries are reachable only through functions, each of which keeps its code.
            unsafe { m.free_memory() };
        }
    }
}

/// Cranelift's names for what the levels of x86-64 have, from v2 on.
const FEATURES: [(Isa, &str); 14] = [
    (Isa::Portable, "has_sse3"),
    (Isa::Portable, "has_ssse3"),
    (Isa::Portable, "has_sse41"),
    (Isa::Portable, "has_sse42"),
    (Isa::Portable, "has_popcnt"),
    (Isa::Avx2, "has_avx"),
    (Isa::Avx2, "has_avx2"),
    (Isa::Avx2, "has_fma"),
    (Isa::Avx2, "has_bmi1"),
    (Isa::Avx2, "has_bmi2"),
    (Isa::Avx2, "has_lzcnt"),
    (Isa::Avx512, "has_avx512f"),
    (Isa::Avx512, "has_avx512dq"),
    (Isa::Avx512, "has_avx512vl"),
];

/// The host's instruction set, or a level of it.
fn host(level: Option<Isa>) -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "none"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let flags = settings::Flags::new(flags);
    let mut builder = cranelift_native::builder_with_options(level.is_none())?;
    for (_, name) in FEATURES.iter().filter(|f| level.is_some_and(|l| f.0 <= l)) {
        builder.enable(name).map_err(|e| e.to_string())?;
    }
    builder.finish(flags).map_err(|e| e.to_string())
}

/// Compiles kernels. They must be verified ([`verify`](crate::kernel::verify())).
pub fn compile(kernels: &[Kernel], options: Options) -> Result<CompiledKernels, CodegenError> {
    compile_shared(kernels, options, &Cache::default())
}

/// [`compile`], with the functions that are in `cache` already; the others are there afterwards.
pub fn compile_shared(kernels: &[Kernel], options: Options, cache: &Cache) -> Result<CompiledKernels, CodegenError> {
    let fail = |kernel: &str, message: String| CodegenError {
        kernel: kernel.into(),
        message,
    };
    let mut unit = Unit::default();
    let mut known: HashMap<cache::Key, usize> = HashMap::new();
    let mut functions: Vec<Source> = vec![];
    let mut which = vec![];
    for k in kernels {
        let k = cache::general(k);
        let key = cache::key(&k, options);
        let at = match known.get(&key) {
            Some(&at) => at,
            None => {
                functions.push(match cache.get(&key) {
                    Some(f) => Source::Known(f),
                    None => {
                        let made = unit.function(&k, options).map_err(|e| fail(&k.name, e))?;
                        Source::New(key.clone(), Box::new(made))
                    }
                });
                known.insert(key, functions.len() - 1);
                functions.len() - 1
            }
        };
        which.push(at);
    }
    let link = |e: String| fail("", e);
    Ok(CompiledKernels {
        functions: unit.link(functions, cache).map_err(link)?,
        kernels: which,
        arity: kernels.iter().map(|k| k.params().count()).collect(),
    })
}

/// Where a function comes from.
enum Source {
    Known(Arc<Function>),
    New(cache::Key, Box<Made>),
}

/// What functions are compiled with; made for the first that is.
#[derive(Default)]
struct Unit(Option<(JITModule, Context, FunctionBuilderContext, usize)>);

impl Unit {
    fn function(&mut self, k: &Kernel, options: Options) -> Result<Made, String> {
        let (module, ctx, frontend, n) = match &mut self.0 {
            Some(parts) => parts,
            none => {
                let module = JITModule::new(JITBuilder::with_isa(host(options.level)?, default_libcall_names()));
                let ctx = module.make_context();
                none.insert((module, ctx, FunctionBuilderContext::new(), 0))
            }
        };
        *n += 1;
        one(k, module, ctx, frontend, options, *n - 1)
    }

    fn link(self, functions: Vec<Source>, cache: &Cache) -> Result<Vec<Arc<Function>>, String> {
        let mut module = self.0.map(|parts| parts.0);
        let mut entries = vec![];
        if let Some(m) = &mut module {
            m.finalize_definitions().map_err(|e| e.to_string())?;
            entries.extend(functions.iter().filter_map(|f| match f {
                Source::Known(_) => None,
                Source::New(_, made) => {
                    let p = m.get_finalized_function(made.id);
                    // SAFETY: the function was defined with this signature, in the host's C calling convention.
                    Some(unsafe { std::mem::transmute::<*const u8, Entry>(p) })
                }
            }));
        }
        let code = Arc::new(Code(Mutex::new(module)));
        let mut entries = entries.into_iter();
        let linked = functions.into_iter().map(|f| match f {
            Source::Known(f) => Ok(f),
            Source::New(key, made) => {
                let f = Arc::new(Function {
                    entry: entries.next().ok_or("a function is not linked")?,
                    _code: code.clone(),
                    made: *made,
                });
                cache.insert(key, &f);
                Ok(f)
            }
        });
        linked.collect()
    }
}

fn one(
    k: &Kernel,
    module: &mut JITModule,
    ctx: &mut Context,
    frontend: &mut FunctionBuilderContext,
    options: Options,
    n: usize,
) -> Result<Made, String> {
    let k = hoist(k);
    let level = options.level.map_or(usize::MAX, |l| 4 * l.lanes());
    let most = options.width.unwrap_or(usize::MAX).min(level).min(wide::widest());
    let (width, narrow) = wide::width(&k, most);
    let mut refused = None;
    if width > 16 {
        match attempt(&k, module, ctx, frontend, options, n, width) {
            Ok(f) => return Ok(Made { narrow, ..f }),
            Err(e) => refused = Some(e),
        }
        module.clear_context(ctx);
    }
    let f = attempt(&k, module, ctx, frontend, options, n, 16)?;
    Ok(Made { refused, narrow, ..f })
}

/// The function of a kernel for vectors of `width` bytes; fails if its code cannot be widened.
fn attempt(
    k: &Kernel,
    module: &mut JITModule,
    ctx: &mut Context,
    frontend: &mut FunctionBuilderContext,
    options: Options,
    n: usize,
    width: usize,
) -> Result<Made, String> {
    let mut table = table::Table::default();
    ctx.func.signature = func::signature(module.isa());
    ctx.func.name = ir::UserFuncName::user(0, n as u32);
    let x86 = module.isa().name() == "x64";
    ctx.set_disasm(options.text && !x86);
    func::define(
        k,
        module.isa(),
        width,
        &mut ctx.func,
        frontend,
        &mut table,
        options.text,
    );
    let clif = if options.text { clif(ctx) } else { String::new() };
    let wider = match width {
        16 => None,
        w => {
            ctx.compile(module.isa(), &mut Default::default())
                .map_err(|e| format!("{:?}", e.inner))?;
            let code = ctx.compiled_code().ok_or("no code")?;
            if !code.buffer.relocs().is_empty() {
                return Err("the code calls or refers to something outside".into());
            }
            Some(widen::widen(code.code_buffer(), w, func::may_stream(k)).map_err(|e| e.to_string())?)
        }
    };
    let id = module
        .declare_function(&format!("kernel{n}"), Linkage::Export, &ctx.func.signature)
        .map_err(|e| e.to_string())?;
    match &wider {
        Some(w) => module
            .define_function_bytes(id, 64, &w.code, &[])
            .map_err(|e| e.to_string())?,
        None => module.define_function(id, ctx).map_err(|e| format!("{e:?}"))?,
    }
    let code = ctx.compiled_code().ok_or("no code")?;
    let asm = listing(code, wider.as_ref(), options.text, x86);
    let f = Made {
        id,
        constants: AlignedBytes::from_slice(table.bytes()),
        code_bytes: wider.as_ref().map_or(code.code_buffer().len(), |w| w.code.len()),
        clif,
        width,
        scratch: rows::scratch_bytes(k),
        refused: None,
        narrow: None,
        asm,
    };
    module.clear_context(ctx);
    Ok(f)
}

/// The machine code of a function, if its text is wanted.
fn listing(code: &CompiledCode, wider: Option<&widen::Wide>, text: bool, x86: bool) -> asm::Listing {
    if !text {
        return asm::Listing::default();
    }
    if !x86 {
        return asm::Listing::of_text(code.vcode.as_deref().unwrap_or_default());
    }
    let places = code.buffer.get_srclocs_sorted().iter();
    let pieces = asm::pieces(places.map(|p| (p.start, p.end, p.loc)));
    match wider {
        Some(w) => asm::Listing::of_x86(&w.code, Some(&w.origins), &pieces),
        None => asm::Listing::of_x86(code.code_buffer(), None, &pieces),
    }
}

/// The text of a function in Cranelift's IR.
fn clif(ctx: &Context) -> String {
    let mut plain = ctx.func.clone();
    // They are of use to the assembly text alone.
    plain.srclocs.clear();
    plain.display().to_string()
}

impl CompiledKernels {
    /// How many kernels there are.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// How many functions there are; kernels of equal structure share one.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    fn function(&self, i: usize) -> &Made {
        &self.functions[self.kernels[i]].made
    }

    /// How many functions these kernels have that `other` kernels have too.
    pub fn shared_with(&self, other: &CompiledKernels) -> usize {
        let has = |f: &&Arc<Function>| other.functions.iter().any(|g| Arc::ptr_eq(f, g));
        self.functions.iter().filter(has).count()
    }

    /// Bytes of machine code of kernel `i`.
    pub fn code_bytes(&self, i: usize) -> usize {
        self.function(i).code_bytes
    }

    /// Bytes of scratch memory that a call of kernel `i` uses: [`Kernel::scratch_layout`]'s, for each row that its code works on
    /// at a time.
    pub fn scratch_bytes(&self, i: usize) -> usize {
        self.function(i).scratch
    }

    /// Bytes of the vectors of kernel `i`: 16, 32 or 64.
    pub fn width(&self, i: usize) -> usize {
        self.function(i).width
    }

    /// Why kernel `i` has narrower vectors than would suit it, if that is so.
    pub fn refused(&self, i: usize) -> Option<&str> {
        self.function(i).refused.as_deref()
    }

    /// Why the vectors of kernel `i` are not the widest of the target.
    pub fn why_narrow(&self, i: usize) -> Option<&str> {
        let f = self.function(i);
        f.refused.as_deref().or(f.narrow.as_deref())
    }

    /// Kernel `i` in Cranelift's intermediate representation; empty unless [`Options::text`] was set.
    pub fn clif(&self, i: usize) -> &str {
        &self.function(i).clif
    }

    /// The machine code of kernel `i`, which is `k`, as it runs: after widening. A comment that begins with `mark` says which node
    /// the code that follows computes, and `place` where that comes from. Empty unless [`Options::text`] was set.
    pub fn asm(&self, i: usize, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String {
        self.function(i).asm.text(k, mark, place)
    }

    /// How many buffers kernel `i` takes.
    pub fn arity(&self, i: usize) -> usize {
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
        assert_eq!(buffers.len(), self.arity[i], "buffers of kernel {i}");
        // SAFETY: the caller vouches for the buffers and the scratch memory; the code lives as long as `self`.
        Status(unsafe { (f.entry)(buffers.as_ptr(), begin, end, scratch, f.made.constants.bytes().as_ptr()) })
    }
}
