//! Compiles kernels to an object file, for linkers, disassemblers and files of compiled models.

use super::function::FunctionWriter;
use super::{CodegenOptions, host_isa};
use crate::code::CodeError;
use crate::kernel::Kernel;
use cranelift_module::{DataDescription, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

/// Compiles verified kernels to an object file. Kernel `i` is the function `kernel{i}`. Its constants are the data
/// `kernel{i}_constants`, aligned to 64 bytes; callers pass their address as the last argument. The code refers by name
/// to the [`host_functions`](crate::code::host_functions) that it calls.
pub(crate) fn emit_object(kernels: &[Kernel], options: CodegenOptions) -> Result<Vec<u8>, CodeError> {
    let fail = |kernel: &str, message: String| CodeError {
        kernel: kernel.into(),
        message,
    };
    let mut module = new_object_module(options).map_err(|e| fail("", e))?;
    let mut writer = FunctionWriter::new(&module, options);
    for (i, k) in kernels.iter().enumerate() {
        let symbol = format!("kernel{i}");
        let defined = writer.define(k, &mut module, &symbol);
        let (_, info) = defined.map_err(|e| fail(&k.name, e))?;
        define_constants(&mut module, &symbol, info.constants.bytes()).map_err(|e| fail(&k.name, e))?;
    }
    module.finish().emit().map_err(|e| fail("", e.to_string()))
}

fn new_object_module(options: CodegenOptions) -> Result<ObjectModule, String> {
    let builder = ObjectBuilder::new(host_isa(options.target)?, "fxc", default_libcall_names());
    Ok(ObjectModule::new(builder.map_err(|e| e.to_string())?))
}

fn define_constants(module: &mut ObjectModule, function: &str, bytes: &[u8]) -> Result<(), String> {
    let name = format!("{function}_constants");
    let id = module.declare_data(&name, Linkage::Export, false, false);
    let id = id.map_err(|e| e.to_string())?;
    let mut data = DataDescription::new();
    data.define(bytes.into());
    data.set_align(64);
    module.define_data(id, &data).map_err(|e| e.to_string())
}
