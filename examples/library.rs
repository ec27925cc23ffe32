//! fxc as a library: build a graph, edit it as with torch.fx, compile it, run it.
//!
//!     cargo run --release --example library

use fxc::diag::render::{Format, render};
use fxc::driver::{Fill, Given, Model, Provided, Request, Session, Staged, bind, compile, run};
use fxc::graph::{Graph, GraphModule, Opcode};
use fxc::types::{DType, TensorType, Val};

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

/// Compiles the module for 4x8 inputs and runs it on random numbers.
fn compile_and_run(session: &mut Session, module: GraphModule) -> Staged<()> {
    let matrix = |rows, columns| Some(TensorType::fixed(DType::F32, &[rows, columns]));
    let input = |name: &str, seed, ty| Provided {
        name: name.into(),
        given: Given::Fill(Fill::Normal(seed), ty),
        origin: "this program".into(),
        must_match: true,
    };
    let inputs = vec![input("x", 1, matrix(4, 8)), input("w", 2, matrix(8, 3))];
    let (bound, found) = bind::bind(&module, inputs, Default::default());
    session.diagnostics.extend(found);
    let bound = bound.ok_or(fxc::driver::Reported)?;

    let request = Request {
        inputs: Some(bound.types.clone()),
        ..Request::default()
    };
    let mut made = compile(session, Model::new("example", module), &request)?;
    println!("{}", fxc::graph::print(&made.module));

    let result = made.run(&bound).expect("nothing can fail at run time here");
    for (name, tensor) in run::named(&result) {
        println!("{name} {} {}", tensor.ty(), run::summary(&tensor));
    }
    Ok(())
}

fn main() {
    let mut graph = build();
    relu_to_gelu(&mut graph);
    print!("{}\n\n", fxc::graph::torch_print::print(&graph, None));

    let mut session = Session::new();
    if compile_and_run(&mut session, GraphModule::new("example", graph)).is_err() {
        let list: Vec<_> = session.diagnostics.iter().collect();
        eprint!("{}", render(&session.sources, &list, Format::Human, false));
        std::process::exit(1);
    }
}
