//! Products of groups of rows.

use super::{print_epilogue, print_operand, print_strided};
use crate::math::contract::{Activation, Grouped, Grouping};
use crate::program::{BufferId, BufferOperand};

pub(super) fn print_grouped(d: &Grouped, o: &[BufferOperand], out: BufferId) -> String {
    let c = print_strided(out, 0, &[d.rows, d.n], &[d.n, 1]);
    let b = print_strided(o[1].buffer, o[1].offset, &[d.groups, d.k, d.n], &d.b);
    let (a, integers) = (print_operand(&o[0]), print_operand(&o[2]));
    let names = match d.grouping {
        Grouping::Ends => "",
        Grouping::Names { .. } => ", names=True",
    };
    let finish = print_epilogue(d.dtype, Activation::None);
    format!("grouped({c}, {a}, {b}, {integers}{names}{finish})")
}
