//! The JIT: compiles kernels to machine code in this process's memory.

use super::cache::{self, Cache};
use super::function::FunctionWriter;
use super::{CodegenOptions, host_isa};
use crate::code::{
    CodeError, CompileKernels, CompiledKernels, FunctionInfo, KernelFunction, host_function, host_functions,
};
use crate::kernel::Kernel;
use crate::target::Target;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, default_libcall_names};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// Compiles kernels into this process's memory.
#[derive(Clone, Default)]
pub(crate) struct Jit {
    options: CodegenOptions,
    /// The functions that are already compiled.
    cache: Arc<Cache>,
}

impl Jit {
    /// A compiler that uses the function cache shared by all executables of this process.
    pub(crate) fn new(options: CodegenOptions) -> Jit {
        Jit {
            options,
            cache: Cache::of_process(),
        }
    }
}

impl CompileKernels for Jit {
    fn compile(&self, kernels: &[Kernel]) -> Result<CompiledKernels, CodeError> {
        let mut unit = CompileUnit::default();
        // The shared cache knows a function only once it is linked, and a model often repeats a kernel.
        let mut known: FxHashMap<cache::FunctionKey, usize> = FxHashMap::default();
        let (mut functions, mut which) = (vec![], vec![]);
        for k in kernels {
            // Code for any number of iterations of the outermost loop serves all sizes that differ in it alone.
            let extent = cache::general_extent(k);
            let key = cache::function_key(k, extent, self.options);
            let slot = match known.get(&key) {
                Some(&slot) => slot,
                None => {
                    functions.push(match self.cache.get(&key) {
                        Some(f) => FunctionSource::Known(f),
                        None => {
                            let k = cache::with_extent(k, extent);
                            let function = unit.define(&k, self.options).map_err(|e| code_error(&k.name, e))?;
                            FunctionSource::New(key.clone(), Box::new(function))
                        }
                    });
                    known.insert(key, functions.len() - 1);
                    functions.len() - 1
                }
            };
            which.push(slot);
        }
        let linked = unit.link(functions, &self.cache).map_err(|e| code_error("", e))?;
        Ok(CompiledKernels::new(kernels, linked, which))
    }
}

/// Compiles kernels without the shared cache. The kernels must be verified ([`verify`](crate::kernel::verify())).
pub fn compile_kernels(kernels: &[Kernel], options: CodegenOptions) -> Result<CompiledKernels, CodeError> {
    let jit = Jit {
        options,
        cache: Arc::default(),
    };
    jit.compile(kernels)
}

fn code_error(kernel: &str, message: String) -> CodeError {
    CodeError {
        kernel: kernel.into(),
        message,
    }
}

/// A function from the cache, or a new one.
enum FunctionSource {
    Known(Arc<KernelFunction>),
    New(cache::FunctionKey, Box<(FuncId, FunctionInfo)>),
}

/// The module and writer of newly compiled functions, and the number of functions so far. Created for the first
/// function that is not in the cache.
#[derive(Default)]
struct CompileUnit(Option<(JITModule, FunctionWriter, usize)>);

impl CompileUnit {
    fn define(&mut self, k: &Kernel, options: CodegenOptions) -> Result<(FuncId, FunctionInfo), String> {
        let (module, writer, n) = match &mut self.0 {
            Some(parts) => parts,
            none => {
                let mut builder = JITBuilder::with_isa(host_isa(options.target)?, default_libcall_names());
                let target = options.target.unwrap_or_else(Target::native);
                builder.symbol_lookup_fn(Box::new(move |symbol| host_address(symbol, target)));
                let module = JITModule::new(builder);
                let writer = FunctionWriter::new(&module, options);
                none.insert((module, writer, 0))
            }
        };
        *n += 1;
        writer.define(k, module, &format!("kernel{}", *n - 1))
    }

    fn link(self, functions: Vec<FunctionSource>, cache: &Cache) -> Result<Vec<Arc<KernelFunction>>, String> {
        let mut module = self.0.map(|parts| parts.0);
        let mut entries = vec![];
        if let Some(m) = &mut module {
            m.finalize_definitions().map_err(|e| e.to_string())?;
            entries.extend(functions.iter().filter_map(|f| match f {
                FunctionSource::Known(_) => None,
                FunctionSource::New(_, function) => Some(m.get_finalized_function(function.0)),
            }));
        }
        let memory: Arc<dyn Any + Send + Sync> = Arc::new(JitMemory(Mutex::new(module)));
        let mut entries = entries.into_iter();
        let linked = functions.into_iter().map(|f| match f {
            FunctionSource::Known(f) => Ok(f),
            FunctionSource::New(key, function) => {
                let entry = entries.next().ok_or("a new function has no address after linking")?;
                // SAFETY: the module defined the function with the kernels' calling convention, and `memory` owns the
                // module.
                let f = Arc::new(unsafe { KernelFunction::new(entry, memory.clone(), function.1) });
                cache.insert(key, &f);
                Ok(f)
            }
        });
        linked.collect()
    }
}

/// The address of a host function that compiled code calls.
fn host_address(symbol: &str, target: Target) -> Option<*const u8> {
    host_function(symbol).map(|n| host_functions()[n].address(target) as *const u8)
}

/// The memory of functions that were compiled together. The mutex is never locked; the module is only kept alive.
struct JitMemory(Mutex<Option<JITModule>>);

impl Drop for JitMemory {
    fn drop(&mut self) {
        let module = match self.0.get_mut() {
            Ok(m) => m.take(),
            Err(e) => e.into_inner().take(),
        };
        if let Some(m) = module {
            // SAFETY: entry points are reachable only through functions, and each function keeps its memory alive, so
            // none is left.
            unsafe { m.free_memory() };
        }
    }
}
