//! torch.fx, feature by feature: torch's name and the equivalent in fxc. Rank A marks what a compiler for its graphs
//! must have, rank B what it should have.
//!
//! | torch.fx | here | rank |
//! |---|---|:-:|
//! | six opcodes, nested arguments | [`Opcode`](crate::graph::Opcode), [`Arg`](crate::graph::Arg) | A |
//! | `Graph.nodes`, `output_node`, `find_nodes` | [`Graph::iter`](crate::graph::Graph::iter), [`output`](crate::graph::Graph::output), [`find_nodes`](crate::graph::Graph::find_nodes); by name [`find`](crate::graph::Graph::find), calls by target [`find_calls`](crate::graph::Graph::find_calls) | A |
//! | `placeholder`, `call_function`, …, `create_node` | [`Graph::placeholder`](crate::graph::Graph::placeholder), [`call_function`](crate::graph::Graph::call_function), …, [`create_node`](crate::graph::Graph::create_node) | A |
//! | `inserting_before`, `inserting_after` | [`inserting_before`](crate::graph::Graph::inserting_before), [`inserting_after`](crate::graph::Graph::inserting_after), [`set_insert_point`](crate::graph::Graph::set_insert_point) | A |
//! | `erase_node`, `node_copy`, `graph_copy`, `deepcopy` | [`erase_node`](crate::graph::Graph::erase_node), [`node_copy`](crate::graph::Graph::node_copy), [`graph_copy`](crate::graph::Graph::graph_copy), `clone` | A |
//! | `lint`, `eliminate_dead_code` | [`lint`](crate::graph::lint()), [`eliminate_dead_code`](crate::graph::Graph::eliminate_dead_code), [`eliminate_dead_code_with`](crate::graph::Graph::eliminate_dead_code_with) | A |
//! | `print(graph)`, `print_tabular`, `python_code` | [`torch_print`](crate::graph::torch_print), [`tabular`](crate::graph::tabular), [`python`](crate::graph::python) | A |
//! | `Node.args`, `kwargs`, `users`, `meta`, order | [`Node`](crate::graph::Node), [`Meta`](crate::graph::Meta), [`is_before`](crate::graph::Graph::is_before) | A |
//! | `update_arg`, `insert_arg`, `update_kwarg`, `all_input_nodes` | [`update_arg`](crate::graph::Graph::update_arg), [`insert_arg`](crate::graph::Graph::insert_arg), [`update_kwarg`](crate::graph::Graph::update_kwarg), [`inputs`](crate::graph::Node::inputs) | A |
//! | `replace_all_uses_with(delete_user_cb, propagate_meta)`, `replace_input_with` | [`replace_all_uses_with`](crate::graph::Graph::replace_all_uses_with), [`replace_uses_where`](crate::graph::Graph::replace_uses_where), [`replace_with_meta`](crate::graph::Graph::replace_with_meta), [`replace_input_with`](crate::graph::Graph::replace_input_with) | A |
//! | `append`, `prepend` | [`move_after`](crate::graph::Graph::move_after), [`move_before`](crate::graph::Graph::move_before) | A |
//! | `next`, `prev`, `first` | [`next`](crate::graph::Graph::next), [`prev`](crate::graph::Graph::prev), [`first`](crate::graph::Graph::first) | A |
//! | `is_impure`, `has_side_effect` | [`is_impure`](crate::graph::is_impure()), with in-place calls and `out=` as effects; [`has_side_effect`](crate::graph::purity::has_side_effect) | A |
//! | `CodeGen`, `set_codegen`, `on_generate_code` | [`CodeGen`](crate::graph::codegen::CodeGen), given to [`code_with`](crate::graph::python::code_with) | B |
//! | `process_inputs`, `process_outputs`, `_PyTreeCodeGen`, `_BoxedCodeGen` | the methods of [`CodeGen`](crate::graph::codegen::CodeGen), [`PyTree`](crate::graph::codegen::PyTree), [`Boxed`](crate::graph::codegen::Boxed) | B |
//! | `format_node`, `_rename` | [`format_node`](crate::graph::torch_print::format_node), [`rename`](crate::graph::Graph::rename) | A |
//! | `normalized_arguments`, `NormalizeArgs` | [`normalized_arguments`](super::named_arguments::normalized_arguments), the pass `named-arguments` | A |
//! | `NormalizeOperators`, `operator_schemas` | the pass `normalize`, and [`op`](crate::op) | A |
//! | `GraphModule.add_submodule`, `delete_submodule`, `delete_all_unused_submodules` | [`add_submodule`](crate::graph::GraphModule::add_submodule), [`delete_submodule`](crate::graph::GraphModule::delete_submodule), [`delete_all_unused_submodules`](crate::graph::GraphModule::delete_all_unused_submodules), [`add_parameter`](crate::graph::GraphModule::add_parameter) | A |
//! | `recompile`, `_LazyGraphModule` | nothing to do: a module is its graphs | A |
//! | create, erase and replace hooks | [`start_journal`](crate::graph::Graph::start_journal), [`Edit`](crate::graph::Edit) | B |
//! | `meta["nn_module_stack"]`, `torch_fn`, `stack_trace` | [`Meta::modules`](crate::graph::Meta::modules), [`Meta::function`](crate::graph::Meta::function), [`Meta::loc`](crate::graph::Meta::loc) | B |
//! | `from_node`, `get_graph_provenance_json` | [`Meta::provenance`](crate::graph::Meta::provenance), `fxc print --format json` | B |
//! | `fx.traceback.annotate`, `meta["custom"]` | [`annotate`](crate::graph::trace::Tracer::annotate), [`Meta::custom`](crate::graph::Meta::custom) | B |
//! | `symbolic_trace`, `is_leaf_module`, `record_stack_traces` | [`Graph::trace`](crate::graph::Graph::trace), [`trace_with`](crate::graph::Graph::trace_with), [`record_stack_traces`](crate::graph::trace::Tracer::record_stack_traces) | B |
//! | `concrete_args` | [`specialize`](super::specialize()), `fxc opt --fix` | B |
//! | `Interpreter`, `run_node` and the opcodes' methods, `boxed_run`, `initial_env`, `env` | [`Interpreter`](crate::interp::Interpreter), [`Hooks`](crate::interp::Hooks), [`boxed_run`](crate::interp::Interpreter::boxed_run), [`run_from`](crate::interp::Interpreter::run_from), [`env`](crate::interp::Interpreter::env) | A |
//! | `Transformer` | [`Transformer`](crate::graph::transform::Transformer), which keeps names, types and places | A |
//! | `replace_pattern`, `replace_pattern_with_filters` | [`replace_pattern`](crate::rewrite::torch::replace_pattern), [`replace_pattern_with_filters`](crate::rewrite::torch::replace_pattern_with_filters); without torch's limits [`rewrite`](crate::rewrite::rewrite()) | A |
//! | `SubgraphMatcher`, `SubgraphMatcherWithNameNodeMap`, `compare_graphs` | [`SubgraphMatcher`](crate::rewrite::torch::SubgraphMatcher), [`NamedMatcher`](crate::rewrite::torch::NamedMatcher), [`compare_graphs`](crate::rewrite::torch::compare_graphs) | A |
//! | `get_source_partitions`, `check_subgraphs_connected` | [`source_partitions`](super::sources::source_partitions), [`check_subgraphs_connected`](super::sources::check_subgraphs_connected) | B |
//! | `ShapeProp`, `FakeTensorProp` | [`shape_prop`](super::sizes::shape_prop), [`infer`](crate::infer::infer()) | A |
//! | `CSEPass`, `fuse`, `remove_dropout` | the passes `cse`, `batch-norm`, `identities` | A |
//! | `legalize_graph`, `stable_topological_sort` | [`topological_sort`](crate::graph::Graph::topological_sort) | A |
//! | `canonicalize_graph`, `rename_nodes_to_canonical` | the pass `canonicalise` | A |
//! | `PassBase`, `PassManager`, constraints, checks, `steps`, `loop_pass` | [`PassManager`](super::PassManager), [`loop_pass`](super::manager::loop_pass) | A |
//! | `GraphTransformObserver` | [`GraphTransformObserver`](super::observer::GraphTransformObserver); [`diff`](crate::graph::transform::diff), `--print-changed=diff`, `--dump-dir` | A |
//! | `FxNetAccFusionsFinder` | [`acc_fusions`](super::fusions::acc_fusions) | A |
//! | pickling, `to_folder` | [`save`](crate::graph::print()) as FXIR with a file of weights, [as in the tutorial](super::tutorial#save-a-module-and-load-it-again) | B |
//! | `CapabilityBasedPartitioner`, `fuse_by_partitions` | [`Partitioner`](super::partition::Partitioner), [`fuse`](super::split::fuse) | A |
//! | `OperatorSupport`, `OpSupports`, `chain`, `any_chain` | [`support`](super::support) | A |
//! | `split_module`, `split_by_tags`, `move_non_tensor_nodes_on_boundary` | [`split_module`](super::split::split_module), [`split_by_tags`](super::split_by::split_by_tags), [`split_by_size`](super::split_by::split_by_size), [`move_non_tensor_nodes_on_boundary`](super::split_by::move_non_tensor_nodes_on_boundary) | B |
//! | `split_const_subgraphs`, `FoldedGraphModule` | [`split_const_subgraphs`](super::split_by::split_const_subgraphs), [`FoldedModule`](super::split_by::FoldedModule); the pass `fold` | A |
//! | `extract_subgraph`, `lift_subgraph_as_module` | [`extract`](crate::graph::transform::extract), [`lift`](crate::graph::GraphModule::lift) | A |
//! | `merge_matmul`, Inductor's batch fusion | the passes `merge-rows`, `merge-matmul`, `batch-linear` | B |
//! | `reinplace` | the pass `reinplace` | B |
//! | `insert_deferred_runtime_asserts` | the pass `assert-sizes` | B |
//! | `get_size_of_all_nodes`, `replace_target_nodes_with` | [`sizes`](super::sizes) | B |
//! | `annotate_getitem_nodes`, `AnnotateTypesWithSchema` | inference gives every node its type | B |
//! | `ShapeEnv`: named sizes, ranges, guards | [`Dim`](crate::types::Dim), [`DimRange`](crate::graph::DimRange), [`SizeGuard`](crate::graph::SizeGuard); `dim N in 1..9`, `dim where` | B |
//! | `make_fx(decomposition_table)` | [`decompose`](super::decompose()) | B |
//! | `net_min_base` minimizer | [`minimize`](crate::driver::minimize), `fxc bisect`, `fxc reduce`, `fxc opt --bisect` | A |
//! | `FxGraphDrawer` | `fxc print --format dot`, `svg`, `model-explorer`, `netron`, each with `--fused` | A |
//! | Inductor's `PatternExpr` (`Ignored`, `ListOf`, `users`, `extra_check`) | [rules](crate::rewrite): `$a`, `*%xs`, `users(%x)`, `where` | B |
//!
//! Not supported: `create_size_node` and its like (sizes are inferred), the accelerator splitter's event tracker,
//! tensor subclasses.
//!
//! # What users of torch.fx ask for
//!
//! * *Printed text that can be parsed again.* FXIR: `parse(print(g)) == g`, with shapes, sub-graphs, source locations
//!   and quoted strings. fxc also reads what torch prints.
//! * *Serialization that keeps the meaning.* The file holds the graph, not code to be traced again, so in-place calls
//!   survive.
//! * *Control flow.* `cond`, `while_loop`, `scan` and `map` are ops over graphs of the file.
//! * *Writes.* Dead code elimination and common subexpression elimination treat in-place calls, `setitem` and writes to
//!   views as effects. The interpreter models shared memory, and `functionalize` turns writes into values.
//! * *Common subexpression elimination that does not merge 1, 1.0 and True, 0.0 and -0.0, or two random draws.*
//!   Literals are compared bit for bit, and `Op::effect_where` protects random ops.
//! * *Python code that means what the graph means.* `-2 ** x` and parameters named `nan` are written correctly
//!   (docs/language.md).
//! * *A matcher with wildcards for literals, variadic lists, commutative operands, attributes, back-to-back matches.*
//!   Rules have all of these, and run to a fixed point.
//! * *Shapes and source locations in the printed graph.* Types are part of FXIR, and `loc` is a node's Python line.
//!   Errors name the node and the line.
//! * *Nested graphs in the printed graph.* All graphs of a file are printed.
//! * *Finding a node by name.* [`Graph::find`](crate::graph::Graph::find).
//! * *Passes that keep metadata.* New nodes take the source location and the modules of the nodes they replace, and
//!   record their names. A test checks this for every pass.
//! * *Stable names.* Passes do not rename nodes; only `canonicalise` does.

#[cfg(test)]
mod tests {
    /// Features of torch.fx by name and rank.
    const WANTED: [(char, &str); 2] = [
        (
            'A',
            "Graph.nodes output_node find_nodes placeholder call_function create_node inserting_before inserting_after erase_node \
             node_copy graph_copy deepcopy lint eliminate_dead_code print(graph) print_tabular python_code Node.args kwargs users meta \
             next prev update_arg insert_arg update_kwarg all_input_nodes replace_all_uses_with replace_input_with append prepend \
             is_impure has_side_effect format_node _rename normalized_arguments GraphModule.add_submodule delete_submodule \
             delete_all_unused_submodules recompile to_folder stack_trace Interpreter run_node boxed_run initial_env Transformer \
             replace_pattern replace_pattern_with_filters SubgraphMatcher compare_graphs ShapeProp FakeTensorProp CSEPass \
             legalize_graph stable_topological_sort canonicalize_graph rename_nodes_to_canonical FxNetAccFusionsFinder PassBase \
             PassManager GraphTransformObserver CapabilityBasedPartitioner fuse_by_partitions OperatorSupport OpSupports chain any_chain \
             net_min_base FxGraphDrawer fuse remove_dropout extract_subgraph split_const_subgraphs NormalizeArgs NormalizeOperators \
             operator_schemas",
        ),
        (
            'B',
            "process_inputs process_outputs set_codegen on_generate_code CodeGen _PyTreeCodeGen _BoxedCodeGen hooks symbolic_trace \
             is_leaf_module concrete_args annotate from_node get_graph_provenance_json nn_module_stack \
             SubgraphMatcherWithNameNodeMap get_source_partitions check_subgraphs_connected loop_pass constraints split_module \
             split_by_tags move_non_tensor_nodes_on_boundary lift_subgraph_as_module replace_target_nodes_with get_size_of_all_nodes \
             annotate_getitem_nodes reinplace insert_deferred_runtime_asserts merge_matmul AnnotateTypesWithSchema make_fx ShapeEnv \
             PatternExpr",
        ),
    ];

    /// Whether `name` occurs in `text` as a whole word.
    fn holds(text: &str, name: &str) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.match_indices(name).any(|(i, _)| {
            let ends = !text[i + name.len()..].starts_with(word);
            ends && !text[..i].ends_with(word)
        })
    }

    #[test]
    fn every_feature_has_a_row() {
        let rows: Vec<Vec<&str>> = include_str!("features.rs")
            .lines()
            .filter_map(|l| l.strip_prefix("//! | "))
            .skip(1)
            .map(|l| l.trim_end_matches(" |").split(" | ").collect())
            .collect();
        for r in &rows {
            assert!(r.len() == 3 && matches!(r[2], "A" | "B") && !r[1].is_empty(), "{r:?}");
        }
        let mut missing = vec![];
        let mut counts = vec![];
        for (rank, names) in WANTED {
            let all = names.split_whitespace();
            counts.push((rank, all.clone().count()));
            missing.extend(all.filter(|n| !rows.iter().any(|r| holds(r[0], n))));
        }
        assert!(missing.is_empty(), "no row for {missing:?}");
        let ranked = |rank: &str| rows.iter().filter(|r| r[2] == rank).count();
        assert_eq!((ranked("A"), ranked("B")), (35, 19), "rows; by name {counts:?}");
    }
}
