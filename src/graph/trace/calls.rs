//! A method of [`Tracer`] for each row of the op table.

use super::{IntoArg, Proxy, Tracer, record_call};
use crate::graph::{Arg, Opcode};
use crate::op::OpId;
use std::panic::Location;
use std::sync::Arc;

macro_rules! ids {
    ($($variant:ident $name:literal $method:ident($($param:ident),* $(; $($keyword:ident),*)?))*) => {
        /// Calls of the ops of the table, one method for each. The parameters are those without a default, in the
        /// schema's order; `self` is called `input`. [`Proxy::with`] sets the others.
        #[allow(
            non_snake_case,
            clippy::should_implement_trait,
            clippy::too_many_arguments,
            clippy::wrong_self_convention,
            reason = "the names and parameters are the table's"
        )]
        impl Tracer {
            $(
                #[doc = concat!("Calls the row [`", $name, "`](OpId::", stringify!($variant), ").")]
                #[track_caller]
                pub fn $method(&self, $($param: impl IntoArg,)* $($($keyword: impl IntoArg,)*)?) -> Proxy {
                    let keywords = vec![$($((stringify!($keyword).into(), $keyword.into_arg())),*)?];
                    self.row(OpId::$variant, vec![$($param.into_arg()),*], keywords)
                }
            )*
        }
    };
}

include!("../../op/id/table.in");

impl Tracer {
    #[track_caller]
    fn row(&self, op: OpId, args: Vec<Arg>, keywords: Vec<(Arc<str>, Arg)>) -> Proxy {
        let location = Location::caller();
        record_call(
            &self.recording,
            Opcode::CallFunction,
            op.name(),
            args,
            keywords,
            location,
        )
    }
}

impl Proxy {
    /// Sets a parameter of the call that has a default, by name.
    ///
    /// ```
    /// use fxc::graph::Graph;
    /// use fxc::types::DType;
    ///
    /// let graph = Graph::trace(&["x", "y"], |t, p| {
    ///     let sum = t.add(&p[0], &p[1]).with("alpha", 2);
    ///     t.softmax(&sum, -1).with("dtype", DType::F64)
    /// });
    /// let softmax = graph.iter().nth(3).unwrap();
    /// assert_eq!(graph[softmax].target(), "softmax");
    /// assert_eq!(graph[softmax].kwargs()[0].0.as_ref(), "dtype");
    /// ```
    pub fn with(self, name: &str, value: impl IntoArg) -> Proxy {
        let value = value.into_arg();
        self.recording.borrow_mut().graph.update_kwarg(self.node, name, value);
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{Graph, GraphModule};
    use crate::infer;
    use crate::types::Val;

    #[test]
    fn calls_are_those_of_the_rows() {
        let graph = Graph::trace(&["x", "y"], |t, p| {
            let sum = t.add(&p[0], &p[1]).with("alpha", 2);
            let chosen = t.r#where(t.gt(&sum, 0), &sum, &p[1]);
            t.prims_iota(3, 0, 1, crate::types::DType::I64);
            t.batch_norm(chosen, (), (), (), (), true, 0.1, 1e-5)
        });
        let targets: Vec<&str> = graph.iter().map(|n| graph[n].target()).collect();
        assert_eq!(
            targets,
            ["x", "y", "add", "gt", "where", "prims_iota", "batch_norm", "output"]
        );
        let add = graph.iter().nth(2).unwrap();
        assert_eq!(graph[add].kwarg("alpha"), Some(&Val::int(2)));
        let mut module = GraphModule::new("main", graph);
        let found = infer::infer(&mut module, &infer::InferOptions::default());
        assert!(!found.has_errors(), "{found:?}");
    }
}
