//! Sizes that depend on values, from the command line.

use crate::support::{Dir, fxc};

/// Without regard to the order of the graph, the third draw could come before the second, which has to wait for a product.
#[test]
fn draws_after_data_dependent_sizes_stay_in_order() {
    let dir = Dir::new("late-draws");
    let text = "graph main {
        %x : f32[8, 64] = placeholder x
        %w : f32[64, 64] = placeholder w
        %i = call_function torch.nonzero(%x)
        %row = call_function torch.select(%i, 1, 0)
        %some = call_function torch.index_select(%x, 0, %row)
        %a = call_function torch.rand_like(%some)
        %product = call_function torch.matmul(%some, %w)
        %act = call_function torch.relu(%product)
        %b = call_function torch.rand_like(%act)
        %c = call_function torch.rand_like(%some)
        output (%a, %b, %c)
    }";
    let path = dir.file("draws.fxir", text);
    let run = |how: &str| fxc(&["run", &path, "x=randn:1", "w=randn:2", "--seed", "0", how]).out;
    assert_eq!(run("--threads=1"), run("--interpret"));
}
