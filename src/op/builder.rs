//! A method for each row of the table, with which decompositions are written: `b.mul(x, y)?`, `b.softmax(x, dim)?`.

use super::{Build, OpId, OpResult, Traced};
use crate::types::Val;

macro_rules! ids {
    ($($variant:ident $name:literal $method:ident($($param:ident),* $(; $($keyword:ident),*)?))*) => {
        /// The rows as methods of a builder. Their parameters are those without a default, by position; the others take their
        /// defaults. [`Build::call`] takes arguments for these too.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the names are torch's")]
        pub trait OpBuilder {
            $(
                #[doc = concat!("The row `", $name, "`.")]
                fn $method(&mut self, $($param: impl Into<Val<Traced>>),*) -> OpResult<Traced>;
            )*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the names are torch's")]
        impl OpBuilder for dyn Build + '_ {
            $(
                fn $method(&mut self, $($param: impl Into<Val<Traced>>),*) -> OpResult<Traced> {
                    self.op(OpId::$variant, [$($param.into()),*])
                }
            )*
        }
    };
}

include!("id/table.in");
