//! Listings of the machine code that runs, annotated with what each part computes.
//!
//! Cranelift's source locations say which statement of the kernel each piece of code comes from. Widening keeps the
//! order of instructions, so the mapping also holds for widened code. A listing always shows the final bytes: the
//! widened ones where the kernel was widened.

use crate::kernel::{Buf, Kernel, Value};
use cranelift_codegen::ir::SourceLoc;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter};
use std::collections::HashSet;
use std::fmt::Write;

/// The statement of a kernel that a piece of code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeOrigin {
    /// The definition of a value.
    Value(u32),
    /// A store to a buffer, by the buffer's number.
    Store(u32),
}

impl CodeOrigin {
    /// The statement encoded as the source location that Cranelift passes through to the machine code.
    pub(super) fn to_srcloc(self) -> SourceLoc {
        SourceLoc::new(match self {
            CodeOrigin::Value(v) => v << 1,
            CodeOrigin::Store(b) => b << 1 | 1,
        })
    }

    fn from_srcloc(place: SourceLoc) -> Option<CodeOrigin> {
        let bits = (!place.is_default()).then(|| place.bits())?;
        Some(match bits & 1 {
            0 => CodeOrigin::Value(bits >> 1),
            _ => CodeOrigin::Store(bits >> 1),
        })
    }

    /// The graph node that the statement was computed for, if the kernel records one.
    fn node_name(self, k: &Kernel) -> Option<&str> {
        match self {
            CodeOrigin::Value(v) => k.node_of(Value(v)),
            CodeOrigin::Store(b) => Some(&k.buffer(Buf(b)).name),
        }
    }
}

/// The statement that each piece of Cranelift's code comes from: `(start, end, statement)`, sorted.
pub(super) type Pieces = Vec<(u32, u32, CodeOrigin)>;

/// The pieces of compiled code, from its source locations.
pub(super) fn collect_pieces(list: impl Iterator<Item = (u32, u32, SourceLoc)>) -> Pieces {
    list.filter_map(|(start, end, place)| Some((start, end, CodeOrigin::from_srcloc(place)?)))
        .collect()
}

/// One line of machine code.
struct AsmLine {
    /// The line's offset in the code.
    offset: u64,
    /// Whether a branch jumps here.
    target: bool,
    text: String,
    source: Option<CodeOrigin>,
}

/// A kernel's machine code, line by line.
#[derive(Default)]
pub(super) struct Listing(Vec<AsmLine>);

impl Listing {
    /// A listing of x86-64 code. `pieces` describes the original code. `origins` maps offsets of `code`, in ascending
    /// order, to offsets of the original code; `None` if `code` is the original.
    pub(super) fn of_x86(code: &[u8], origins: Option<&[(u32, u32)]>, pieces: &Pieces) -> Listing {
        let original = |offset: u32| match origins {
            None => Some(offset),
            Some(list) => {
                let after = list.partition_point(|&(first, _)| first <= offset);
                list.get(after.checked_sub(1)?).map(|&(_, from)| from)
            }
        };
        let source = |offset: u64| {
            let offset = original(offset as u32)?;
            let after = pieces.partition_point(|&(start, ..)| start <= offset);
            let &(_, end, source) = pieces.get(after.checked_sub(1)?)?;
            (offset < end).then_some(source)
        };
        let instructions = decode_instructions(code);
        let targets: HashSet<u64> = instructions.iter().filter_map(branch_target).collect();
        let mut formatter = intel_formatter();
        let lines = instructions.iter().map(|i| {
            let mut text = String::new();
            formatter.format(i, &mut text);
            AsmLine {
                offset: i.ip(),
                target: targets.contains(&i.ip()),
                text,
                source: source(i.ip()),
            }
        });
        Listing(lines.collect())
    }

    /// A listing of code that only Cranelift can disassemble.
    pub(super) fn of_text(text: &str) -> Listing {
        let lines = text.lines().zip(0..).map(|(l, offset)| AsmLine {
            offset,
            target: false,
            text: l.trim_end().to_string(),
            source: None,
        });
        Listing(lines.collect())
    }

    /// The listing for kernel `k`. Each node's code is preceded by the node's name and by `place`, the node's source
    /// location.
    pub(super) fn render_text(&self, k: &Kernel, mark: &str, place: &dyn Fn(&str) -> String) -> String {
        let (mut out, mut node) = (String::new(), None);
        for line in &self.0 {
            let now = line.source.and_then(|s| s.node_name(k));
            if line.target {
                let _ = writeln!(out, "{:#06x}:", line.offset);
            }
            if let Some(n) = now.filter(|_| now != node || line.target) {
                let place = match place(n) {
                    p if p.is_empty() => p,
                    p => format!(" from {p}"),
                };
                let _ = writeln!(out, "    {mark} %{n}{place}");
                node = now;
            }
            let _ = writeln!(out, "    {}", line.text);
        }
        out
    }
}

fn intel_formatter() -> IntelFormatter {
    let mut f = IntelFormatter::new();
    let o = f.options_mut();
    o.set_hex_prefix("0x");
    o.set_hex_suffix("");
    o.set_uppercase_hex(false);
    o.set_branch_leading_zeros(false);
    o.set_small_hex_numbers_in_decimal(false);
    o.set_space_after_operand_separator(true);
    o.set_first_operand_char_index(12);
    o.set_rip_relative_addresses(true);
    f
}

/// Decodes the instructions up to the constants that follow them: up to the first return that no branch so far jumps
/// beyond.
pub(super) fn decode_instructions(code: &[u8]) -> Vec<Instruction> {
    let mut out = vec![];
    let mut farthest = 0;
    for i in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        farthest = farthest.max(branch_target(&i).unwrap_or(0));
        let ends = matches!(i.flow_control(), FlowControl::Return | FlowControl::Exception);
        let last = ends && i.next_ip() > farthest;
        out.push(i);
        if last {
            break;
        }
    }
    out
}

fn branch_target(i: &Instruction) -> Option<u64> {
    let branches = matches!(
        i.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    branches.then(|| i.near_branch_target())
}
