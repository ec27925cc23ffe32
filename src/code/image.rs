//! Machine code that is not where it runs yet: bytes that can stand at any address but for calls of this program's functions, which it
//! names.

use super::{FunctionInfo, KernelFunction, host_function, host_functions};
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// A function's final code, before it has an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeImage {
    /// The code.
    pub bytes: Vec<u8>,
    /// What it calls.
    pub calls: Vec<HostCall>,
}

/// A place in code that is to hold the address of one of the [`host_functions`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostCall {
    /// The first of eight bytes.
    pub at: u32,
    /// The function.
    pub symbol: String,
}

/// Bytes of an address in code.
const ADDRESS: usize = size_of::<u64>();

/// A function that code holds.
pub(crate) struct LoadedFunction {
    /// Where in the code.
    pub code: Range<usize>,
    /// What it calls; places are counted from the first byte of the function.
    pub calls: Vec<HostCall>,
    /// What else is known of it.
    pub info: FunctionInfo,
}

/// Puts code into executable memory of this process.
///
/// # Safety
/// Each function is code with the convention of compiled kernels for this processor, which [`CodeImage`]s of this version of fxc held.
pub(crate) unsafe fn load_functions(
    code: &[u8],
    functions: Vec<LoadedFunction>,
) -> Result<Vec<Arc<KernelFunction>>, String> {
    let memory = Arc::new(place_code(code, &functions)?);
    let into_function = |f: LoadedFunction| {
        // SAFETY: the part was found to be within the code, and by the caller's promise it is a kernel's function.
        let entry = unsafe { memory.as_ptr().add(f.code.start) };
        let memory: Arc<dyn Any + Send + Sync> = memory.clone();
        // SAFETY: the caller's promise; `memory` holds the code.
        Arc::new(unsafe { KernelFunction::new(entry, memory, f.info) })
    };
    Ok(functions.into_iter().map(into_function).collect())
}

/// A copy of the code with the addresses that it needs, which can run and not be written.
fn place_code(code: &[u8], functions: &[LoadedFunction]) -> Result<Mmap, String> {
    if !cfg!(target_arch = "x86_64") {
        // Other processors need their instruction cache told.
        return Err("code can only be loaded on x86-64".into());
    }
    let mut memory = MmapMut::map_anon(code.len().max(1)).map_err(|e| e.to_string())?;
    memory[..code.len()].copy_from_slice(code);
    for f in functions {
        let body = memory[..code.len()].get_mut(f.code.clone());
        let body = body.ok_or("a function is outside the code")?;
        for call in &f.calls {
            let n = host_function(&call.symbol).ok_or_else(|| format!("unknown function `{}`", call.symbol))?;
            let offset = call.at as usize;
            let place = body.get_mut(offset..offset.saturating_add(ADDRESS));
            let address = host_functions()[n].address as u64;
            place
                .ok_or("an address is outside its function")?
                .copy_from_slice(&address.to_le_bytes());
        }
    }
    memory.make_exec().map_err(|e| e.to_string())
}
