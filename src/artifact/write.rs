//! Writes native parts: the program, code and packed weights of an executable.

use super::encode::to_bytes;
use super::record::{FunctionRecord, PackRecord, ProgramRecord, TensorRecord};
use super::{ContainerWriter, SectionKind, WeightRecord};
use crate::code::KernelFunction;
use crate::math::contract::Pack;
use crate::program::{BufferId, BufferPlace, Program};
use crate::runtime::Executable;
use crate::tensor::{ALIGN, AlignedBytes, BytesId, Tensor};
use crate::types::Type;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// Packed weights of at least this size begin at a page boundary.
const PAGED: usize = 64 << 10;

/// The reason why a part was not written.
pub(crate) enum WriteError {
    /// The file cannot be written.
    Io(io::Error),
    /// This part cannot be stored in a file.
    NoForm(String),
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> WriteError {
        WriteError::Io(e)
    }
}

/// Writes weights and native parts. Data that several parts share is written once.
#[derive(Default)]
pub(crate) struct NativeWriter {
    /// The offsets of tensors that have been written.
    tensors: HashMap<BytesId, u64>,
    /// Keeps tensors alive, because the ids of their bytes are valid only as long as they live.
    held: Vec<Tensor>,
    /// The offsets of packed weights, by address. The weights are kept alive, because an address is valid only as
    /// long as they live.
    packs: HashMap<usize, (Arc<AlignedBytes>, u64)>,
    parts: u32,
}

impl NativeWriter {
    /// Writes the weights section.
    pub(crate) fn write_weights<'a>(
        &mut self,
        file: &mut ContainerWriter,
        weights: impl Iterator<Item = (&'a str, &'a Tensor)>,
    ) -> io::Result<Vec<WeightRecord>> {
        file.begin(SectionKind::Weights, 0)?;
        let mut records = vec![];
        for (name, t) in weights {
            let offset = self.write_tensor(file, t)?;
            records.push(WeightRecord {
                name: name.into(),
                kind: String::new(),
                dtype: t.dtype(),
                shape: t.shape().to_vec(),
                at: offset,
                len: t.byte_count() as u64,
            });
        }
        Ok(records)
    }

    fn write_tensor(&mut self, file: &mut ContainerWriter, t: &Tensor) -> io::Result<u64> {
        let id = t.life().bytes_id().clone();
        if let Some(&offset) = self.tensors.get(&id) {
            return Ok(offset);
        }
        let offset = t.with_bytes(|bytes| file.write_aligned(bytes, ALIGN as u64))?;
        t.release_pages();
        self.tensors.insert(id, offset);
        self.held.push(t.clone());
        Ok(offset)
    }

    /// Writes a native part for these input types.
    pub(crate) fn write_part(
        &mut self,
        file: &mut ContainerWriter,
        source: &PartSource,
        inputs: &[Type],
    ) -> Result<(), WriteError> {
        let part = self.parts;
        file.begin(SectionKind::Data, part)?;
        let tensors = self.write_tensors(file, source)?;
        let packs = self.write_packs(file, source)?;
        file.begin(SectionKind::Code, part)?;
        let functions = source.code.write(file)?;
        let record = ProgramRecord {
            program: &source.program,
            tensors,
            functions,
            kernels: source.code.kernels.clone(),
            packs,
        };
        let bytes = to_bytes(&record).map_err(|e| WriteError::NoForm(format!("the program: {e}")))?;
        file.add(SectionKind::Program, part, &bytes)?;
        let key = to_bytes(inputs).map_err(|e| WriteError::NoForm(format!("the inputs' types: {e}")))?;
        file.add(SectionKind::Key, part, &key)?;
        self.parts += 1;
        Ok(())
    }

    fn write_tensors(&mut self, file: &mut ContainerWriter, source: &PartSource) -> io::Result<Vec<TensorRecord>> {
        let mut records = vec![];
        for (i, t) in source.program.tensors().into_iter().enumerate() {
            let known = self.tensors.get(t.life().bytes_id()).copied();
            let offset = match known {
                None if source.unread.contains(&i) => None,
                _ => Some(self.write_tensor(file, t)?),
            };
            records.push(TensorRecord {
                dtype: t.dtype(),
                shape: t.shape().to_vec(),
                at: offset,
            });
        }
        Ok(records)
    }

    fn write_packs(&mut self, file: &mut ContainerWriter, source: &PartSource) -> Result<Vec<PackRecord>, WriteError> {
        let tensors = source.program.tensors().into_iter().enumerate();
        // Use the first of equal constants.
        let mut places: HashMap<BytesId, usize> = HashMap::new();
        for (i, t) in tensors {
            places.entry(t.life().bytes_id().clone()).or_insert(i);
        }
        let mut records = vec![];
        for pack in &source.packs {
            let tensor = places.get(&pack.constant).copied();
            let tensor = tensor.ok_or_else(|| WriteError::NoForm("a packed weight belongs to no constant".into()))?;
            let offset = match self.packs.get(&(Arc::as_ptr(&pack.bytes) as usize)) {
                Some((_, offset)) => *offset,
                None => {
                    let bytes = pack.bytes.bytes();
                    let align = if bytes.len() < PAGED { ALIGN } else { 4096 };
                    let offset = file.write_aligned(bytes, align as u64)?;
                    let held = (pack.bytes.clone(), offset);
                    self.packs.insert(Arc::as_ptr(&pack.bytes) as usize, held);
                    offset
                }
            };
            records.push(PackRecord {
                tensor,
                at: pack.at,
                key: pack.key.clone(),
                place: (offset, pack.bytes.bytes().len() as u64),
            });
        }
        // Sort into program order, which does not depend on addresses.
        records.sort_by(|a, b| (a.tensor, a.at, &a.key).cmp(&(b.tensor, b.at, &b.key)));
        Ok(records)
    }
}

/// The indices of the executable's tensors that runs read only in packed form.
fn unread_tensors(executable: &Executable) -> HashSet<usize> {
    let packed: HashSet<&BytesId> = executable.packed_constants().iter().map(|p| &p.constant).collect();
    let buffers = executable.program().buffers.iter().enumerate();
    let constants = buffers.filter_map(|(i, b)| match &b.place {
        BufferPlace::Constant(t) => Some((BufferId(i), t)),
        _ => None,
    });
    // A program's constants come first among its tensors.
    let unread = constants
        .enumerate()
        .filter(|(_, (b, t))| !executable.reads(*b) && packed.contains(t.life().bytes_id()));
    unread.map(|(i, _)| i).collect()
}

/// The source of a native part. It does not refer to the executable, so that another thread can write it while calls
/// run.
pub(crate) struct PartSource {
    program: Program,
    /// The indices of tensors that runs read only in packed form.
    unread: HashSet<usize>,
    packs: Vec<Pack>,
    code: CodeLayout,
}

impl PartSource {
    /// Creates the source from an executable whose code images were kept.
    pub(crate) fn of_executable(executable: &Executable) -> Result<PartSource, WriteError> {
        Ok(PartSource {
            code: CodeLayout::of_executable(executable)?,
            program: executable.program().clone(),
            unread: unread_tensors(executable),
            packs: executable.packed_constants().to_vec(),
        })
    }

    /// An upper bound of the bytes that an executable's weights and constants need in a file.
    pub(crate) fn data_bytes(executable: &Executable) -> usize {
        let unread = unread_tensors(executable);
        let tensors = executable.program().tensors().into_iter().enumerate();
        let read = tensors.filter(|(i, _)| !unread.contains(i));
        let packed = executable.packed_constants().iter().map(|p| p.bytes.bytes().len());
        read.map(|(_, t)| t.byte_count()).chain(packed).sum()
    }

    /// The steps of the program.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }
}

/// The functions of an executable and of the executables that it runs.
struct CodeLayout {
    functions: Vec<Arc<KernelFunction>>,
    kernels: Vec<u32>,
}

impl CodeLayout {
    fn of_executable(executable: &Executable) -> Result<CodeLayout, WriteError> {
        let mut out = CodeLayout {
            functions: vec![],
            kernels: vec![],
        };
        out.add(executable);
        match out.functions.iter().all(|f| f.info().image.is_some()) {
            true => Ok(out),
            false => Err(WriteError::NoForm("code with addresses of this process".into())),
        }
    }

    fn add(&mut self, executable: &Executable) {
        let (kernels, before) = (executable.kernels(), self.functions.len());
        self.functions.extend_from_slice(kernels.shared_functions());
        let which = (0..kernels.len()).map(|i| (before + kernels.function_index(i)) as u32);
        self.kernels.extend(which);
        executable.nested().for_each(|e| self.add(e));
    }

    fn write(&self, file: &mut ContainerWriter) -> io::Result<Vec<FunctionRecord>> {
        let begin = file.section_start();
        let mut add = |bytes: &[u8]| -> io::Result<(usize, usize)> {
            let offset = file.write_aligned(bytes, ALIGN as u64)?;
            Ok(((offset - begin) as usize, bytes.len()))
        };
        let mut records = vec![];
        for f in self.functions.iter().map(|f| f.info()) {
            let Some(image) = &f.image else { continue };
            records.push(FunctionRecord {
                code: add(&image.bytes)?,
                calls: image.calls.clone(),
                constants: add(f.constants.bytes())?,
                width: f.width,
                scratch: f.scratch,
                refused: f.refused.clone(),
                narrow: f.narrow.clone(),
            });
        }
        Ok(records)
    }
}
