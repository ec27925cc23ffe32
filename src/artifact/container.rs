//! The file format: a header, sections, and a table of the sections.
//!
//! ```text
//! 0   magic            8 bytes   1   bytes of a section begin at a multiple of its alignment
//! 8   format version   u32           (4096 for those that are mapped), all numbers are
//! 12  sections         u32           little-endian
//! 16  table's offset   u64
//! 24  file's length    u64       table: for each section 32 bytes
//! 32  table's CRC-32   u32       0  kind u32, part u32, offset u64, length u64, CRC-32 u32, 0 u32
//! 60  header's CRC-32  u32
//! ```

use super::crc::{Crc, crc_of};
use super::damaged;
use crate::diag::{Code, Diagnostic};
use crate::fs::OutputFile;
use crate::tensor::{COMPILED_MAGIC, map_file};
use memmap2::Mmap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The format version that is written. Readers accept this version and earlier ones.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The alignment of mapped sections.
const PAGE: u64 = 4096;
const HEADER: usize = 64;
const ENTRY: usize = 32;

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SectionKind {
    /// The manifest, as JSON.
    Manifest = 1,
    /// The inputs, as FXIR.
    Signature = 2,
    /// The graphs, as FXIR.
    Graph = 3,
    /// The names, types and places of the weights, as JSON.
    WeightIndex = 4,
    /// The weights' elements.
    Weights = 5,
    /// The input types of a native part.
    Key = 6,
    /// The program of a native part.
    Program = 7,
    /// The machine code of a native part, with the constants that it reads.
    Code = 8,
    /// The data of a native part: packed weights, and constants that are not among the weights.
    Data = 9,
}

impl SectionKind {
    const ALL: [SectionKind; 9] = [
        SectionKind::Manifest,
        SectionKind::Signature,
        SectionKind::Graph,
        SectionKind::WeightIndex,
        SectionKind::Weights,
        SectionKind::Key,
        SectionKind::Program,
        SectionKind::Code,
        SectionKind::Data,
    ];

    /// Whether the section is as large as the weights. Such a section is mapped, and its checksum is verified only on
    /// request.
    pub(crate) fn is_large(self) -> bool {
        matches!(self, SectionKind::Weights | SectionKind::Data)
    }

    /// Whether each native part has a section of this kind.
    pub(crate) fn is_of_part(self) -> bool {
        matches!(
            self,
            SectionKind::Key | SectionKind::Program | SectionKind::Code | SectionKind::Data
        )
    }

    /// The name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SectionKind::Manifest => "manifest",
            SectionKind::Signature => "signature",
            SectionKind::Graph => "graph",
            SectionKind::WeightIndex => "weight index",
            SectionKind::Weights => "weights",
            SectionKind::Key => "key",
            SectionKind::Program => "program",
            SectionKind::Code => "code",
            SectionKind::Data => "data",
        }
    }
}

/// A section of a file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub kind: SectionKind,
    /// The native part that it belongs to; 0 for sections of the portable part.
    pub part: u32,
    pub bytes: Range<usize>,
    crc: u32,
}

/// An open file with a valid header and table.
pub(crate) struct Container {
    map: Arc<Mmap>,
    name: String,
    sections: Vec<Section>,
}

fn u32_at(b: &[u8], offset: usize) -> u32 {
    b.get(offset..offset + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(b: &[u8], offset: usize) -> u64 {
    u32_at(b, offset) as u64 | (u32_at(b, offset + 4) as u64) << 32
}

impl Container {
    /// Opens a file and reads its header and table.
    pub(crate) fn open(path: &Path) -> Result<Container, Diagnostic> {
        let name = path.display().to_string();
        let map = map_file(path).map_err(|e| Diagnostic::new(Code::E0701, format!("cannot read `{name}`: {e}")))?;
        let sections = read_table(&map).map_err(|problem| match problem {
            Unsound::Damaged(problem) => damaged(&name, problem),
            Unsound::Foreign => {
                let title = format!("`{name}` is not a compiled model");
                Diagnostic::new(Code::E0409, title).help(format!("compile it: `fxc compile {name} -o FILE.fxc`"))
            }
            Unsound::Newer(version) => {
                let title = format!("`{name}` has format {version}, but this fxc reads formats up to {FORMAT_VERSION}");
                Diagnostic::new(Code::E0409, title).help("use a newer fxc, or recompile the model with this one")
            }
        })?;
        Ok(Container { map, name, sections })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The mapped file.
    pub(crate) fn map(&self) -> &Arc<Mmap> {
        &self.map
    }

    /// All sections, in file order.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this kind and part.
    pub(crate) fn find(&self, kind: SectionKind, part: u32) -> Option<&Section> {
        self.sections.iter().find(|s| s.kind == kind && s.part == part)
    }

    /// The bytes of a section; an error if the checksum does not match.
    pub(crate) fn read(&self, kind: SectionKind, part: u32) -> Result<&[u8], Diagnostic> {
        let section = self.find(kind, part);
        let section = section.ok_or_else(|| damaged(&self.name, format!("it has no {} section", kind.name())))?;
        self.check(section)
    }

    /// [`Container::read`] of a text.
    pub(crate) fn read_text(&self, kind: SectionKind) -> Result<&str, Diagnostic> {
        std::str::from_utf8(self.read(kind, 0)?)
            .map_err(|_| damaged(&self.name, format!("the {} section is not UTF-8", kind.name())))
    }

    /// The bytes of a section; an error if the checksum does not match.
    pub(crate) fn check(&self, section: &Section) -> Result<&[u8], Diagnostic> {
        let bytes = &self.map[section.bytes.clone()];
        match crc_of(bytes) == section.crc {
            true => Ok(bytes),
            false => {
                let problem = format!("the checksum of the {} section does not match", section.kind.name());
                Err(damaged(&self.name, problem))
            }
        }
    }

    /// Bytes of a large section at an offset that another section records.
    pub(crate) fn large_bytes(&self, offset: u64, len: u64) -> Result<Range<usize>, Diagnostic> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(len).ok());
        let range = range.and_then(|(offset, len)| Some(offset..offset.checked_add(len)?));
        let within = |r: &Range<usize>| {
            let mut large = self.sections.iter().filter(|s| s.kind.is_large());
            large.any(|s| s.bytes.start <= r.start && r.end <= s.bytes.end)
        };
        range
            .filter(within)
            .ok_or_else(|| damaged(&self.name, "a record refers to bytes outside the data sections"))
    }
}

/// The reason why a file cannot be used.
enum Unsound {
    Damaged(&'static str),
    /// It is not a compiled model.
    Foreign,
    Newer(u32),
}

fn read_table(map: &[u8]) -> Result<Vec<Section>, Unsound> {
    use Unsound::Damaged;
    if !map.starts_with(COMPILED_MAGIC) {
        return Err(Unsound::Foreign);
    }
    let header = map.get(..HEADER).ok_or(Damaged("its header is truncated"))?;
    // Check the version first: in a newer format everything after it may differ.
    if u32_at(header, 8) > FORMAT_VERSION {
        return Err(Unsound::Newer(u32_at(header, 8)));
    }
    if crc_of(&header[..HEADER - 4]) != u32_at(header, HEADER - 4) || u32_at(header, 8) == 0 {
        return Err(Damaged("the checksum of its header does not match"));
    }
    if u64_at(header, 24) != map.len() as u64 {
        return Err(Damaged("its length does not match its header"));
    }
    let size = (u32_at(header, 12) as usize).checked_mul(ENTRY);
    let offset = usize::try_from(u64_at(header, 16)).ok();
    let table = offset
        .zip(size)
        .and_then(|(offset, size)| map.get(offset..offset.checked_add(size)?));
    let table = table.ok_or(Damaged("its section table is out of bounds"))?;
    if crc_of(table) != u32_at(header, 32) {
        return Err(Damaged("the checksum of its section table does not match"));
    }
    let sections = table.chunks_exact(ENTRY).filter_map(|e| read_entry(e, map.len()));
    sections
        .collect::<Option<Vec<_>>>()
        .ok_or(Damaged("a section is out of bounds"))
}

/// The section that a table entry describes; `Some(None)` if it is outside of the file's `len` bytes. Unknown kinds
/// come from a later minor version and are ignored.
fn read_entry(e: &[u8], len: usize) -> Option<Option<Section>> {
    let kind = SectionKind::ALL.into_iter().find(|k| *k as u32 == u32_at(e, 0))?;
    let range = usize::try_from(u64_at(e, 8))
        .ok()
        .zip(usize::try_from(u64_at(e, 16)).ok());
    let bytes = range.and_then(|(start, size)| Some(start..start.checked_add(size)?));
    Some(bytes.filter(|r| r.end <= len).map(|bytes| Section {
        kind,
        part: u32_at(e, 4),
        bytes,
        crc: u32_at(e, 24),
    }))
}

/// Writes a file section by section.
pub(crate) struct ContainerWriter {
    file: OutputFile,
    at: u64,
    sections: Vec<(SectionKind, u32, Range<u64>, u32)>,
    /// The section being written: its kind, part, start offset and checksum so far.
    open: Option<(SectionKind, u32, u64, Crc)>,
}

impl ContainerWriter {
    /// Begins a file that will be at `path` when it is finished.
    pub(crate) fn create(path: &Path) -> std::io::Result<ContainerWriter> {
        let mut file = OutputFile::create(path)?;
        file.write_all(&[0; HEADER])?;
        Ok(ContainerWriter {
            file,
            at: HEADER as u64,
            sections: vec![],
            open: None,
        })
    }

    /// Begins a section and ends the previous one.
    pub(crate) fn begin(&mut self, kind: SectionKind, part: u32) -> std::io::Result<()> {
        self.end();
        let align = if kind.is_large() { PAGE } else { 64 };
        self.fill_to(align)?;
        self.open = Some((kind, part, self.at, Crc::new()));
        Ok(())
    }

    /// Adds bytes to the section.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if let Some((.., crc)) = &mut self.open {
            crc.update(bytes);
        }
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Adds bytes at a multiple of `align` and returns their offset.
    pub(crate) fn write_aligned(&mut self, bytes: &[u8], align: u64) -> std::io::Result<u64> {
        self.fill_to(align)?;
        let offset = self.at;
        self.write(bytes)?;
        Ok(offset)
    }

    /// The offset at which the section began.
    pub(crate) fn section_start(&self) -> u64 {
        self.open.as_ref().map_or(self.at, |o| o.2)
    }

    /// Writes a section with these bytes.
    pub(crate) fn add(&mut self, kind: SectionKind, part: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.begin(kind, part)?;
        self.write(bytes)
    }

    fn fill_to(&mut self, align: u64) -> std::io::Result<()> {
        let gap = self.at.next_multiple_of(align) - self.at;
        self.write(&vec![0; gap as usize])
    }

    fn end(&mut self) {
        if let Some((kind, part, begin, crc)) = self.open.take() {
            self.sections.push((kind, part, begin..self.at, crc.finalize()));
        }
    }

    /// [`ContainerWriter::finish`] for a file whose code runs without further checks: it is on disk before it appears.
    pub(crate) fn finish_on_disk(mut self) -> std::io::Result<u64> {
        self.complete()?;
        self.file.finish_on_disk()?;
        Ok(self.at)
    }

    /// Completes the file. Returns its length.
    pub(crate) fn finish(mut self) -> std::io::Result<u64> {
        self.complete()?;
        self.file.finish()?;
        Ok(self.at)
    }

    /// Writes the table and the header.
    fn complete(&mut self) -> std::io::Result<()> {
        self.end();
        self.fill_to(8)?;
        let table: Vec<u8> = self.sections.iter().flat_map(table_entry).collect();
        let table_at = self.at;
        self.write(&table)?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(COMPILED_MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&(self.sections.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&table_at.to_le_bytes());
        header[24..32].copy_from_slice(&self.at.to_le_bytes());
        header[32..36].copy_from_slice(&crc_of(&table).to_le_bytes());
        let crc = crc_of(&header[..HEADER - 4]);
        header[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)
    }
}

fn table_entry((kind, part, bytes, crc): &(SectionKind, u32, Range<u64>, u32)) -> [u8; ENTRY] {
    let mut e = [0; ENTRY];
    e[..4].copy_from_slice(&(*kind as u32).to_le_bytes());
    e[4..8].copy_from_slice(&part.to_le_bytes());
    e[8..16].copy_from_slice(&bytes.start.to_le_bytes());
    e[16..24].copy_from_slice(&(bytes.end - bytes.start).to_le_bytes());
    e[24..28].copy_from_slice(&crc.to_le_bytes());
    e
}
