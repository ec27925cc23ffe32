//! The tasks of the torch.fx tutorials, each as a program that runs.
//!
//! # Replace every `add` by `mul`
//! ```
//! use fxc::graph::{Graph, Opcode};
//!
//! let mut g = Graph::trace(&["x", "y"], |_, p| &p[0] + &p[1]);
//! for n in g.find_nodes(Opcode::CallFunction, Some("operator.add")) {
//!     g.set_target(n, Opcode::CallFunction, "operator.mul");
//! }
//! assert_eq!(g.find_nodes(Opcode::CallFunction, Some("operator.mul")).len(), 1);
//! ```
//! The node keeps its name, as in torch.fx; [`Graph::rename`](crate::graph::Graph::rename) gives it another.
//!
//! # Insert a `relu` after every call
//! ```
//! use fxc::graph::{Graph, Opcode};
//! use fxc::types::Val;
//!
//! let mut g = Graph::trace(&["x"], |_, p| &p[0] + 1);
//! for n in g.find_nodes(Opcode::CallFunction, Some("operator.add")) {
//!     let relu = g
//!         .inserting_after(Some(n), |g| g.call_function("torch.relu", vec![Val::Leaf(n)], vec![]))
//!         .unwrap();
//!     g.replace_uses_where(n, relu, |_, user| user != relu);
//! }
//! let names: Vec<&str> = g.iter().map(|n| g[n].name()).collect();
//! assert_eq!(names, ["x", "add", "relu", "output"]);
//! ```
//!
//! # Remove identities
//! ```
//! use fxc::graph::{Graph, Opcode};
//!
//! let mut g = Graph::trace(&["x"], |_, p| p[0].method("contiguous", ()).method("exp", ()));
//! for n in g.find_nodes(Opcode::CallMethod, Some("contiguous")) {
//!     let x = *g[n].args()[0].as_leaf().unwrap();
//!     g.replace_all_uses_with(n, x);
//!     g.erase_node(n).unwrap();
//! }
//! assert_eq!(g.len(), 3);
//! ```
//!
//! # Erase a node that is used
//! ```
//! use fxc::graph::Graph;
//!
//! let mut g = Graph::trace(&["x"], |t, p| t.relu(&p[0] + 1));
//! let error = g.erase_node(g.find("add").unwrap()).unwrap_err();
//! assert_eq!(error.0, "Tried to erase Node add but it still had 1 users in the graph: {relu: None}!");
//! ```
//!
//! # Edit keyword arguments
//! ```
//! use fxc::graph::Graph;
//! use fxc::types::Val;
//!
//! let mut g = Graph::trace(&["x"], |t, p| t.function("torch.sum", (&p[0],), &[("dim", Val::int(0))]));
//! let sum = g.find("sum_1").unwrap();
//! g.update_kwarg(sum, "dim", Val::int(-1));
//! g.update_kwarg(sum, "keepdim", Val::Bool(true));
//! assert_eq!(g[sum].kwarg("dim"), Some(&Val::int(-1)));
//! assert_eq!(g[sum].kwargs().len(), 2);
//! ```
//!
//! # Make one user read another value
//! ```
//! use fxc::graph::Graph;
//!
//! let mut g = Graph::trace(&["x", "y"], |_, p| (&p[0] + 1, &p[0] * 2));
//! let (x, y, add) = (g.find("x").unwrap(), g.find("y").unwrap(), g.find("add").unwrap());
//! g.replace_input_with(add, x, y);
//! assert_eq!(g[add].inputs(), [y]);
//! assert_eq!(g[x].users().count(), 1);
//! ```
//!
//! # Fold a batch normalisation into the convolution before it
//! ```
//! use fxc::Model;
//! use fxc::infer::{InferOptions, infer};
//! use fxc::pass::PassManager;
//! # let text = "
//! # const w : f32[1, 1, 1, 1] = [[[[2.0]]]]
//! # const b : f32[1] = [1.0]
//! # const mean : f32[1] = [3.0]
//! # const var : f32[1] = [4.0]
//! # graph main {
//! #     %x : f32[1, 1, 2, 2] = placeholder x
//! #     %w = get_attr w
//! #     %b = get_attr b
//! #     %mean = get_attr mean
//! #     %var = get_attr var
//! #     %c = call_function torch.conv2d(%x, %w, %b)
//! #     %n = call_function torch.nn.functional.batch_norm(%c, %mean, %var, eps=0.0)
//! #     output %n
//! # }";
//! let mut module = Model::from_text(text).unwrap().into_module(); // conv2d(x, w = 2, b = 1), mean 3, variance 4
//! infer(&mut module, &InferOptions::default());
//! let mut passes = PassManager::from_names(&["normalize", "batch-norm", "dce"]).unwrap();
//! passes.run(&mut module, &Default::default(), &mut |_, _| {}).unwrap();
//! let graph = module.entry().unwrap();
//! let calls: Vec<&str> = graph.iter().filter(|&n| graph[n].op().is_call()).map(|n| graph[n].target()).collect();
//! assert_eq!(calls, ["conv2d"]);
//! // The new weight is 2 / sqrt(4), the new bias (1 - 3) / sqrt(4).
//! let conv = graph.find("c").unwrap();
//! let value = |i: usize| {
//!     let attribute = graph[*graph[conv].args()[i].as_leaf().unwrap()].target();
//!     module.attributes[attribute].value.as_ref().unwrap().get(0).to_f64()
//! };
//! assert_eq!((value(1), value(2)), (1.0, -1.0));
//! ```
//!
//! # Propagate shapes
//! ```
//! use fxc::graph::{Graph, GraphModule};
//! use fxc::infer::{InferOptions, infer};
//! use fxc::types::{DType, TensorType, Val};
//!
//! let g = Graph::trace(&["x"], |_, p| p[0].method("transpose", (0, 1)));
//! let mut module = GraphModule::new("g", g);
//! let inputs = vec![Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2, 3]))];
//! assert!(infer(&mut module, &InferOptions::for_inputs(inputs)).is_empty());
//! let g = module.entry().unwrap();
//! let ty = g[g.find("transpose").unwrap()].meta.ty.as_ref().unwrap();
//! assert_eq!(ty.to_string(), "f32[3, 2]");
//! ```
//!
//! # Run node by node, watching, and with inputs that are freed
//! ```
//! use fxc::diag::Diagnostic;
//! use fxc::graph::{Graph, GraphModule};
//! use fxc::interp::{Hooked, Hooks, Interpreter, RunningNode};
//! use fxc::Tensor;
//! use fxc::types::Val;
//!
//! struct Watch(Vec<String>);
//! impl Hooks for Watch {
//!     fn call_method(&mut self, at: RunningNode<'_>) -> Hooked {
//!         // Takes over: exp(x) is computed as x, every other method as it is.
//!         Ok((at.target() == "exp").then(|| at.args[0].clone()))
//!     }
//!     fn after_node(&mut self, g: &Graph, n: fxc::graph::NodeId, _: &fxc::interp::RuntimeValue) -> Result<(), Diagnostic> {
//!         self.0.push(g[n].name().to_string());
//!         Ok(())
//!     }
//! }
//!
//! let g = Graph::trace(&["x"], |_, p| p[0].method("exp", ()) + 1);
//! let module = GraphModule::new("g", g);
//! let mut watch = Watch(vec![]);
//! let x = Val::Leaf(Tensor::from_slice(&[2], &[1f32, 2.0]));
//! let y = Interpreter::new(&module).run_with(vec![x.clone()], &mut watch).unwrap();
//! assert_eq!(y.as_leaf().unwrap().as_slice::<f32>(), [2.0, 3.0]);
//! assert_eq!(watch.0, ["x", "exp", "add", "output"]);
//!
//! let mut inputs = vec![x.clone(), x];
//! let error = Interpreter::new(&module).boxed_run(&mut inputs).unwrap_err();
//! assert_eq!(
//!     error.title,
//!     "Interpreter.boxed_run expected 1 arguments for placeholders but received 2 (extra arguments)"
//! );
//! inputs.truncate(1);
//! Interpreter::new(&module).boxed_run(&mut inputs).unwrap();
//! assert!(inputs.is_empty());
//! ```
//!
//! # Write a graph anew, opcode by opcode
//! See [`Transformer`](crate::graph::transform::Transformer):
//! ```
//! use fxc::graph::transform::{Copied, Transformer, copy_node, transform};
//! use fxc::graph::{Arg, EditResult, Graph};
//! use fxc::types::Val;
//!
//! struct NegSigmoid;
//! impl Transformer for NegSigmoid {
//!     fn call_function(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
//!         if n.node.target() == "torch.sigmoid" {
//!             return Ok(Val::Leaf(new.call_function("torch.neg", n.args, n.kwargs)));
//!         }
//!         copy_node(new, n)
//!     }
//! }
//! let g = Graph::trace(&["x"], |t, p| t.function("torch.sigmoid", (&p[0],), &[]));
//! let new = transform(&g, &mut NegSigmoid).unwrap();
//! assert!(new.find("neg").is_some());
//! ```
//!
//! # Replace a pattern
//! ```
//! use fxc::graph::Graph;
//! use fxc::rewrite::torch::replace_pattern;
//!
//! let pattern = Graph::trace(&["a", "b"], |t, p| t.function("torch.relu", (&p[0] + &p[1],), &[]));
//! let replacement = Graph::trace(&["a", "b"], |t, p| t.function("torch.maximum", (&p[0], &p[1]), &[]));
//! let mut g = Graph::trace(&["x", "y"], |t, p| t.function("torch.relu", (&p[0] + &p[1],), &[]).method("sum", ()));
//! let replaced = replace_pattern(&mut g, &pattern, &replacement).unwrap();
//! assert_eq!(replaced.len(), 1);
//! let names: Vec<&str> = g.iter().map(|n| g[n].target()).collect();
//! assert_eq!(names, ["x", "y", "torch.maximum", "sum", "output"]);
//! ```
//! The same as a rule, which matches any spelling and either order of the sum:
//! ```
//! # use fxc::graph::{Graph, GraphModule};
//! use fxc::rewrite::{RewriteOptions, Rule, rewrite};
//! # let pattern = Graph::trace(&["a", "b"], |t, p| t.function("torch.relu", (&p[0] + &p[1],), &[]));
//! # let replacement = Graph::trace(&["a", "b"], |t, p| t.function("torch.maximum", (&p[0], &p[1]), &[]));
//!
//! let rule = Rule::from_graphs("relu_of_sum", &pattern, &replacement).unwrap();
//! let g = Graph::trace(&["x", "y"], |_, p| p[0].method("add", (&p[1],)).method("relu", ()));
//! let mut module = GraphModule::new("g", g);
//! assert_eq!(rewrite(&mut module, &[rule], &RewriteOptions::default()).unwrap().total(), 1);
//! ```
//!
//! # Partition by what a backend supports, and split by stage
//! ```
//! use fxc::graph::{Graph, GraphModule};
//! use fxc::pass::partition::Partitioner;
//! use fxc::pass::split::{fuse, split_module};
//!
//! let g = Graph::trace(&["x"], |t, p| {
//!     let a = &p[0] + 1;
//!     let b = t.function("torch.fft.fft", (&a,), &[]);
//!     a * 2 + b
//! });
//! let mut partitioner = Partitioner::new(None, &g, |g, n| g[n].target().starts_with("operator."));
//! partitioner.allow_single_node = true;
//! let parts = partitioner.propose();
//! assert_eq!(parts.len(), 2); // what comes before the transform and what needs it
//! let mut module = GraphModule::new("g", g.clone());
//! fuse(&mut module, "g", &parts).unwrap();
//! assert_eq!(module.graphs.keys().map(|k| &**k).collect::<Vec<_>>(), ["g", "fused_0", "fused_1"]);
//!
//! let g = Graph::trace(&["x"], |_, p| p[0].method("exp", ()).method("sum", ()));
//! let mut module = GraphModule::new("g", g);
//! split_module(&mut module, "g", |g, n| (g[n].target() == "sum") as i64).unwrap();
//! let main = &module.graphs["g"];
//! let calls: Vec<&str> = main.iter().filter(|&n| main[n].op().is_call()).map(|n| main[n].target()).collect();
//! assert_eq!(calls, ["submod_0", "submod_1"]);
//! ```
//!
//! # A pass of one's own, with an order to keep and a check
//! ```
//! use fxc::diag::{Code, Diagnostic};
//! use fxc::graph::{Graph, GraphModule, Opcode};
//! use fxc::pass::{PassManager, PassOptions};
//!
//! let mut module = GraphModule::new("g", Graph::trace(&["x"], |_, p| &p[0] + 1));
//! let mut passes = PassManager::new();
//! passes.add_pass("add-to-sub", |module, _| {
//!     let graph = module.entry_mut().unwrap();
//!     let found = graph.find_nodes(Opcode::CallFunction, Some("operator.add"));
//!     found.iter().for_each(|&n| graph.set_target(n, Opcode::CallFunction, "operator.sub"));
//!     Ok(found.len())
//! });
//! passes.add_check(|m| match m.entry().is_some_and(|g| g.output().is_some()) {
//!     true => Ok(()),
//!     false => Err(Diagnostic::new(Code::E0104, "the output is gone")),
//! });
//! passes.steps = 5; // ends after the second round, which changes nothing
//! let report = passes.run(&mut module, &PassOptions::default(), &mut |_, _| {}).unwrap();
//! assert_eq!(report.runs.iter().map(|r| r.changed).collect::<Vec<_>>(), [1, 0]);
//! ```
//!
//! # Save a module and load it again
//! The counterpart of pickling in torch.fx: the graph as FXIR, and its parameters, buffers and constants in a
//! safetensors file that it names. Nothing is traced again, so the module that is loaded equals the one that was saved.
//! ```
//! use fxc::graph::{Graph, GraphModule, print};
//! use fxc::{Model, Tensor};
//!
//! let graph = Graph::trace(&["x"], |t, p| t.attribute("scale") * &p[0]);
//! let mut module = GraphModule::new("scaled", graph);
//! let scale = Tensor::from_slice(&[2], &[0.5f32, 2.0]);
//! module.add_parameter("scale", scale.clone());
//! let folder = std::env::temp_dir().join(format!("fxc-doc-{}", std::process::id()));
//! std::fs::create_dir_all(&folder).unwrap();
//! let file = folder.join("scaled.fxir");
//! Model::from(module.clone()).save(&file).unwrap();
//!
//! let loaded = Model::open(&file).unwrap().into_module();
//! assert_eq!(print(&loaded).replace("weights \"scaled.safetensors\"\n", ""), print(&module));
//! assert_eq!(loaded.attributes["scale"].value.as_ref(), Some(&scale));
//! # std::fs::remove_dir_all(folder).unwrap();
//! ```
//! The text itself may hold a small tensor: `const scale : f32[2] = [0.5, 2.0]`.
//!
//! # See what a pass did
//! [`GraphTransformObserver`](super::observer::GraphTransformObserver) names the nodes that were made, erased and replaced;
//! [`diff`](crate::graph::transform::diff) shows the lines that differ:
//! ```
//! use fxc::graph::transform::{Change, diff};
//! use fxc::graph::{Graph, Opcode};
//!
//! let before = Graph::trace(&["x"], |_, p| &p[0] + 1);
//! let mut after = before.clone();
//! let add = after.find("add").unwrap();
//! after.set_target(add, Opcode::CallFunction, "operator.mul");
//! let Change::Changed { after, .. } = &diff(&before, &after)[0] else { panic!() };
//! assert_eq!(after, "%add = call_function operator.mul(%x, 1)");
//! ```
