//! Properties of rows that later stages use. Each is declared at its row, so that no stage keeps a list of ops.

use super::running::RunningStats;
use super::{Call, Effect, ExprText, FillFn, Meaning, Op, OpId, OverwriteFn};
use crate::types::TensorType;

/// The bounds to which a call clamps each element.
pub(super) type Clamp = fn(&Call<TensorType>) -> Option<(f32, f32)>;

/// The properties of a row besides its type rule and its meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Each element of the result is an element of the first parameter, though the row is not a view.
    same_elements: bool,
    /// The result has memory of its own in torch, though the row is a composite.
    pub new_memory: bool,
    /// The memory order of the result's dims, if it does not follow from the meaning.
    pub order: Option<MemoryOrder>,
    /// The row is only a clamp, which matrix products and convolutions can apply when they store their results.
    pub clamp: Option<Clamp>,
    /// How the row depends on the memory of its first operand.
    pub memory: MemoryUse,
    /// How the row updates running statistics.
    pub running: Option<RunningStats>,
    /// The view to which the row writes its second operand: `slice` for `slice_scatter`.
    pub scatter_to: Option<OpId>,
    /// The order in which the row draws random numbers.
    pub draws: DrawOrder,
    /// The row returns its operand itself if it draws no random numbers.
    pub dropout: bool,
    /// The row is a composite that multiplies matrices.
    pub multiplies: bool,
    /// For a routine whose result's size may depend on values: the same for calls whose sizes are known, which writes to the caller's
    /// memory.
    pub fill: Option<FillFn>,
    /// Writes the result over the first operand, if the result differs from it in some elements only.
    pub overwrite: Option<OverwriteFn>,
    /// The routine first copies its first operand to its result, then changes elements of the result, and reads only its other
    /// operands. Given the same memory for the operand and the result, it does not copy.
    pub updates: bool,
    /// The parameters whose integers are indices, and their limits. For a parameter `index` or `indices` of a row with a
    /// parameter `dim`, the limit follows from the schema.
    pub index_limits: &'static [(&'static str, IndexLimit)],
}

/// The valid values of integers that are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLimit {
    /// Rows of this parameter.
    Rows(&'static str),
    /// Classes: indices along dim 1 of this parameter, or along its only dim.
    Classes(&'static str),
    /// Numbers below the value of this parameter.
    Below(&'static str),
    /// A list of indices: each indexes the dim of this parameter at its position in the list.
    DimByDim(&'static str),
    /// Increasing positions in this flattened parameter.
    Offsets(&'static str),
}

impl IndexLimit {
    /// The parameter that determines the limit.
    pub fn param(self) -> &'static str {
        match self {
            IndexLimit::Rows(p)
            | IndexLimit::Classes(p)
            | IndexLimit::Below(p)
            | IndexLimit::DimByDim(p)
            | IndexLimit::Offsets(p) => p,
        }
    }
}

/// The memory order of a result's dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrder {
    /// Row-major.
    RowMajor,
    /// A column-major matrix.
    Columns,
    /// The order of the first operand (torch's `empty_like`).
    First,
    /// The order that torch's `TensorIterator` derives from all operands.
    Operands,
}

/// How a row depends on the memory of its first operand, rather than on its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryUse {
    /// Not at all.
    #[default]
    Elements,
    /// Its value depends on strides or an offset: `stride`.
    Asks,
    /// Some strides are an error: `view`.
    Checks,
    /// It reads or writes a strided window of the storage: `as_strided`.
    Window,
    /// It resizes the storage: `resize_`.
    Resizes,
}

/// The order in which a row draws random numbers for the elements of its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawOrder {
    /// Row-major; also used for rows that draw nothing. (torch draws normal numbers in blocks, whatever the layout.)
    #[default]
    RowMajor,
    /// Row-major, except that an in-place call draws in the memory order of its operand.
    InPlace,
    /// In the memory order of the first operand, which is also that of the result.
    OfOperand,
}

/// The value of all elements of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// A number.
    Number(i64),
    /// The value of the parameter with this index.
    Parameter(usize),
}

impl Op {
    /// Declares that each element is an element of the first parameter. Not needed for views.
    pub fn same_elements(mut self) -> Op {
        self.facts.same_elements = true;
        self
    }

    /// Declares that the result has memory of its own in torch. Not needed for rows that are not composite.
    pub fn new_memory(mut self) -> Op {
        self.facts.new_memory = true;
        self
    }

    /// Declares that the row multiplies matrices, though it is a composite.
    pub fn multiplies(mut self) -> Op {
        self.facts.multiplies = true;
        self
    }

    /// Declares that the row's routine updates a copy of its first operand.
    pub fn updates(mut self) -> Op {
        self.facts.updates = true;
        self
    }

    /// Declares the memory order of the result's dims.
    pub fn order(mut self, order: MemoryOrder) -> Op {
        self.facts.order = Some(order);
        self
    }

    /// Declares that the row clamps each element to these bounds.
    pub fn clamps(mut self, bounds: Clamp) -> Op {
        self.facts.clamp = Some(bounds);
        self
    }

    /// Declares how the row depends on the memory of its first operand.
    pub fn memory(mut self, used: MemoryUse) -> Op {
        self.facts.memory = used;
        self
    }

    /// Declares that the row updates running statistics.
    pub fn updates_running(mut self, running: RunningStats) -> Op {
        self.facts.running = Some(running);
        self
    }

    /// Declares that the row writes its second operand to a view of its first.
    pub fn scatters_to(mut self, view: OpId) -> Op {
        self.facts.scatter_to = Some(view);
        self
    }

    /// Declares the order in which the row draws random numbers.
    pub fn draws(mut self, order: DrawOrder) -> Op {
        self.facts.draws = order;
        self
    }

    /// Declares which parameters are indices, and their limits.
    pub fn index_limits(mut self, limits: &'static [(&'static str, IndexLimit)]) -> Op {
        self.facts.index_limits = limits;
        self
    }

    /// Declares how a routine writes its result to the caller's memory if its size is known.
    pub fn fills(mut self, fill: FillFn) -> Op {
        self.facts.fill = Some(fill);
        self
    }

    /// Declares how the row writes its result over its first operand, whose other elements stay as they are.
    pub fn overwrites(mut self, overwrite: OverwriteFn) -> Op {
        self.facts.overwrite = Some(overwrite);
        self
    }

    /// Declares that the row is a dropout: it draws random numbers in training and returns its operand otherwise.
    pub fn dropout(mut self) -> Op {
        self.facts.dropout = true;
        self.effect(Effect::Random)
    }
}

impl Op {
    /// Whether each element of the result is an element of the first parameter.
    pub fn has_same_elements(&self) -> bool {
        self.facts.same_elements || matches!(self.meaning, Meaning::View(_))
    }

    /// Whether the row is a product of matrices or a convolution, which takes many operations for each element.
    pub fn is_contraction(&self) -> bool {
        self.facts.multiplies || matches!(self.meaning, Meaning::Contract(_))
    }

    /// The value of all elements of the result, if the row is a fill.
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
    fn index_limits_name_parameters() {
        let mut count = 0;
        for row in super::super::all() {
            for &(param, limit) in row.facts.index_limits {
                count += 1;
                for p in [param, limit.param()] {
                    assert!(row.schema.index_of(p).is_some(), "{row:?}: {p}");
                }
            }
        }
        assert!(count > 0);
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
