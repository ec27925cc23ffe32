//! Conversions of 16-bit floats from memory in one instruction.
//!
//! Kernels load 16-bit elements into lanes of 32 bits. A conversion to f32 narrows these lanes again, because the instruction reads half a
//! vector. Of a load whose only use is such a conversion, the conversion can read the memory itself.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpKind, Register};
use std::collections::HashSet;

/// The instructions that are searched for the load of a conversion.
const NEAR: usize = 64;

/// Replaces loads, narrowings and conversions of the same register by conversions from memory. `targets` are the addresses of
/// branch targets.
pub(super) fn convert_from_memory(ins: &mut Vec<Instruction>, targets: &HashSet<u64>) {
    let mut info = InstructionInfoFactory::new();
    let mut gone = vec![false; ins.len()];
    for n in 0..ins.len() {
        let Some((load, narrowing)) = find_load(ins, n, targets, &mut info) else {
            continue;
        };
        let converted = conversion_of(&ins[load]);
        ins[load] = converted;
        (gone[narrowing], gone[n]) = (true, true);
    }
    let mut n = 0;
    ins.retain(|_| {
        n += 1;
        !gone[n - 1]
    });
}

/// The load and the narrowing before the conversion `n`, if nothing else uses the register between them, and control only falls
/// through.
fn find_load(
    ins: &[Instruction],
    n: usize,
    targets: &HashSet<u64>,
    info: &mut InstructionInfoFactory,
) -> Option<(usize, usize)> {
    let is_target = |i: &Instruction| targets.contains(&i.ip());
    let register = match ins[n].code() {
        Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae if ins[n].op1_kind() == OpKind::Register => ins[n].op0_register(),
        _ => return None,
    };
    if ins[n].op1_register().number() != register.number() || is_target(&ins[n]) {
        return None;
    }
    let mut narrowing = None;
    for m in (n.saturating_sub(NEAR)..n).rev() {
        let i = &ins[m];
        if i.flow_control() != FlowControl::Next {
            return None;
        }
        if uses_register(i, register, info) {
            match narrowing {
                None if is_narrowing(i, register) && !is_target(i) => narrowing = Some(m),
                Some(k) => return is_load(i, register).then_some((m, k)),
                None => return None,
            }
        } else if is_target(i) {
            return None;
        }
    }
    None
}

fn is_narrowing(i: &Instruction, register: Register) -> bool {
    i.code() == Code::EVEX_Vpmovdw_ymmm256_k1z_zmm
        && i.op0_kind() == OpKind::Register
        && i.op1_register() == register
        && i.op0_register().number() == register.number()
}

fn is_load(i: &Instruction, register: Register) -> bool {
    i.code() == Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256 && i.op1_kind() == OpKind::Memory && i.op0_register() == register
}

/// Whether an instruction reads or writes a vector register.
fn uses_register(i: &Instruction, register: Register, info: &mut InstructionInfoFactory) -> bool {
    let used = info.info(i).used_registers().iter();
    used.map(|u| u.register())
        .any(|r| r.is_vector_register() && r.number() == register.number())
}

/// The conversion of the elements that a load reads. It keeps the load's label.
fn conversion_of(load: &Instruction) -> Instruction {
    let mut i = *load;
    i.set_code(Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae);
    i
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{RAX, RBX, YMM1, YMM2, ZMM1, ZMM2};
    use iced_x86::MemoryOperand;

    fn load(to: Register) -> Instruction {
        let memory = MemoryOperand::with_base(RAX);
        Instruction::with2(Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, to, memory).expect("a load")
    }

    fn narrowing(to: Register, from: Register) -> Instruction {
        Instruction::with2(Code::EVEX_Vpmovdw_ymmm256_k1z_zmm, to, from).expect("a narrowing")
    }

    fn conversion(to: Register, from: Register) -> Instruction {
        Instruction::with2(Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, to, from).expect("a conversion")
    }

    fn codes(mut ins: Vec<Instruction>) -> Vec<String> {
        convert_from_memory(&mut ins, &HashSet::from([7]));
        ins.iter().map(|i| i.to_string()).collect()
    }

    #[test]
    fn loads_that_are_only_converted_convert() {
        let other = Instruction::with2(Code::Mov_r64_rm64, RBX, RAX).expect("a move");
        let ins = vec![
            load(ZMM1),
            load(ZMM2),
            narrowing(YMM1, ZMM1),
            other,
            conversion(ZMM1, YMM1),
            narrowing(YMM2, ZMM2),
            conversion(ZMM2, YMM2),
        ];
        assert_eq!(
            codes(ins),
            ["vcvtph2ps zmm1,[rax]", "vcvtph2ps zmm2,[rax]", "mov rbx,rax"]
        );
    }

    #[test]
    fn other_uses_and_branches_keep_the_load() {
        let sum = Instruction::with3(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, ZMM2, ZMM1, ZMM1).expect("a sum");
        let used = vec![load(ZMM1), sum, narrowing(YMM1, ZMM1), conversion(ZMM1, YMM1)];
        assert_eq!(codes(used).len(), 4);
        let elsewhere = vec![load(ZMM1), narrowing(YMM2, ZMM1), conversion(ZMM2, YMM2)];
        assert_eq!(codes(elsewhere).len(), 3);
        let mut target = narrowing(YMM1, ZMM1);
        target.set_ip(7);
        assert_eq!(codes(vec![load(ZMM1), target, conversion(ZMM1, YMM1)]).len(), 3);
        let branch = Instruction::with_branch(Code::Jmp_rel8_64, 7).expect("a branch");
        assert_eq!(
            codes(vec![load(ZMM1), branch, narrowing(YMM1, ZMM1), conversion(ZMM1, YMM1)]).len(),
            4
        );
    }
}
