//! Relocatable machine code: it can be placed at any address once the addresses of the host functions that it calls
//! are filled in.

use super::{FunctionInfo, KernelFunction, host_function, host_functions};
use crate::target::Target;
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The final code of a function, without an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeImage {
    /// The code.
    pub bytes: Vec<u8>,
    /// The calls of host functions.
    pub calls: Vec<HostCall>,
}

/// A place in the code where the address of one of the [`host_functions`] belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostCall {
    /// Offset of the first of eight bytes.
    pub at: u32,
    /// The function.
    pub symbol: String,
}

/// The size of an address in code, in bytes.
const ADDRESS: usize = size_of::<u64>();

/// A function within a block of code.
pub(crate) struct LoadedFunction {
    /// The range of its code.
    pub code: Range<usize>,
    /// The calls of host functions, with offsets from the start of the function.
    pub calls: Vec<HostCall>,
    /// The function's properties.
    pub info: FunctionInfo,
}

/// Copies code into executable memory of this process. The host functions that it calls use the features of `target`, which
/// the processor has.
///
/// # Safety
/// Each function follows the calling convention of compiled kernels, is for this processor, and comes from
/// [`CodeImage`]s of this version of fxc.
pub(crate) unsafe fn load_functions(
    code: &[u8],
    functions: Vec<LoadedFunction>,
    target: Target,
) -> Result<Vec<Arc<KernelFunction>>, String> {
    let memory = Arc::new(place_code(code, &functions, target)?);
    let into_function = |f: LoadedFunction| {
        // SAFETY: the range was checked to be within the code, and the caller guarantees that it is the function of a
        // kernel.
        let entry = unsafe { memory.as_ptr().add(f.code.start) };
        let memory: Arc<dyn Any + Send + Sync> = memory.clone();
        // SAFETY: guaranteed by the caller; `memory` holds the code.
        Arc::new(unsafe { KernelFunction::new(entry, memory, f.info) })
    };
    Ok(functions.into_iter().map(into_function).collect())
}

/// Copies the code, fills in the addresses, and makes the copy executable and read-only.
fn place_code(code: &[u8], functions: &[LoadedFunction], target: Target) -> Result<Mmap, String> {
    if !cfg!(target_arch = "x86_64") {
        // Other processors require an instruction cache flush.
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
            let address = host_functions()[n].address(target) as u64;
            place
                .ok_or("an address is outside its function")?
                .copy_from_slice(&address.to_le_bytes());
        }
    }
    memory.make_exec().map_err(|e| e.to_string())
}
