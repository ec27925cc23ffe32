//! Loads native parts: turns what [`write`](super::write) wrote back into an executable.

use super::check::check_program;
use super::decode::from_bytes;
use super::record::{FunctionRecord, PackRecord, ProgramRecord, TensorRecord};
use super::{Container, SectionKind, damaged};
use crate::code::{
    CodeError, CompileKernels, CompiledKernels, FunctionInfo, KernelFunction, LoadedFunction, load_functions,
};
use crate::diag::{Code, Diagnostic};
use crate::kernel::{Kernel, structural_key};
use crate::program::Program;
use crate::runtime::{Executable, ExecutableOptions};
use crate::target::Target;
use crate::tensor::{ALIGN, AlignedBytes, Storage, Tensor, byte_len};
use crate::types::{DType, Type};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An upper bound of the scratch memory of a kernel.
const MOST_SCRATCH: usize = 1 << 26;

/// The input types of a part.
pub(crate) fn read_key(file: &Container, part: u32) -> Result<Vec<Type>, Diagnostic> {
    let bytes = file.read(SectionKind::Key, part)?;
    from_bytes(bytes).map_err(|e| damaged(file.name(), format!("the types of its inputs: {e}")))
}

/// Loads the executable of a native part. The part must fit this build and processor
/// ([`NativeEntry::why_unfit`](super::NativeEntry::why_unfit)). `options` has the library for its features.
pub(crate) fn load_native(file: &Container, part: u32, options: &ExecutableOptions) -> Result<Executable, Diagnostic> {
    let unsound = |problem: String| damaged(file.name(), problem);
    let missed = Arc::new(AtomicBool::new(false));
    let record = read_program(file, part, &missed)?;
    let program = record.program;
    check_routines(file, &program, options)?;
    let code = LoadedCode::load(file, part, &program, record.functions, &record.kernels, options.target)?;
    let packs = map_packs(file, &program, &record.packs)?;
    let tensors = program.tensors();
    for (r, bytes) in record.packs.iter().zip(&packs) {
        // The plans have found their packed weights and hold them from now on.
        let known = &options.shared.packs;
        known.provide(tensors[r.tensor], r.at, r.key.clone(), bytes);
    }
    let options = ExecutableOptions {
        compiler: Arc::new(code),
        ..options.clone()
    };
    let executable = Executable::new(program, &options).map_err(|d| *d)?;
    match missed.load(Ordering::Relaxed) {
        false => Ok(executable),
        true => Err(unsound("a packed weight is missing".into())),
    }
}

/// Returns an error if steps call routines that this program does not have.
fn check_routines(file: &Container, program: &Program, options: &ExecutableOptions) -> Result<(), Diagnostic> {
    let called = program.routine_ops().into_iter();
    let missing = called.filter(|op| options.routines.find(op).is_none());
    let missing: Vec<String> = missing.map(|op| format!("`{op}`")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let title = format!(
        "`{}` calls {} that this program does not have: {}",
        file.name(),
        if missing.len() == 1 { "an op" } else { "ops" },
        missing.join(", ")
    );
    let d = Diagnostic::new(Code::E0604, title).note(
        "the code of these ops is not in the file; a build with only the feature `runtime` does not have it either",
    );
    Err(d
        .help("run the model with a build that has the feature `compiler`, and register custom ops first")
        .help("or compile a model that does not call them: `fxc compile MODEL -o FILE.fxc`"))
}

/// Checks everything in a native part except its code.
pub(crate) fn check_native(file: &Container, part: u32) -> Result<(), Diagnostic> {
    let record = read_program(file, part, &Arc::default())?;
    map_packs(file, &record.program, &record.packs).map(drop)
}

/// The program of a part, with its tensors. Reading a tensor that the file has only in packed form sets `missed`.
fn read_program(file: &Container, part: u32, missed: &Arc<AtomicBool>) -> Result<ProgramRecord<Program>, Diagnostic> {
    let bytes = file.read(SectionKind::Program, part)?;
    let record = from_bytes(bytes);
    let mut record: ProgramRecord<Program> =
        record.map_err(|e| damaged(file.name(), format!("its program cannot be read: {e}")))?;
    fill_tensors(file, &mut record.program, &record.tensors, missed)?;
    check_program(&record.program).map_err(|problem| damaged(file.name(), problem))?;
    Ok(record)
}

fn fill_tensors(
    file: &Container,
    program: &mut Program,
    records: &[TensorRecord],
    missed: &Arc<AtomicBool>,
) -> Result<(), Diagnostic> {
    let places = program.tensors_mut();
    if places.len() != records.len() {
        return Err(damaged(
            file.name(),
            format!("{} constants have {} records", places.len(), records.len()),
        ));
    }
    for (i, (place, r)) in places.into_iter().zip(records).enumerate() {
        *place = match r.at {
            Some(offset) => mapped_tensor(file, r.dtype, &r.shape, offset)?,
            None => absent_tensor(file, r, i, missed)?,
        };
    }
    Ok(())
}

/// The tensor whose elements begin at this offset of the file.
pub(crate) fn mapped_tensor(
    file: &Container,
    dtype: DType,
    shape: &[usize],
    offset: u64,
) -> Result<Tensor, Diagnostic> {
    let len = byte_len(dtype, shape).ok_or_else(|| damaged(file.name(), "a tensor is too large"))?;
    let bytes = file.large_bytes(offset, len as u64)?;
    if !bytes.start.is_multiple_of(ALIGN) {
        return Err(damaged(file.name(), "a tensor is not aligned"));
    }
    let storage = Storage::Mapped {
        map: file.map().clone(),
        offset: bytes.start,
        len,
    };
    Ok(Tensor::from_storage(dtype, shape, storage))
}

/// A weight that the file has only in packed form. If it is read nevertheless, because a packed form is missing, this
/// sets `missed`.
fn absent_tensor(
    file: &Container,
    r: &TensorRecord,
    number: usize,
    missed: &Arc<AtomicBool>,
) -> Result<Tensor, Diagnostic> {
    let len = byte_len(r.dtype, &r.shape).ok_or_else(|| damaged(file.name(), "a tensor is too large"))?;
    let (base, missed) = (Tensor::zeros(DType::U8, &[0]), missed.clone());
    let storage = Storage::deferred(base, Arc::new([number as u64]), len, move |_| {
        missed.store(true, Ordering::Relaxed);
        AlignedBytes::zeroed(len)
    });
    Ok(Tensor::from_storage(r.dtype, &r.shape, storage))
}

/// The packed weights, mapped from the file.
fn map_packs(
    file: &Container,
    program: &Program,
    records: &[PackRecord],
) -> Result<Vec<Arc<AlignedBytes>>, Diagnostic> {
    let count = program.tensors().len();
    let map = |r: &PackRecord| {
        if r.tensor >= count {
            return Err(damaged(file.name(), "a packed weight belongs to no constant"));
        }
        let bytes = AlignedBytes::mapped(file.map(), file.large_bytes(r.place.0, r.place.1)?);
        bytes
            .map(Arc::new)
            .ok_or_else(|| damaged(file.name(), "a packed weight is not aligned"))
    };
    records.iter().map(map).collect()
}

/// The functions in a file, by the kernels that they were compiled from.
struct LoadedCode(HashMap<Vec<u64>, Arc<KernelFunction>>);

impl LoadedCode {
    fn load(
        file: &Container,
        part: u32,
        program: &Program,
        functions: Vec<FunctionRecord>,
        kernels: &[u32],
        target: Target,
    ) -> Result<LoadedCode, Diagnostic> {
        let code = file.read(SectionKind::Code, part)?;
        let unsound = |problem: &str| damaged(file.name(), problem);
        let all = all_kernels(program);
        let sound = all.len() == kernels.len() && kernels.iter().all(|&f| (f as usize) < functions.len());
        if !sound {
            return Err(unsound("its functions do not match its kernels"));
        }
        let room = |(k, &f): (&&Kernel, &u32)| k.scratch_layout().1 <= functions[f as usize].scratch;
        if !all.iter().zip(kernels).all(room) {
            return Err(unsound("a kernel has too little scratch memory"));
        }
        let functions = functions.into_iter().map(|f| f.into_loaded(code));
        let functions: Option<Vec<LoadedFunction>> = functions.collect();
        let functions = functions.ok_or_else(|| unsound("a function is outside the code"))?;
        // SAFETY: the code has the checksum that was written with it, by this build of fxc, for features that this
        // processor has. Users trust compiled models as they trust programs: docs/security.md.
        let loaded = unsafe { load_functions(code, functions, target) };
        let loaded = loaded.map_err(|e| damaged(file.name(), format!("its code cannot be loaded: {e}")))?;
        let which = kernels.iter().map(|&f| loaded[f as usize].clone());
        Ok(LoadedCode(all.into_iter().map(structural_key).zip(which).collect()))
    }
}

/// The kernels of a program, followed by those of the programs that its steps run.
fn all_kernels(program: &Program) -> Vec<&Kernel> {
    let inner = program.nested().flat_map(all_kernels);
    program.kernels.iter().chain(inner).collect()
}

impl FunctionRecord {
    /// The function with its constants; `None` if they are outside of the code.
    fn into_loaded(self, code: &[u8]) -> Option<LoadedFunction> {
        let part = |(offset, len): (usize, usize)| -> Option<Range<usize>> {
            let range = offset..offset.checked_add(len)?;
            code.get(range.clone()).map(|_| range)
        };
        let sound = [16, 32, 64].contains(&self.width) && self.scratch <= MOST_SCRATCH && self.code.1 > 0;
        sound.then_some(())?;
        Some(LoadedFunction {
            code: part(self.code)?,
            calls: self.calls,
            info: FunctionInfo {
                constants: AlignedBytes::from_slice(&code[part(self.constants)?]),
                code_bytes: self.code.1,
                width: self.width,
                scratch: self.scratch,
                refused: self.refused,
                narrow: self.narrow,
                text: None,
                image: None,
            },
        })
    }
}

impl CompileKernels for LoadedCode {
    fn compile(&self, kernels: &[Kernel]) -> Result<CompiledKernels, CodeError> {
        let mut functions: Vec<Arc<KernelFunction>> = vec![];
        let mut which = vec![];
        for k in kernels {
            let function = self.0.get(&structural_key(k)).ok_or_else(|| CodeError {
                kernel: k.name.clone(),
                message: "the file contains no code for this kernel".into(),
            })?;
            let known = functions.iter().position(|f| Arc::ptr_eq(f, function));
            which.push(known.unwrap_or(functions.len()));
            if known.is_none() {
                functions.push(function.clone());
            }
        }
        Ok(CompiledKernels::new(kernels, functions, which))
    }

    fn is_compiler(&self) -> bool {
        false
    }
}
