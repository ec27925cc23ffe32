//! Wider vectors than Cranelift has: a pass over the machine code of a kernel.
//!
//! Cranelift's vectors have 128 bits. A kernel is therefore written so that only the *distance* of a group's vectors
//! depends on the width `W` (16, 32 or 64 bytes): a vector loop of width 64 loads 16 bytes, computes on them, stores 16
//! bytes and steps on by 64. The pass makes of it code that loads, computes and stores all 64.
//!
//! **Why this is right.** Call the 128-bit lanes of a wide register its parts. Every instruction on the whitelist
//! ([`codes`]) computes part `p` of its result from part `p` of its operands, the same way for every `p`; memory operands of data read
//! and write 16 bytes at offset `16 p` more. So part `p` runs the original program on the data `16 p` bytes further on, which is what
//! the kernel means by a group of `W`: part 0 is the code that Cranelift wrote, bit by bit. Scalars and general registers, and with them all control
//! flow, are those of part 0. What makes parts meet again, the end of a reduction, are two instructions that kernels have no other use for
//! and that become exchanges of parts: of the halves (`vpaddusw x, x`) and of neighbours (`vpaddsw x, x`). A vector combined
//! with itself after each has the same in every part. Before that, lanes meet within parts: by swaps (`vpshufd` with two orders) and, where
//! the ends of four rows meet, by `vshufps` with four orders that nothing else has ([`rows`](super::rows)). Other orders are rejected, for
//! they make lanes of another width. Integers leave through the function's one explicit stack
//! slot: stores to it are wide, loads from it stay narrow.
//!
//! **What it assumes** of Cranelift's output, and rejects ([`Reject`]) where it does not find it: VEX encodings (legacy ones only for
//! moves of registers and spills); no calls, no indirect branches, no addresses of constants after the code (the constants themselves move along); vector operands in memory that are data, constants through the table's register,
//! the slot at the bottom of the frame, or spill slots above it; masks of choices that are all ones or all zeros in each lane, as
//! comparisons give them. A function that is rejected is compiled again with `W = 16` and used as it is.
//!
//! **What it does besides**: constants used in loops stay in zmm16 to zmm31, which Cranelift does not know; spilled vectors go there too; comparisons
//! give mask registers, which become vectors only if something else than a choice reads them; `vzeroupper` before
//! returning. Some instructions that kernels have no other use for stand for what CLIF cannot say: a store by `vmovupd` (in kernels without
//! f64) for one past the caches, a load by it for a prefetch of the line, `vpsubusw` for `vscalefps`, a load by `vpmovzxbw` for one of as many bytes as there are 32-bit lanes,
//! stores by `vpextrw` and `vpextrb` for stores of the low 16 or 8 bits of every lane. Tests compare every operation and random kernels in all widths.

mod avx2;
mod avx512;
mod codes;
mod flow;

use flow::BASE;

use flow::Flow;
use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, Mnemonic, OpKind, Register};
use std::fmt;

/// Bytes of the explicit stack slot of a function to widen; it is the only one.
pub(super) const SLOT: u32 = 128;

/// Why code is not widened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// An instruction that is not on the whitelist.
    Code(Code),
    /// A memory operand of a kind that is not known.
    Memory(Code),
    /// Control flow of a kind that is not known.
    Flow(&'static str),
    /// More spilled vectors than there are registers for.
    Spills(usize),
    /// The encoder refused the result.
    Encode(String),
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reject::Code(c) => write!(f, "{c:?} is not on the whitelist"),
            Reject::Memory(c) => write!(f, "a memory operand of {c:?}"),
            Reject::Flow(what) => f.write_str(what),
            Reject::Spills(n) => write!(f, "{n} spilled vectors"),
            Reject::Encode(e) => f.write_str(e),
        }
    }
}

/// Code for wide vectors.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    /// The bytes.
    pub code: Vec<u8>,
    /// For offsets of it in rising order the offsets of the narrow instructions that they come from.
    pub origins: Vec<(u32, u32)>,
}

/// The code for vectors of `width` bytes (32 or 64) of a function whose vectors are `width` bytes apart. The address of its
/// constants is its fifth argument; `streams` says that a store of two f64 means one past the caches.
pub(super) fn widen(code: &[u8], width: usize, streams: bool) -> Result<Wide, Reject> {
    // The System V calling convention.
    let flow = Flow::new(code, Register::R8, SLOT as u64)?;
    let out = match width {
        64 => avx512::rewrite(&flow, streams)?,
        _ => avx2::rewrite(&flow)?,
    };
    #[cfg(test)]
    assert_features(&flow, &out, width);
    encode_with_constants(code, out)
}

/// Panics if an instruction needs more of AVX-512 than [`widest`](super::wide::widest) asks for, or, at 32 bytes, than the
/// narrow code did (Cranelift multiplies lanes of 64 bits by one of AVX-512's where the target has it).
#[cfg(test)]
fn assert_features(flow: &Flow, out: &[Instruction], width: usize) {
    use iced_x86::CpuidFeature::{AVX512_BITALG, AVX512_VBMI, AVX512BW, AVX512CD, AVX512DQ, AVX512F, AVX512VL};
    let narrow: Vec<_> = flow.ins.iter().flat_map(|i| i.cpuid_features()).collect();
    for i in out {
        for f in i.cpuid_features() {
            let newer = matches!(f, AVX512BW | AVX512CD | AVX512_VBMI | AVX512_BITALG);
            let wide = matches!(f, AVX512F | AVX512DQ | AVX512VL);
            let asked = width == 64 || narrow.contains(&f);
            assert!(!newer && (asked || !wide), "{:?} needs {f:?}", i.code());
        }
    }
}

/// The bytes of `out`, with copies after them of the constants that came after `code`.
fn encode_with_constants(code: &[u8], mut out: Vec<Instruction>) -> Result<Wide, Reject> {
    let (mut bytes, mut uses) = (vec![], vec![]);
    for (n, i) in out.iter().enumerate().filter(|(_, i)| i.is_ip_rel_memory_operand()) {
        uses.push((n, bytes.len() as u64));
        let (at, size) = (
            i.memory_displacement64().wrapping_sub(BASE) as usize,
            i.memory_size().size(),
        );
        // A wide operand is the narrow one, repeated.
        let original = at.checked_add(size.min(16)).and_then(|end| code.get(at..end));
        let original = original.ok_or(Reject::Memory(i.code()))?;
        let entry = original.iter().cycle().take(size);
        bytes.extend(entry.copied());
        bytes.resize(bytes.len().next_multiple_of(64), 0);
    }
    // Where they are does not change the length of an instruction.
    let length = at_distance(&mut out, &uses, 1 << 20)?.code.len();
    // Not where an instruction of the narrow code stood: the encoder would take its address for that instruction's.
    let behind = length.max(code.len()).next_multiple_of(64);
    let mut all = at_distance(&mut out, &uses, behind as u64)?;
    if !uses.is_empty() {
        if all.code.len() != length {
            return Err(Reject::Flow("constants that move the code"));
        }
        all.code.resize(behind, 0);
        all.code.extend(bytes);
    }
    Ok(all)
}

/// Encodes instructions, those of `uses` with their constant at this distance from the beginning and an offset.
fn at_distance(out: &mut [Instruction], uses: &[(usize, u64)], distance: u64) -> Result<Wide, Reject> {
    for &(n, offset) in uses {
        out[n].set_memory_displacement64(BASE + distance + offset);
    }
    let block = InstructionBlock::new(out, BASE);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS);
    let encoded = encoded.map_err(|e| Reject::Encode(e.to_string()))?;
    // Branches that became longer have no offset of their own.
    let placed = encoded.new_instruction_offsets.iter().zip(out.iter());
    let placed = placed.filter(|(at, i)| **at != u32::MAX && i.ip() >= BASE);
    Ok(Wide {
        origins: placed.map(|(&at, i)| (at, (i.ip() - BASE) as u32)).collect(),
        code: encoded.code_buffer,
    })
}

/// Whether an instruction makes wider lanes of a register's lower ones: that is not lane-wise; from memory it is, where the
/// vectors are as far apart as their elements there.
fn extends_register(i: &Instruction) -> bool {
    use Mnemonic::*;
    let extends = matches!(i.mnemonic(), Vpmovzxbw | Vpmovsxbw | Vpmovzxwd | Vpmovsxwd);
    extends && memory_operand(i).is_none()
}

/// Whether an instruction touches vector registers.
fn has_vectors(i: &Instruction) -> bool {
    (0..i.op_count()).any(|k| i.op_kind(k) == OpKind::Register && i.op_register(k).is_vector_register())
}

/// Whether a vector instruction has an operand in memory.
fn memory_operand(i: &Instruction) -> Option<u32> {
    (0..i.op_count()).find(|&k| i.op_kind(k) == OpKind::Memory)
}

/// The instructions written so far.
struct CodeOutput {
    ins: Vec<Instruction>,
    /// The address that the next instruction stands for.
    label: u64,
}

impl CodeOutput {
    fn new() -> CodeOutput {
        CodeOutput { ins: vec![], label: 0 }
    }

    /// What follows stands for the instruction at `ip`.
    fn set_label(&mut self, ip: u64) {
        self.label = ip;
    }

    fn push(&mut self, mut i: Instruction) {
        i.set_ip(std::mem::take(&mut self.label));
        self.ins.push(i);
    }

    /// Something must stand where a branch may go to.
    fn end_instruction(&mut self, targeted: bool) {
        if targeted && self.label != 0 {
            self.push(Instruction::with(Code::Nopd));
        }
        self.label = 0;
    }
}

fn is_return(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Ret
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, MemoryOperand};

    /// The wide code is shorter than the narrow one, whose `ret` stood where the constants would begin.
    #[test]
    fn constants_are_not_taken_for_instructions() {
        let mut code = vec![0x90; 80];
        code[72..76].copy_from_slice(&247u32.to_le_bytes());
        let constant = MemoryOperand::with_base_displ(Register::RIP, (BASE + 72) as i64);
        let load = Instruction::with2(Code::VEX_Vmovss_xmm_m32, Register::XMM0, constant);
        let (mut load, mut ret) = (load.expect("operands of a load"), Instruction::with(Code::Retnq));
        load.set_ip(BASE);
        ret.set_ip(BASE + 64);
        let all = encode_with_constants(&code, vec![load, ret]).expect("an encoding").code;
        let first = Decoder::with_ip(64, &all, BASE, DecoderOptions::NONE).decode();
        let at = (first.ip_rel_memory_address() - BASE) as usize;
        assert_eq!(all.get(at..at + 4), Some(&247u32.to_le_bytes()[..]));
    }
}
