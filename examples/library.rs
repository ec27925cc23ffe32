//! fxc as a library: build a graph, edit it as with torch.fx, compile it, run it.
//!
//!     cargo run --release --example library

use fxc::graph::{Graph, Opcode, torch_print};
use fxc::types::Val;
use fxc::{Error, Model, Options, Tensor};

/// `relu(x @ w) + 1`, node by node: the calls are those of torch.fx's `Graph`.
fn build() -> Graph {
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let w = g.placeholder("w", None);
    let product = g.call_function("torch.matmul", vec![Val::Leaf(x), Val::Leaf(w)], vec![]);
    let relu = g.call_function("torch.relu", vec![Val::Leaf(product)], vec![]);
    let sum = g.call_function("operator.add", vec![Val::Leaf(relu), Val::int(1)], vec![]);
    g.set_output(Val::Leaf(sum));
    g
}

/// Replaces every `torch.relu` with `torch.nn.functional.gelu`, as a torch.fx pass would.
fn relu_to_gelu(g: &mut Graph) {
    for old in g.find_nodes(Opcode::CallFunction, Some("torch.relu")) {
        let args = g[old].args().to_vec();
        let new = g
            .inserting_after(Some(old), |g| g.call_function("torch.nn.functional.gelu", args, vec![]))
            .expect("the node is in the graph");
        g.replace_all_uses_with(old, new);
        g.erase_node(old).expect("nothing uses it any more");
    }
}

/// A matrix of 0, 1/4, 2/4, …
fn matrix(rows: usize, columns: usize) -> Tensor {
    let data: Vec<f32> = (0..rows * columns).map(|i| i as f32 / 4.0).collect();
    Tensor::from_slice(&[rows, columns], &data)
}

fn main() -> Result<(), Error> {
    let mut graph = build();
    relu_to_gelu(&mut graph);
    print!("{}\n\n", torch_print::print(&graph, None));

    let compiled = Model::from(graph).compile(&Options::new())?;
    // The sizes are those of the inputs: other sizes are compiled for when they come.
    for rows in [2, 4] {
        let out = compiled.run([("x", matrix(rows, 8)).into(), ("w", matrix(8, 3)).into()])?;
        println!("{} {:?}", out[0].ty(), out[0].as_slice::<f32>());
    }
    Ok(())
}
