//! Checks raise the same error in compiled code as in the interpreter, in any context.

use crate::support::{Dir, fxc};
use fxc::internals::op::{self, Effect};
use std::collections::HashSet;

/// Graphs that must fail with a message: the row that checks, the inputs, the body of a graph of `x` and `s` (whose
/// elements are zero) and the message. Rows that only check if an argument is set are included.
const FAILING: &[(&str, &str, &str)] = &[
    ("_assert_tensor", "%c = call_function torch._assert(%s, \"m1\")", "m1"),
    (
        "_assert_tensor",
        "%c = call_function torch.ops.aten._assert_async.msg(%s, \"m2\")",
        "m2",
    ),
    (
        "_assert_tensor",
        "%c = call_function torch.ops.aten._assert_async.default(%s)",
        "Expected Tensor with single nonzero value, but got zero",
    ),
    (
        "_assert_tensor",
        "%c = call_function torch.ops.aten._assert_async.default(%x)",
        "Boolean value of Tensor with more than one value is ambiguous",
    ),
    (
        "_assert_scalar",
        "%i = call_method item(%s)  %c = call_function torch.ops.aten._assert_scalar.default(%i, \"m3\")",
        "m3",
    ),
    (
        "_assert_scalar",
        "%i = call_method size(%x, 0)  %j = call_function operator.eq(%i, 4)  %c = call_function torch._assert(%j, \"m4\")",
        "m4",
    ),
    (
        "_assert_scalar",
        "%c = call_function torch.ops.aten._assert_scalar.default(0.0, \"m5\")",
        "m5",
    ),
    (
        "_assert_scalar",
        "%n = call_function torch.nonzero(%s)  %i = call_method size(%n, 0)  %j = call_function operator.gt(%i, 3)
         %c = call_function torch.ops.aten._assert_scalar.default(%j, \"m6\")",
        "m6",
    ),
    (
        "_assert_tensor_metadata",
        "%c = call_function torch.ops.aten._assert_tensor_metadata.default(%x, [4, 3])",
        "Tensor sizes mismatch! Expected: [4, 3], Got: [3, 3]",
    ),
    (
        "_assert_tensor_metadata",
        "%c = call_function torch.ops.aten._assert_tensor_metadata.default(%x, None, None, torch.int64)",
        "Tensor dtype mismatch! Expected: Long, Got: float",
    ),
    (
        "_assert_tensor_metadata",
        "%c = call_function torch.ops.aten._assert_tensor_metadata.default(%x, layout=torch.sparse_csr)",
        "Tensor layout mismatch! Expected: SparseCsr, Got: Strided",
    ),
    (
        "_assert_tensor_metadata",
        "%n = call_function torch.nonzero(%x)
         %c = call_function torch.ops.aten._assert_tensor_metadata.default(%n, [3, 2])",
        "Tensor sizes mismatch! Expected: [3, 2], Got: [0, 2]",
    ),
    (
        "_linalg_check_errors",
        "%i = call_function torch.ops.aten.linalg_inv_ex.default(%x)  %j = call_function operator.getitem(%i, 1)
         %c = call_function torch.ops.aten._linalg_check_errors.default(%j, \"linalg.inv\", is_matrix=True)",
        "linalg.inv: The diagonal element 1 is zero",
    ),
    (
        "_linalg_check_errors",
        "%i = call_function torch.ops.aten.linalg_cholesky_ex.default(%x)  %j = call_function operator.getitem(%i, 1)
         %c = call_function torch.ops.aten._linalg_check_errors.default(%j, \"torch.linalg.cholesky\", is_matrix=True)",
        "torch.linalg.cholesky: The factorization could not be completed",
    ),
    (
        "sym_constrain_range",
        "%i = call_method item(%s)  %c = call_function torch.ops.aten.sym_constrain_range.default(%i, min=1, max=5)",
        "Invalid value range for 0 between [1, 5].",
    ),
    (
        "sym_constrain_range",
        "%c = call_function torch.sym_constrain_range(3, min=7, max=5)",
        "Max must be greater than or equal to min. Got min=7 max=5",
    ),
    (
        "sym_constrain_range_for_size",
        "%n = call_function torch.nonzero(%s)  %i = call_method size(%n, 0)
         %c = call_function torch.ops.aten.sym_constrain_range_for_size.default(%i, min=2)",
        "Invalid value range for 0 between [2, 9223372036854775807].",
    ),
    (
        "_check",
        "%i = call_function builtins.bool(%s)  %c = call_function torch._check(%i, \"m7\")",
        "m7",
    ),
    (
        "_check",
        "%i = call_method size(%x, 0)  %j = call_function operator.eq(%i, 4)  %c = call_function torch._check(%j)",
        "Expected cond to be True, but got False.",
    ),
    (
        "_check_is_size",
        "%i = call_method item(%s)  %j = call_function operator.sub(%i, 1)  %c = call_function torch._check_is_size(%j, \"m8\")",
        "m8",
    ),
    (
        "_check_tensor_all",
        "%b = call_function torch.gt(%x, 0)  %c = call_function torch._check_tensor_all(%b, \"m9\")",
        "m9",
    ),
    (
        "",
        "%c = call_function torch.linalg.inv(%x)  %y = call_function torch.add(%c, 1)",
        "linalg.inv: The diagonal element 1 is zero",
    ),
    (
        "",
        "%c = call_function torch.linalg.solve(%x, %x)  %y = call_function torch.add(%c, 1)",
        "torch.linalg.solve: The solver failed",
    ),
    (
        "",
        "%v = call_function torch.linalg.lu_factor(%x)  %c = call_function operator.getitem(%v, 0)
         %y = call_function torch.add(%c, 1)",
        "torch.linalg.lu_factor: U[1,1] is zero",
    ),
    (
        "",
        "%c = call_function torch.cholesky_inverse(%x)  %y = call_function torch.add(%c, 1)",
        "cholesky_inverse: The diagonal element 1 is zero",
    ),
    (
        "",
        "%n = call_function torch.div(%x, %x)  %c = call_function torch.linalg.svdvals(%n)
         %y = call_function torch.add(%c, 1)",
        "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values.",
    ),
    (
        "",
        "%c = call_function torch.linalg.cholesky(%x)  %y = call_function torch.add(%c, 1)",
        "linalg.cholesky: The factorization",
    ),
];

/// Complete files around a body that must fail.
fn files(body: &str) -> Vec<(&'static str, String)> {
    let y = if body.contains("%y =") {
        ""
    } else {
        "%y = call_function torch.mul(%x, 2)"
    };
    let graph = |rows: &str| {
        format!(
            "graph main {{
    %x : f32[{rows}, 3] = placeholder x
    %z = call_function torch.sum(%x)
    %s = call_method to(%z, torch.int64)
    {body}
    {y}
    output %y
}}\n"
        )
    };
    let inner = format!(
        "graph inner {{\n    %x = placeholder x\n    %s = placeholder s\n    {body}\n    {y}\n    output (%y,)\n}}\n"
    );
    let outer = |call: &str, result: &str| {
        format!(
            "graph main {{
    %x : f32[3, 3] = placeholder x
    %z = call_function torch.sum(%x)
    %s = call_method to(%z, torch.int64)
    {call}
    output {result}
}}
{inner}"
        )
    };
    let chosen = "%p = call_function torch.ge(%z, 0)  %t = call_function torch.cond(%p, @inner, @inner, (%x, %s))";
    vec![
        ("alone", graph("3")),
        ("symbolic", graph("N")),
        ("called", outer("%t = call_function inner(%x, %s)", "%t")),
        ("chosen", outer(chosen, "%t")),
        ("unused", outer(chosen, "%x")),
    ]
}

/// The exit code and title of the error.
fn raised(file: &str, place: &str, more: &[&str]) -> (i32, String) {
    let dims: &[&str] = if place == "symbolic" { &["--dim", "N=3"] } else { &[] };
    let ran = fxc(&[&["run", file, "x=zeros", "--message-format", "short"], dims, more].concat());
    let title = ran.err.lines().find_map(|l| l.split_once("error["));
    (ran.code, title.unwrap_or_default().1.to_string())
}

#[test]
fn checks_are_never_lost() {
    let dir = Dir::new("assertions");
    for (n, (row, body, message)) in FAILING.iter().enumerate() {
        let mut wanted = None;
        for (place, text) in files(body) {
            if place == "unused" && row.is_empty() {
                // Ops that only compute are dropped if they are unused.
                continue;
            }
            let file = dir.file(&format!("{n}-{place}.fxir"), &text);
            let wanted = wanted.get_or_insert_with(|| raised(&file, place, &["--interpret"]));
            let compiled = raised(&file, place, &[]);
            // If an assertion fixes a size, it becomes part of the input's type.
            let fixed = place == "symbolic" && compiled.1.starts_with("E0301]: the input `x` is declared");
            assert!(
                fixed || compiled == *wanted,
                "{place}: {compiled:?} instead of {wanted:?}\n{text}"
            );
        }
        let (code, title) = wanted.unwrap_or_default();
        assert!(
            code == 1 && title.contains(message),
            "{title} instead of {message}\n{body}"
        );
    }
}

#[test]
fn every_row_that_checks_has_a_sample() {
    let have: HashSet<&str> = FAILING.iter().map(|f| f.0).collect();
    let rows = op::all()
        .iter()
        .filter(|o| o.effect == Effect::External)
        .map(|o| o.name);
    let missing: Vec<&str> = rows.filter(|name| !have.contains(name)).collect();
    assert!(missing.is_empty(), "no graph of {missing:?} that fails");
}
