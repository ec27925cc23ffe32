//! A method for each row of the table, used to write decompositions: `b.mul(x, y)?`, `b.softmax(x, dim)?`.

use super::{Build, OpId, OpResult, Traced};
use crate::types::Val;

macro_rules! ids {
    ($($variant:ident $name:literal $method:ident($($param:ident),* $(; $($keyword:ident),*)?))*) => {
        /// The rows as methods of a builder. A method takes the parameters without a default, by position; the others
        /// get their defaults. Use [`Build::call`] to set those as well.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the names are torch's")]
        #[allow(dead_code, reason = "every row has a method, so that a decomposition may use any")]
        pub(crate) trait OpBuilder {
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
