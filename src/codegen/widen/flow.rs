//! The analysis before rewriting: reachable instructions, live vector registers, pointers to the constants and to the
//! stack slot, and the loop depth of each instruction.

use super::Reject;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The assumed address of the code. It must not be 0, which marks instructions that are not branch targets.
pub(super) const BASE: u64 = 0x1_0000;

/// What a general register or stack word is known to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tag {
    #[default]
    Unknown,
    /// The table of constants.
    Table,
    /// An address within the explicit stack slot.
    Slot,
}

/// What the memory operand of a vector instruction refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandPlace {
    /// Data.
    Memory,
    /// The constant at this offset of the table.
    Constant(u64),
    /// A constant after the code, addressed relative to rip.
    Behind,
    /// The explicit stack slot.
    Slot,
    /// A register's spill slot.
    Spill(u64),
}

/// A function's instructions in ascending order of addresses, with what is known at each.
pub(super) struct Flow {
    /// The reachable instructions.
    pub ins: Vec<Instruction>,
    /// The addresses of branch targets.
    pub targets: HashSet<u64>,
    /// The vector registers that are live before (`live_in`) and after (`live_out`) each instruction.
    pub live_in: Vec<u16>,
    pub live_out: Vec<u16>,
    /// The number of loops around each instruction, counted by backward branches.
    pub depth: Vec<u32>,
    tags: Vec<PointerState>,
    slot: u64,
}

/// The number of stack words whose contents are tracked.
const WORDS: usize = 64;

#[derive(Clone, Copy, PartialEq)]
struct PointerState {
    regs: [Tag; 16],
    words: [Tag; WORDS],
}

impl PointerState {
    fn meet(&mut self, o: &PointerState) -> bool {
        let before = *self;
        let all = self.regs.iter_mut().chain(&mut self.words);
        for (a, b) in all.zip(o.regs.iter().chain(&o.words)) {
            if *a != *b {
                *a = Tag::Unknown;
            }
        }
        *self != before
    }
}

fn gpr_number(r: Register) -> Option<usize> {
    r.is_gpr().then(|| r.full_register().number())
}

/// The stack word that an instruction's memory operand refers to.
fn stack_word(i: &Instruction) -> Option<usize> {
    let w = i.memory_displacement64() as usize / 8;
    (i.memory_base() == Register::RSP && i.memory_index() == Register::None && w < WORDS).then_some(w)
}

fn decode_reachable(code: &[u8]) -> Result<Vec<Instruction>, Reject> {
    let mut instructions: BTreeMap<u64, Instruction> = BTreeMap::new();
    let mut work = vec![BASE];
    let mut d = Decoder::with_ip(64, code, BASE, DecoderOptions::NONE);
    while let Some(mut ip) = work.pop() {
        while !instructions.contains_key(&ip) {
            let offset = ip.checked_sub(BASE).filter(|&a| a < code.len() as u64);
            let offset = offset.ok_or(Reject::Flow("a branch leaves the function"))?;
            d.set_position(offset as usize)
                .map_err(|_| Reject::Flow("a branch leaves the function"))?;
            d.set_ip(ip);
            let i = d.decode();
            if i.is_invalid() {
                return Err(Reject::Flow("an instruction cannot be decoded"));
            }
            if i.is_ip_rel_memory_operand() && i.code() == Code::Lea_r64_m {
                // Takes the address of a constant. The pass does not track accesses through it.
                return Err(Reject::Memory(i.code()));
            }
            instructions.insert(ip, i);
            match i.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch => work.push(i.near_branch_target()),
                FlowControl::UnconditionalBranch => {
                    work.push(i.near_branch_target());
                    break;
                }
                // Cranelift's check of a divisor ends in `ud2`.
                FlowControl::Return | FlowControl::Exception => break,
                _ => return Err(Reject::Flow("the code has a call or an indirect branch")),
            }
            ip = i.next_ip();
        }
    }
    Ok(instructions.into_values().collect())
}

fn is_branch(i: &Instruction) -> bool {
    i.is_jcc_short_or_near() || i.is_jmp_short_or_near()
}

/// The instructions that may run after instruction `n`. `index_at` has the index of the instruction at each address.
fn successors_of(ins: &[Instruction], index_at: &HashMap<u64, usize>, n: usize) -> Vec<usize> {
    let i = &ins[n];
    let falls_through = !matches!(
        i.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::Exception
    );
    let next = falls_through.then_some(n + 1);
    let target = is_branch(i).then(|| index_at[&i.near_branch_target()]);
    next.into_iter().chain(target).collect()
}

impl Flow {
    /// Analyses `code`. `table` holds the address of the constants on entry, and the explicit stack slot has `slot`
    /// bytes.
    pub(super) fn new(code: &[u8], table: Register, slot: u64) -> Result<Flow, Reject> {
        let ins = decode_reachable(code)?;
        let index_at: HashMap<u64, usize> = ins.iter().enumerate().map(|(n, i)| (i.ip(), n)).collect();
        let branches = ins.iter().filter(|i| is_branch(i));
        let targets = branches.map(|i| i.near_branch_target()).collect();
        let successors: Vec<Vec<usize>> = (0..ins.len()).map(|n| successors_of(&ins, &index_at, n)).collect();
        let (live_in, live_out) = compute_liveness(&ins, &successors);
        let mut depth = vec![0; ins.len()];
        for (n, s) in successors.iter().enumerate() {
            for &t in s.iter().filter(|&&t| t <= n) {
                depth[t..=n].iter_mut().for_each(|d| *d += 1);
            }
        }
        let tags = track_pointers(&ins, &successors, table, slot);
        Ok(Flow {
            ins,
            targets,
            live_in,
            live_out,
            depth,
            tags,
            slot,
        })
    }

    /// What the memory operand of vector instruction `n` refers to.
    pub(super) fn operand_place(&self, n: usize) -> Result<OperandPlace, Reject> {
        let i = &self.ins[n];
        let (base, index) = (i.memory_base(), i.memory_index());
        if i.is_ip_rel_memory_operand() {
            return Ok(OperandPlace::Behind);
        }
        if base == Register::RBP {
            return Err(Reject::Memory(i.code()));
        }
        if base == Register::RSP {
            if index != Register::None {
                return Err(Reject::Memory(i.code()));
            }
            let d = i.memory_displacement64();
            return Ok(if d < self.slot {
                OperandPlace::Slot
            } else {
                OperandPlace::Spill(d)
            });
        }
        let tag = gpr_number(base).map_or(Tag::Unknown, |r| self.tags[n].regs[r]);
        Ok(match tag {
            Tag::Slot => OperandPlace::Slot,
            Tag::Table if index == Register::None => OperandPlace::Constant(i.memory_displacement64()),
            _ => OperandPlace::Memory,
        })
    }
}

/// The vector registers that are live before and after each instruction.
fn compute_liveness(ins: &[Instruction], successors: &[Vec<usize>]) -> (Vec<u16>, Vec<u16>) {
    let mut info = InstructionInfoFactory::new();
    let mut uses = vec![0u16; ins.len()];
    let mut defs = vec![0u16; ins.len()];
    for (n, i) in ins.iter().enumerate() {
        for u in info.info(i).used_registers() {
            let r = u.register();
            if !r.is_vector_register() || r.number() > 15 {
                continue;
            }
            let bit = 1 << r.number();
            let (read, write) = match u.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite | OpAccess::CondWrite => (true, true),
                _ => (false, false),
            };
            uses[n] |= if read { bit } else { 0 };
            defs[n] |= if write { bit } else { 0 };
        }
    }
    let (mut live_in, mut live_out) = (vec![0u16; ins.len()], vec![0u16; ins.len()]);
    let mut changed = true;
    while changed {
        changed = false;
        for n in (0..ins.len()).rev() {
            let out = successors[n].iter().fold(0, |a, &s| a | live_in[s]);
            let before = uses[n] | (out & !defs[n]);
            changed |= (live_in[n], live_out[n]) != (before, out);
            (live_in[n], live_out[n]) = (before, out);
        }
    }
    (live_in, live_out)
}

/// What registers and stack words hold before each instruction, on every path.
fn track_pointers(ins: &[Instruction], successors: &[Vec<usize>], table: Register, slot: u64) -> Vec<PointerState> {
    let mut entry = PointerState {
        regs: [Tag::Unknown; 16],
        words: [Tag::Unknown; WORDS],
    };
    entry.regs[table.number()] = Tag::Table;
    let mut before: Vec<Option<PointerState>> = vec![None; ins.len()];
    before[0] = Some(entry);
    let mut info = InstructionInfoFactory::new();
    let mut work = vec![0];
    while let Some(n) = work.pop() {
        let Some(state) = before[n] else { continue };
        let after = transfer_state(&ins[n], state, &mut info, slot);
        for &s in &successors[n] {
            let changed = match &mut before[s] {
                Some(b) => b.meet(&after),
                b => {
                    *b = Some(after);
                    true
                }
            };
            if changed {
                work.push(s);
            }
        }
    }
    before.into_iter().map(|s| s.unwrap_or(entry)).collect()
}

fn transfer_state(i: &Instruction, mut s: PointerState, info: &mut InstructionInfoFactory, slot: u64) -> PointerState {
    let moved = matches!(i.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64);
    let value = match (moved, i.code()) {
        (true, _) if i.op_kind(1) == OpKind::Register => gpr_number(i.op1_register()).map(|r| s.regs[r]),
        (true, _) => stack_word(i).map(|w| s.words[w]),
        (_, Code::Lea_r64_m) if i.memory_base() == Register::RSP && i.memory_index() == Register::None => {
            (i.memory_displacement64() < slot).then_some(Tag::Slot)
        }
        _ => None,
    };
    let (mut regs, mut memory) = (vec![], false);
    let used = info.info(i);
    for u in used.used_registers() {
        let writes = !matches!(
            u.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
        if writes && let Some(r) = gpr_number(u.register()) {
            regs.push(r);
        }
    }
    for u in used.used_memory() {
        memory |= !matches!(
            u.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
    }
    for r in regs {
        s.regs[r] = value.unwrap_or_default();
    }
    if memory && let Some(w) = stack_word(i) {
        let bytes = i.memory_displacement64() as usize % 8 + i.memory_size().size().max(1);
        s.words[w..WORDS.min(w + bytes.div_ceil(8))].fill(Tag::Unknown);
        if moved {
            s.words[w] = value.unwrap_or_default();
        }
    }
    s
}
