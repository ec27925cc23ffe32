//! Facts of rows that later stages act on. Each is declared at its row, so that no stage keeps a list of ops.

use super::running::RunningStats;
use super::{Call, Effect, ExprText, Meaning, Op, OpId};
use crate::types::TensorType;

/// The bounds that a call clamps each element to, one by one.
pub(super) type Clamp = fn(&Call<TensorType>) -> Option<(f32, f32)>;

/// What a row says of itself beside its type and its meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// The elements are those of the first parameter, some of them or all, though the row is not a view.
    same_elements: bool,
    /// The result has memory of its own in torch, though the row is made of others.
    pub new_memory: bool,
    /// The order of the result's dims in memory, where it does not follow from the meaning.
    pub order: Option<MemoryOrder>,
    /// The row is no more than a clamp, which products and convolutions apply to what they store.
    pub clamp: Option<Clamp>,
    /// How the row looks at the memory of its first operand.
    pub memory: MemoryUse,
    /// How the row updates running statistics.
    pub running: Option<RunningStats>,
    /// The view that the row writes its second operand to, as `slice_scatter` does to `slice`.
    pub scatter_to: Option<OpId>,
    /// The order in which the row draws random numbers.
    pub draws: DrawOrder,
    /// The row gives its operand back where it draws no random numbers.
    pub dropout: bool,
}

/// The order that the dims of a result have in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrder {
    /// Row by row.
    RowMajor,
    /// A matrix, column by column.
    Columns,
    /// That of the first operand (torch's `empty_like`).
    First,
    /// What torch's `TensorIterator` makes of all operands' orders.
    Operands,
}

/// How a row looks at the memory of its first operand, rather than at its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryUse {
    /// Not at all.
    #[default]
    Elements,
    /// Its value is told by strides or an offset: `stride`.
    Asks,
    /// It is an error with some strides: `view`.
    Checks,
    /// It reads or writes a window on the memory: `as_strided`.
    Window,
    /// It makes the memory longer or shorter: `resize_`.
    Resizes,
}

/// The order in which a row draws the random numbers of its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawOrder {
    /// Row by row; rows that draw nothing too. (Normal numbers are drawn in blocks in torch, in any memory.)
    #[default]
    RowMajor,
    /// Row by row, but in the order of memory where the call fills its operand in place.
    InPlace,
    /// In the order of the first operand's memory, in which the result lies too.
    OfOperand,
}

/// What all elements of a result are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// A number.
    Number(i64),
    /// The number that a parameter is.
    Parameter(usize),
}

/// Declarations.
impl Op {
    /// The elements are those of the first parameter. Views need not say so.
    pub fn same_elements(mut self) -> Op {
        self.facts.same_elements = true;
        self
    }

    /// The result has memory of its own in torch. Rows that are computed in one step need not say so.
    pub fn new_memory(mut self) -> Op {
        self.facts.new_memory = true;
        self
    }

    /// The order of the result's dims in memory.
    pub fn order(mut self, order: MemoryOrder) -> Op {
        self.facts.order = Some(order);
        self
    }

    /// The row clamps each element to these bounds.
    pub fn clamps(mut self, bounds: Clamp) -> Op {
        self.facts.clamp = Some(bounds);
        self
    }

    /// How the row looks at the memory of its first operand.
    pub fn memory(mut self, used: MemoryUse) -> Op {
        self.facts.memory = used;
        self
    }

    /// The row updates running statistics.
    pub fn updates_running(mut self, running: RunningStats) -> Op {
        self.facts.running = Some(running);
        self
    }

    /// The row writes its second operand to a view of its first.
    pub fn scatters_to(mut self, view: OpId) -> Op {
        self.facts.scatter_to = Some(view);
        self
    }

    /// The order in which the row draws random numbers.
    pub fn draws(mut self, order: DrawOrder) -> Op {
        self.facts.draws = order;
        self
    }

    /// The row is a dropout: it draws random numbers in training, and gives its operand back otherwise.
    pub fn dropout(mut self) -> Op {
        self.facts.dropout = true;
        self.effect(Effect::Random)
    }
}

impl Op {
    /// Whether the elements are those of the first parameter, some of them or all.
    pub fn has_same_elements(&self) -> bool {
        self.facts.same_elements || matches!(self.meaning, Meaning::View(_))
    }

    /// What all elements of the result are, if the row says no more of them.
    pub fn filled(&self) -> Option<Filled> {
        let Meaning::Pointwise(p) = &self.meaning else {
            return None;
        };
        match p.expr {
            ExprText::Fixed("0") => Some(Filled::Number(0)),
            ExprText::Fixed("1") => Some(Filled::Number(1)),
            ExprText::Fixed("fill_value") => self.schema.index_of("fill_value").map(Filled::Parameter),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_fill_are_told_by_their_expressions() {
        assert_eq!(OpId::ZerosLike.op().filled(), Some(Filled::Number(0)));
        assert_eq!(OpId::NewOnes.op().filled(), Some(Filled::Number(1)));
        assert_eq!(OpId::NewFull.op().filled(), Some(Filled::Parameter(2)));
        assert_eq!(OpId::Neg.op().filled(), None);
    }

    #[test]
    fn running_statistics_come_after_the_results() {
        for row in super::super::all() {
            let Some(running) = row.facts.running else { continue };
            for form in [Some(running.form), running.verified].into_iter().flatten() {
                assert_eq!(form.op().schema.results, running.form.op().schema.results, "{row:?}");
            }
            assert!(
                running.training.is_none_or(|p| row.schema.index_of(p).is_some()),
                "{row:?}"
            );
        }
    }
}
