//! Tables of which kernels read only some rows: embeddings.
//!
//! A table in a mapped file is not read in place. Systems map files in units that are much larger than a row (Linux,
//! from 6.18 on, maps a whole folio of its cache, up to 2 MiB, for one element), and the whole unit becomes resident.
//! Instead, the rows that indices refer to are copied, each once, to memory of the table's size whose other pages are
//! never touched. The file's pages are then released. The same table is often also a packed weight (tied embeddings);
//! then only the packed weight is resident.

use crate::kernel::{Buf, BufferRole, IndexBound, Inst, Kernel, Stmt, Value};
use crate::program::{BufferId, BufferPlace, Contract, Program, Step, whole_buffer};
use crate::scalar::ScalarOp;
use crate::tensor::Tensor;
use crate::types::DType;
use memmap2::MmapMut;
use std::collections::HashMap;
use std::slice::from_raw_parts;

/// Tables smaller than this are read in place.
const LEAST: usize = 2 << 20;
/// The number of rows after which the file's pages are released. Larger values need fewer system calls, but each row
/// may keep 2 MiB resident.
const RELEASED: usize = 4;

/// A table with the rows that have been requested so far.
pub(super) struct SparseTable {
    /// The table's buffer in the program.
    pub buffer: BufferId,
    source: Tensor,
    memory: MmapMut,
    /// Whether each row has been copied.
    have: Vec<bool>,
    /// The size of a row in bytes.
    row: usize,
}

/// A kernel that reads a table by the elements of another buffer.
pub(super) struct Gather {
    step: usize,
    /// The index of the table.
    table: usize,
    ids: BufferId,
    wide: bool,
    count: usize,
    bound: IndexBound,
}

/// The tables of a program that can be read row by row, and the steps that read them.
#[derive(Default)]
pub(super) struct Tables {
    pub all: Vec<SparseTable>,
    gathers: Vec<Gather>,
}

/// How a kernel reads a table: by elements of this buffer, which are brought into range by this rule. Also the number
/// of elements of a row.
#[derive(Clone, Copy, PartialEq)]
struct Reads {
    ids: Buf,
    rows: usize,
    bound: IndexBound,
    row: usize,
}

impl Tables {
    /// Finds the tables.
    pub(super) fn find_in(program: &Program) -> Tables {
        let mut out = Tables::default();
        let results: Vec<BufferId> = program.output.iter().flat_map(|o| o.leaves()).map(|l| l.0).collect();
        let of_kernels = kernel_buffers(program);
        for (i, buffer) in program.buffers.iter().enumerate() {
            let BufferPlace::Constant(source) = &buffer.place else {
                continue;
            };
            let b = BufferId(i);
            if !of_kernels[i] || buffer.byte_count() < LEAST || !source.is_mapped() || results.contains(&b) {
                continue;
            }
            let Some(readers) = find_readers(program, b) else {
                continue;
            };
            let Some((_, first)) = readers.first() else { continue };
            let (row, rows) = (first.row * buffer.dtype.size(), first.rows);
            let same = readers.iter().all(|(_, r)| (r.row, r.rows) == (first.row, rows));
            let (true, Some(memory)) = (
                same && row.checked_mul(rows) == Some(buffer.byte_count()),
                map_zeroed(buffer.byte_count()),
            ) else {
                continue;
            };
            let table = out.all.len();
            out.gathers
                .extend(readers.iter().map(|&(step, r)| make_gather(program, step, table, r)));
            out.all.push(SparseTable {
                buffer: b,
                source: source.clone(),
                memory,
                have: vec![false; rows],
                row,
            });
        }
        out
    }

    /// Copies the rows that a step will read.
    ///
    /// # Safety
    /// `addresses` are those of the program's buffers, and the step's indices have been computed.
    pub(super) unsafe fn fetch_rows(&mut self, step: usize, addresses: &[*mut u8]) {
        for g in self.gathers.iter().filter(|g| g.step == step) {
            let (data, table) = (addresses[g.ids.0].cast_const(), &mut self.all[g.table]);
            if g.count == 0 {
                continue;
            }
            // SAFETY: the buffer has these elements, and kernels only read it.
            unsafe {
                match g.wide {
                    true => table.fetch_rows(from_raw_parts(data.cast::<i64>(), g.count).iter().copied(), g.bound),
                    false => {
                        let ids = from_raw_parts(data.cast::<i32>(), g.count).iter();
                        table.fetch_rows(ids.map(|&i| i.into()), g.bound);
                    }
                }
            }
        }
    }
}

/// Zeros in pages that the system provides when they are first written, without huge pages.
fn map_zeroed(bytes: usize) -> Option<MmapMut> {
    let memory = MmapMut::map_anon(bytes).ok()?;
    #[cfg(target_os = "linux")]
    // Systems without huge pages reject this request, which is fine.
    let _ = memory.advise(memmap2::Advice::NoHugePage);
    Some(memory)
}

/// For each buffer, whether it is a parameter of a kernel.
fn kernel_buffers(program: &Program) -> Vec<bool> {
    let mut found = vec![false; program.buffers.len()];
    for step in &program.steps {
        if let Step::Kernel { buffers, .. } = step {
            buffers.iter().for_each(|b| found[b.0] = true);
        }
    }
    found
}

fn make_gather(program: &Program, step: usize, table: usize, r: Reads) -> Gather {
    let ids = match &program.steps[step] {
        Step::Kernel { buffers, .. } => buffers[r.ids.0 as usize],
        _ => unreachable!("tables are read by kernels"),
    };
    let buffer = &program.buffers[ids.0];
    Gather {
        step,
        table,
        ids,
        wide: buffer.dtype == DType::I64,
        count: buffer.shape.iter().product(),
        bound: r.bound,
    }
}

/// The steps whose kernels read rows of the constant `b`. `None` if other steps read it, except to pack it.
fn find_readers(program: &Program, b: BufferId) -> Option<Vec<(usize, Reads)>> {
    let mut readers = vec![];
    for (i, step) in program.steps.iter().enumerate() {
        if !step.uses(b) {
            continue;
        }
        match step {
            Step::Kernel { kernel, buffers } => {
                let place = buffers.iter().position(|x| *x == b)?;
                let again = buffers[place + 1..].contains(&b);
                readers.push((
                    i,
                    find_row_reads(&program.kernels[*kernel], Buf(place as u32)).filter(|_| !again)?,
                ));
            }
            Step::Contract { contract, tail, .. }
                if packs_constant(program, contract, b) && !tail.iter().any(|t| t.buffers.contains(&b)) => {}
            _ => return None,
        }
    }
    Some(readers)
}

/// Whether a contraction packs the constant `b`, so that runs do not read it.
fn packs_constant(program: &Program, contract: &Contract, b: BufferId) -> bool {
    let Contract::MatMul(d, o) = contract else { return false };
    let is = |i: usize| o.get(i).is_some_and(|o| o.buffer == b);
    let constant = |i: usize| {
        let whole = o.get(i).and_then(whole_buffer);
        whole.is_some_and(|b| matches!(program.buffers[b.0].place, BufferPlace::Constant(_)))
    };
    d.dtype == DType::F32 && is(1) && constant(1) && !constant(0) && (2..o.len()).all(|i| !is(i))
}

/// How a kernel reads the buffer `table`, if it reads only rows, by the elements of one buffer.
fn find_row_reads(k: &Kernel, table: Buf) -> Option<Reads> {
    let mut values = HashMap::new();
    let mut loads = vec![];
    collect_insts(&k.body, &mut values, &mut |inst| {
        if let Inst::Load(b, index, _) = inst
            && *b == table
        {
            loads.push(index.clone());
        }
    });
    let mut reads = None;
    for index in loads {
        let [(value, stride)] = index.dynamic[..] else {
            return None;
        };
        let row = usize::try_from(stride).ok()?;
        let (lo, hi) = index.affine.value_range(|v| k.extent(v).max(1));
        if lo < 0 || hi >= row as i128 {
            return None;
        }
        let (ids, rows, bound) = index_of(k, &values, value)?;
        let read = Reads { ids, rows, bound, row };
        if reads.is_some_and(|f| f != read) {
            return None;
        }
        reads = Some(read);
    }
    reads
}

/// The instruction of every value.
fn collect_insts<'a>(body: &'a [Stmt], values: &mut HashMap<Value, &'a Inst>, seen: &mut impl FnMut(&Inst)) {
    for s in body {
        match s {
            Stmt::Let(v, inst) => {
                seen(inst);
                values.insert(*v, inst);
            }
            Stmt::Loop(l) => collect_insts(&l.body, values, seen),
            Stmt::Store(..) => {}
        }
    }
}

/// The buffer whose elements are row numbers, the number of rows, and the rule for numbers out of range.
fn index_of(k: &Kernel, values: &HashMap<Value, &Inst>, value: Value) -> Option<(Buf, usize, IndexBound)> {
    let Inst::Bounded(x, rows, bound) = values.get(&value)? else {
        return None;
    };
    let mut inst = *values.get(x)?;
    if let Inst::Op(ScalarOp::Cast(DType::I64, x)) = inst {
        inst = *values.get(x)?;
    }
    match inst {
        Inst::Load(b, index, None) if index.dynamic.is_empty() => {
            let ids = k.buffer(*b);
            let suits = ids.role == BufferRole::In && matches!(ids.dtype, DType::I64 | DType::I32);
            suits.then_some((*b, *rows, *bound))
        }
        _ => None,
    }
}

impl SparseTable {
    /// Where the rows are.
    pub(super) fn address(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    fn fetch_rows(&mut self, ids: impl Iterator<Item = i64>, bound: IndexBound) {
        let rows = self.have.len() as i64;
        let mut copied = 0;
        for id in ids {
            let id = match bound {
                IndexBound::Check => id,
                IndexBound::Wrap => {
                    if id < 0 {
                        id.wrapping_add(rows)
                    } else {
                        id
                    }
                }
                IndexBound::Clamp => id.clamp(0, rows - 1),
            };
            // The kernel reports other numbers as a fault.
            let Some(have) = usize::try_from(id).ok().and_then(|i| self.have.get_mut(i)) else {
                continue;
            };
            if std::mem::replace(have, true) {
                continue;
            }
            let bytes = id as usize * self.row..(id as usize + 1) * self.row;
            self.memory[bytes.clone()].copy_from_slice(&self.source.bytes()[bytes]);
            copied += 1;
            if copied % RELEASED == 0 {
                self.source.release_pages();
            }
        }
        if copied % RELEASED != 0 {
            self.source.release_pages();
        }
    }
}
