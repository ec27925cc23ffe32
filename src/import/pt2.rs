//! Archives of `torch.export.save`: a zip file of JSON and raw weights (`torch/_export/serde/schema.py`, schema 8).
//!
//! ```text
//! model/archive_version                             0
//! model/byteorder                                   little
//! model/models/model.json                           graph, signature, sizes
//! model/data/weights/model_weights_config.json      where each parameter and buffer is
//! model/data/weights/weight_0                       bytes
//! model/data/constants/model_constants_config.json  constants and non-persistent buffers, in the same way
//! ```
//!
//! The exported program lifts parameters, buffers and constants to inputs. Here they are attributes again, read by
//! `get_attr` nodes that carry the input's name, and the results are nested as the model nests them. Results that are new
//! values of buffers, parameters or inputs become `aten.copy_` calls, as `ExportedProgram.module()` writes them.

use super::archive::Archive;
use super::guards;
use super::json::{Bad, get, int, list, optional, text};
use super::pt2_graph::{Context, Scope};
use super::pt2_weights::Weights;
use super::sym::parse_size;
use super::treespec;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Arg, Attribute, AttributeKind, DimRange, Graph, GraphModule, NodeId, Opcode};
use crate::types::Val;
use indexmap::IndexMap;
use serde_json::Value;
use std::path::Path;

/// The name of the entry graph.
const ENTRY: &str = "main";

/// Reads an archive that `torch.export.save` wrote: its graph (called `main`) with the graphs of higher-order ops, types
/// of all values, sizes and their ranges, source positions, and the values of parameters, buffers and constants, which
/// refer to the mapped file where they are stored contiguously. No diagnostic has a place in a source file: titles and
/// notes name the archive's entry.
pub fn read_pt2(path: &Path) -> Result<(GraphModule, Diagnostics), Diagnostics> {
    let archive = Archive::open(path)?;
    check_kind(&archive)?;
    let (entry, name) = find_model(&archive)?;
    let program = archive.json(&entry)?;
    check_version(&program, &entry, &archive)?;
    let mut out = Diagnostics::new();
    let mut weights = Weights::open(&archive, &name, &mut out);
    let mut reader = Reader {
        program: &program,
        module: GraphModule::default(),
    };
    if let Err(e) = reader.program() {
        let malformed = !e.starts_with("unsupported: ");
        let why = e.trim_start_matches("unsupported: ").to_string();
        let (code, what) = match malformed {
            true => (Code::E0403, "is not what the schema of torch.export says"),
            false => (Code::E0405, "holds what fxc cannot read"),
        };
        out.push(Diagnostic::new(code, format!("`{entry}` in `{}` {what}", archive.name)).note(why));
        return Err(out);
    }
    let mut module = reader.module;
    weights.fill(&mut module, &mut out);
    out.into_result(module)
}

fn check_kind(archive: &Archive) -> Result<(), Diagnostic> {
    let old = [
        "serialized_exported_program.json",
        "serialized_state_dict.json",
        "serialized_state_dict.pt",
    ];
    // Entries of the old layout lie at the top, where no folder is cut off.
    if old.iter().any(|p| archive.has(p)) {
        let title = format!(
            "`{}` has the layout of torch before 2.8, whose weights are pickled",
            archive.name
        );
        let help = "load it in Python with `torch.export.load` and write it again with `torch.export.save`";
        return Err(Diagnostic::new(Code::E0405, title).help(help));
    }
    if archive.has("byteorder") && archive.text("byteorder")? != "little" {
        let title = format!("`{}` was written on a big-endian machine", archive.name);
        return Err(Diagnostic::new(Code::E0405, title).help("export the model on a little-endian machine"));
    }
    Ok(())
}

/// The entry that describes the model, and the model's name.
fn find_model(archive: &Archive) -> Result<(String, String), Diagnostic> {
    let paths = archive.paths();
    let names: Vec<&str> = paths
        .iter()
        .filter_map(|p| p.strip_prefix("models/")?.strip_suffix(".json"))
        .filter(|n| !n.contains('/'))
        .collect();
    let name = match names[..] {
        [] => {
            let has_code = paths.iter().any(|p| p.starts_with("code/") || *p == "data.pkl");
            let d = Diagnostic::new(
                Code::E0402,
                format!("`{}` is no archive of `torch.export.save`", archive.name),
            )
            .note("it has no entry `models/….json`");
            return Err(match has_code {
                true => d.help(
                    "it looks like a TorchScript module or a pickled checkpoint; export the model with \
                                `torch.export.save(torch.export.export(model, args), \"model.pt2\")`",
                ),
                false => d,
            });
        }
        [one] => one,
        _ if names.contains(&"model") => "model",
        _ => {
            let title = format!(
                "`{}` holds {} models, none of them called `model`",
                archive.name,
                names.len()
            );
            return Err(Diagnostic::new(Code::E0405, title).note(format!("they are {}", names.join(", "))));
        }
    };
    Ok((format!("models/{name}.json"), name.to_string()))
}

fn check_version(program: &Value, entry: &str, archive: &Archive) -> Result<(), Diagnostic> {
    let major = program
        .get("schema_version")
        .and_then(|v| v.get("major"))
        .and_then(Value::as_i64);
    if major == Some(8) {
        return Ok(());
    }
    let found = major.map_or("no schema version".to_string(), |m| format!("schema version {m}"));
    let by = program
        .get("torch_version")
        .and_then(Value::as_str)
        .map_or(String::new(), |v| format!(" (torch {v})"));
    let title = format!("`{entry}` in `{}` has {found}{by}; fxc reads version 8", archive.name);
    Err(Diagnostic::new(Code::E0404, title).help("export the model again with torch 2.8 or later"))
}

struct Reader<'a> {
    program: &'a Value,
    module: GraphModule,
}

/// What an input of the exported graph is.
enum Input<'a> {
    /// Given by the caller.
    User,
    /// A constant that tracing fixed.
    Constant(&'a str, Arg),
    /// A parameter, buffer or constant tensor.
    Attribute(AttributeKind, &'a str),
}

impl<'a> Reader<'a> {
    fn program(&mut self) -> Result<(), Bad> {
        let gm = get(self.program, "graph_module")?;
        let json = get(gm, "graph")?;
        let signature = get(gm, "signature")?;
        self.dims()?;
        self.module.name = model_name(json).unwrap_or_else(|| "model".into());
        let mut cx = Context::default();
        let mut scope = Scope::new(json)?;
        self.inputs(&mut scope, json, signature)?;
        scope.nodes(json, &mut cx)?;
        let outputs = scope.outputs(json)?;
        let results = self.results(&mut scope, signature, outputs)?;
        let output = scope.graph.set_output(nested(gm, results)?);
        scope.type_output(output);
        let mut graph = scope.graph;
        let guards = optional(self.program, "guards_code").and_then(Value::as_array);
        let texts = guards.into_iter().flatten().filter_map(Value::as_str);
        self.module.guards = texts.filter_map(|t| guards::parse(t, &graph)).collect();
        drop_unused(&mut graph);
        self.module.graphs = IndexMap::from([(ENTRY.into(), graph)]);
        self.module.graphs.extend(cx.graphs);
        Ok(())
    }

    /// Ranges of sizes.
    fn dims(&mut self) -> Result<(), Bad> {
        let Some(ranges) = optional(self.program, "range_constraints").and_then(Value::as_object) else {
            return Ok(());
        };
        for (name, range) in ranges {
            // A range of an expression follows from those of its variables.
            if parse_size(name).is_none_or(|d| d.as_var().is_none()) {
                continue;
            }
            let bound = |key| {
                optional(range, key)
                    .map(int)
                    .transpose()
                    .map_err(|e| format!("range of `{name}`: {e}"))
            };
            let (min, max) = (bound("min_val")?.unwrap_or(0), bound("max_val")?);
            // The tracer takes every size for at least 2, because 0 and 1 would be traced on their own; the program
            // runs at those sizes too (`_check_input_constraints_for_graph` lets them pass).
            let min = if min <= 2 { 0 } else { min };
            self.module
                .dims
                .insert(name.as_str().into(), DimRange { min, max, span: None });
        }
        Ok(())
    }

    fn inputs(&mut self, scope: &mut Scope<'a>, json: &'a Value, signature: &'a Value) -> Result<(), Bad> {
        let specs = list(signature, "input_specs")?;
        let inputs = list(json, "inputs")?;
        if specs.len() != inputs.len() {
            return Err(format!(
                "the signature has {} inputs, the graph {}",
                specs.len(),
                inputs.len()
            ));
        }
        for (i, (input, spec)) in inputs.iter().zip(specs).enumerate() {
            let at = |e: Bad| format!("input {i}: {e}");
            match input_spec(spec).map_err(at)? {
                Input::User => scope.placeholder(input, i).map_err(at)?,
                Input::Constant(name, value) => scope.constant_placeholder(name, value).map_err(at)?,
                Input::Attribute(kind, path) => {
                    let ty = scope.attribute(input, path).map_err(at)?;
                    let attribute = Attribute {
                        kind,
                        ty,
                        value: None,
                        span: None,
                    };
                    self.module.attributes.entry(path.into()).or_insert(attribute);
                }
            }
        }
        Ok(())
    }

    /// The user's results; new values of buffers, parameters and inputs are copied to where they belong.
    fn results(&self, scope: &mut Scope<'a>, signature: &'a Value, outputs: Vec<Arg>) -> Result<Vec<Arg>, Bad> {
        let specs = list(signature, "output_specs")?;
        if specs.len() != outputs.len() {
            return Err(format!(
                "the signature has {} outputs, the graph {}",
                specs.len(),
                outputs.len()
            ));
        }
        let mut results = vec![];
        for (i, (spec, value)) in specs.iter().zip(outputs).enumerate() {
            let (kind, spec) = super::json::union(spec).map_err(|e| format!("output {i}: {e}"))?;
            let target = match kind {
                "user_output" | "loss_output" => {
                    results.push(value);
                    continue;
                }
                "buffer_mutation" => self.reader_of(scope, text(spec, "buffer_name")?)?,
                "parameter_mutation" => self.reader_of(scope, text(spec, "parameter_name")?)?,
                "user_input_mutation" => scope.value(text(spec, "user_input_name")?)?,
                _ => return Err(format!("unsupported: output {i} of the signature is a `{kind}`")),
            };
            scope
                .graph
                .call_function("torch.ops.aten.copy_.default", vec![Val::Leaf(target), value], vec![]);
        }
        Ok(results)
    }

    /// The node that reads the attribute `path`.
    fn reader_of(&self, scope: &Scope, path: &str) -> Result<NodeId, Bad> {
        let found = scope.graph.find_nodes(Opcode::GetAttr, Some(path));
        found
            .first()
            .copied()
            .ok_or_else(|| format!("no input is called `{path}`"))
    }
}

fn input_spec(spec: &Value) -> Result<Input<'_>, Bad> {
    let (kind, spec) = super::json::union(spec)?;
    Ok(match kind {
        "user_input" => Input::User,
        "parameter" => Input::Attribute(AttributeKind::Parameter, text(spec, "parameter_name")?),
        "buffer" => Input::Attribute(AttributeKind::Buffer, text(spec, "buffer_name")?),
        "tensor_constant" => Input::Attribute(AttributeKind::Constant, text(spec, "tensor_constant_name")?),
        "constant_input" => {
            let value = super::pt2_args::constant(get(spec, "value")?)?;
            Input::Constant(text(spec, "name")?, value)
        }
        _ => return Err(format!("unsupported: it is a `{kind}`")),
    })
}

/// The results nested as the model returns them.
fn nested(gm: &Value, results: Vec<Arg>) -> Result<Arg, Bad> {
    let calls = list(gm, "module_call_graph")?;
    let root = calls.iter().find(|c| c.get("fqn").and_then(Value::as_str) == Some(""));
    match root.and_then(|r| optional(r, "signature")) {
        Some(s) => treespec::nest(text(s, "out_spec")?, results).map_err(|e| format!("`out_spec`: {e}")),
        None => Ok(Val::Tuple(results)),
    }
}

/// The class of the model: the first entry of the first module stack, `L__self__,,nets.MLP;…`.
fn model_name(graph: &Value) -> Option<String> {
    let nodes = graph.get("nodes")?.as_array()?;
    nodes.iter().find_map(|n| {
        let stack = n.get("metadata")?.get("nn_module_stack")?.as_str()?;
        let mut root = stack.split(';').next()?.splitn(3, ',');
        let (_, path, class) = (root.next()?, root.next()?, root.next()?);
        let class = class.rsplit('.').next()?;
        (path.is_empty() && !class.is_empty()).then(|| class.to_string())
    })
}

/// Removes reads of attributes that nothing uses: the exporter lifts all there are.
fn drop_unused(graph: &mut Graph) {
    for n in graph.find_nodes(Opcode::GetAttr, None) {
        if graph[n].users().len() == 0 {
            // It has no users, which is the one thing that could fail.
            let _ = graph.erase_node(n);
        }
    }
}

#[cfg(test)]
#[path = "pt2_tests.rs"]
mod tests;
