//! Widening: a pass over a kernel's machine code, because Cranelift has no vectors wider than 128 bits.
//!
//! A kernel is lowered so that only the *distance* between a group's vectors depends on the width `W` (16, 32 or 64
//! bytes). At width 64, for example, a vector loop loads 16 bytes, computes on them, stores 16 bytes and advances by
//! 64. The pass rewrites this code so that it loads, computes and stores all 64.
//!
//! **Why this is correct.** Call the 128-bit lanes of a wide register its parts. Every instruction on the whitelist
//! ([`codes`]) computes part `p` of its result from part `p` of its operands, in the same way for every `p`. Memory
//! operands that are data access 16 bytes at an additional offset of `16 p`. So part `p` runs the original program on
//! the data `16 p` bytes further on, which is what the kernel means by a group of width `W`. Part 0 is exactly the code
//! that Cranelift generated. Scalars and general registers, and therefore all control flow, are those of part 0.
//!
//! Parts meet only at the end of a reduction. Two instructions that kernels do not otherwise use become exchanges of
//! parts: `vpaddusw x, x` exchanges the halves, `vpaddsw x, x` exchanges neighbours. After a vector was combined with
//! itself after each exchange, all its parts are equal. Before that, lanes meet within parts: by swaps (`vpshufd` with
//! two orders) and, where the reductions of four rows are merged, by `vshufps` with four orders that no other code uses
//! ([`rows`](super::rows)). Other orders are rejected because they change the lane width. Integers leave through the
//! function's one explicit stack slot: stores to it are wide, loads from it stay narrow, except
//! for broadcasts.
//!
//! Conversions between lanes of 32 and 64 bits read or write half a vector. Their wider forms do so with halves of the
//! wide vector (`crossing`), so that lanes stay in the order of the elements.
//!
//! **Assumptions** about Cranelift's output. Code that violates one is rejected ([`Reject`]):
//!
//! * encodings are VEX; legacy encodings occur only for register moves and spills;
//! * there are no calls and no indirect branches;
//! * no instruction takes the address of a constant after the code (the constants themselves are moved along);
//! * a vector operand in memory is data, a constant addressed through the table's register, the slot at the bottom of the
//!   frame, or a spill slot above it;
//! * the mask of a select is all ones or all zeros in each lane, as comparisons produce it.
//!
//! A rejected function is compiled again with `W = 16` and used as it is. If it was rejected because of spills, it is compiled at
//! the same width before, with one vector in a group instead of several.
//!
//! **What else the AVX-512 form does.** Constants used in loops stay in zmm16 to zmm31, which Cranelift does not use.
//! Spilled vectors go there too. Comparisons write mask registers, which become vectors only if an instruction other
//! than a select reads them. `vzeroupper` precedes each return.
//!
//! **Encodings of what CLIF cannot express.** These instructions have no other use in kernels of this width:
//!
//! * a store by `vmovupd`, in kernels without f64, means a streaming store, and a load by it means a prefetch of the line;
//! * operations on bytes and words in vectors of 64 bytes stand for instructions of AVX-512 ([`natives`](super::natives)); in vectors of
//!   32 bytes they are those of packed kernels ([`packed`](super::packed));
//! * a load by `vpmovzxbw` means a load of as many bytes as there are 32-bit lanes;
//! * a load by `vpmovzxdq`, and a store by `vpextrb` of another element than the first, mean loads and stores of the first lanes
//!   ([`tails`](super::tails));
//! * stores of the first element by `vpextrw` and `vpextrb` mean stores of the low 16 or 8 bits of every lane, and one of the
//!   second element by `vpextrw` means a store of the lower half of a vector of 64 bytes.
//!
//! Tests compare every operation and random kernels at all widths.

mod avx2;
mod avx512;
mod codes;
mod crossing;
mod flow;
mod operands;
mod tagged;

pub(super) use tagged::{MaskedLanes, NEAR, Stored, tagged_offset};

use flow::BASE;

use flow::Flow;
use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, Mnemonic, OpKind, Register};
use std::fmt;

/// The size in bytes of the explicit stack slot of a function to be widened. The function has no other explicit slot.
pub(super) const SLOT: u32 = 128;

/// The reason why code is not widened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// An instruction that is not on the whitelist.
    Code(Code),
    /// An instruction with an unsupported kind of memory operand.
    Memory(Code),
    /// An unsupported kind of control flow.
    Flow(&'static str),
    /// More spilled vectors than free registers.
    Spills(usize),
    /// The encoder rejected the result.
    Encode(String),
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reject::Code(c) => write!(f, "instruction {c:?} cannot be widened"),
            Reject::Memory(c) => write!(f, "unsupported memory operand of {c:?}"),
            Reject::Flow(problem) => f.write_str(problem),
            Reject::Spills(n) => write!(f, "too many spilled vectors ({n})"),
            Reject::Encode(e) => f.write_str(e),
        }
    }
}

/// Widened code.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    /// The bytes.
    pub code: Vec<u8>,
    /// Maps offsets of the code, in ascending order, to the offsets of the narrow instructions that they come from.
    pub origins: Vec<(u32, u32)>,
}

/// Widens a function whose vectors are `width` bytes (32 or 64) apart. Its fifth argument must be the address of its
/// constants. `streams` says that a store of two f64 means a streaming store.
pub(super) fn widen(code: &[u8], width: usize, streams: bool) -> Result<Wide, Reject> {
    // In the System V calling convention, r8 holds the fifth argument.
    let flow = Flow::new(code, Register::R8, SLOT as u64)?;
    let out = match width {
        64 => avx512::rewrite(&flow, streams)?,
        _ => avx2::rewrite(&flow)?,
    };
    #[cfg(test)]
    assert_features(&flow, &out, width);
    encode_with_constants(code, out)
}

/// Panics if an instruction needs more of AVX-512 than [`widest_vectors`](super::wide::widest_vectors) asks for. At 32
/// bytes, panics if it needs more than the narrow code did (Cranelift multiplies 64-bit lanes with an AVX-512
/// instruction where the target has it).
#[cfg(test)]
fn assert_features(flow: &Flow, out: &[Instruction], width: usize) {
    use iced_x86::CpuidFeature::{
        AVX512_BF16, AVX512_BITALG, AVX512_VBMI, AVX512BW, AVX512CD, AVX512DQ, AVX512F, AVX512VL,
    };
    let narrow: Vec<_> = flow.ins.iter().flat_map(|i| i.cpuid_features()).collect();
    // Kernels round with instructions of BF16 only where there are also those of BW.
    let rounds = out.iter().any(|i| i.cpuid_features().contains(&AVX512_BF16));
    for i in out {
        for f in i.cpuid_features() {
            let newer = matches!(f, AVX512BW if !rounds) || matches!(f, AVX512CD | AVX512_VBMI | AVX512_BITALG);
            let wide = matches!(f, AVX512F | AVX512DQ | AVX512VL);
            let asked = width == 64 || narrow.contains(&f);
            assert!(!newer && (asked || !wide), "{:?} needs {f:?}", i.code());
        }
    }
}

/// Encodes `out`, followed by copies of the constants that came after `code`.
fn encode_with_constants(code: &[u8], mut out: Vec<Instruction>) -> Result<Wide, Reject> {
    let (mut bytes, mut uses) = (vec![], vec![]);
    for (n, i) in out.iter().enumerate().filter(|(_, i)| i.is_ip_rel_memory_operand()) {
        uses.push((n, bytes.len() as u64));
        let (start, size) = (
            i.memory_displacement64().wrapping_sub(BASE) as usize,
            i.memory_size().size(),
        );
        // The constant of a wide operand is the narrow constant, repeated.
        let original = start.checked_add(size.min(16)).and_then(|end| code.get(start..end));
        let original = original.ok_or(Reject::Memory(i.code()))?;
        let entry = original.iter().cycle().take(size);
        bytes.extend(entry.copied());
        bytes.resize(bytes.len().next_multiple_of(64), 0);
    }
    // The distance of the constants does not change the length of an instruction, so any distance gives the length.
    let length = at_distance(&mut out, &uses, 1 << 20)?.code.len();
    // The constants must not start at the address of an instruction of the narrow code: the encoder would take the
    // reference for one to that instruction.
    let table_start = length.max(code.len()).next_multiple_of(64);
    let mut all = at_distance(&mut out, &uses, table_start as u64)?;
    if !uses.is_empty() {
        if all.code.len() != length {
            return Err(Reject::Flow("the distance to the constants changes the code size"));
        }
        all.code.resize(table_start, 0);
        all.code.extend(bytes);
    }
    Ok(all)
}

/// Encodes instructions. Those in `uses` refer to constants at this distance from the start of the code, plus their
/// offset.
fn at_distance(out: &mut [Instruction], uses: &[(usize, u64)], distance: u64) -> Result<Wide, Reject> {
    for &(n, offset) in uses {
        out[n].set_memory_displacement64(BASE + distance + offset);
    }
    let block = InstructionBlock::new(out, BASE);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS);
    let encoded = encoded.map_err(|e| Reject::Encode(e.to_string()))?;
    // Branches that became longer have no offset of their own.
    let placed = encoded.new_instruction_offsets.iter().zip(out.iter());
    let placed = placed.filter(|(offset, i)| **offset != u32::MAX && i.ip() >= BASE);
    Ok(Wide {
        origins: placed.map(|(&offset, i)| (offset, (i.ip() - BASE) as u32)).collect(),
        code: encoded.code_buffer,
    })
}

/// Whether an instruction extends the lower lanes of a register to wider lanes, which is not lane-wise. Extending from
/// memory is lane-wise because the vectors are as far apart as their elements in memory.
fn extends_register(i: &Instruction) -> bool {
    use Mnemonic::*;
    let extends = matches!(i.mnemonic(), Vpmovzxbw | Vpmovsxbw | Vpmovzxwd | Vpmovsxwd);
    extends && memory_operand(i).is_none()
}

/// Whether an instruction touches vector registers.
fn has_vectors(i: &Instruction) -> bool {
    (0..i.op_count()).any(|k| i.op_kind(k) == OpKind::Register && i.op_register(k).is_vector_register())
}

/// The index of a vector instruction's memory operand, if it has one.
fn memory_operand(i: &Instruction) -> Option<u32> {
    (0..i.op_count()).find(|&k| i.op_kind(k) == OpKind::Memory)
}

/// The instructions written so far.
struct CodeOutput {
    ins: Vec<Instruction>,
    /// The address of the original instruction that the next emitted instruction replaces.
    label: u64,
}

impl CodeOutput {
    fn new() -> CodeOutput {
        CodeOutput { ins: vec![], label: 0 }
    }

    /// The next emitted instruction replaces the one at `ip`.
    fn set_label(&mut self, ip: u64) {
        self.label = ip;
    }

    fn push(&mut self, mut i: Instruction) {
        i.set_ip(std::mem::take(&mut self.label));
        self.ins.push(i);
    }

    /// Ends the replacement of an instruction. A branch target must not be empty, so this may emit a nop.
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

    /// The widened code is shorter than the narrow code, whose `ret` was at the address where the constants would
    /// start.
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
