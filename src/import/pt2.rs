//! Archives of `torch.export.save`: a zip file with JSON and raw weights (`torch/_export/serde/schema.py`, schema 8).
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
//! The exported program lifts parameters, buffers and constants to inputs. [`read_exported`] leaves them lifted;
//! [`read_pt2`] turns them into attributes again ([`graph::unlift`]).

use super::archive::Archive;
use super::json::{Bad, get_list, get_member, get_optional, get_text, read_int, read_union};
use super::parts::GraphParts;
use super::pt2_graph::{ImportContext, Scope, value_name};
use super::pt2_weights::ArchiveWeights;
use super::sym::parse_size;
use super::treespec;
use super::{guards, vmap};
use crate::diag::words::count;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{self, CallSpec, DimRange, GraphModule, InputSpec, OutputSpec, Signature};
use crate::tensor::files::{FileKind, FileRole};
use crate::types::Val;
use indexmap::IndexMap;
use memmap2::Mmap;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The name of the entry graph.
const ENTRY: &str = "main";

/// Reads an archive written by `torch.export.save`: its graph (called `main`) with the graphs of higher-order ops, the
/// types of all values, sizes and their ranges, source locations, and the values of parameters, buffers and constants,
/// which refer to the mapped file if they are stored contiguously. Diagnostics have no location in a source file; their
/// titles and notes name the archive's entry.
pub fn read_pt2(path: &Path) -> Result<(GraphModule, Diagnostics), Diagnostics> {
    read_archive(&Archive::open(path)?, false)
}

/// [`read_pt2`] of an archive that is mapped already; `path` is its name.
pub(crate) fn read_mapped_pt2(path: &Path, map: Arc<Mmap>) -> Result<(GraphModule, Diagnostics), Diagnostics> {
    read_archive(&Archive::from_map(path.display().to_string(), map)?, false)
}

/// [`read_pt2`] without unlifting: parameters, buffers and constants stay inputs, new values of buffers stay results,
/// and the entry graph's signature says which is which. No weights are read.
pub fn read_exported(path: &Path) -> Result<(GraphModule, Diagnostics), Diagnostics> {
    read_archive(&Archive::open(path)?, true)
}

fn read_archive(archive: &Archive, lifted: bool) -> Result<(GraphModule, Diagnostics), Diagnostics> {
    check_kind(archive)?;
    let (entry, name) = find_model(archive)?;
    let (program, parts) = archive.read_graph_json(&entry)?;
    check_version(&program, &entry, archive)?;
    let mut out = Diagnostics::new();
    let mut reader = ProgramReader {
        program: &program,
        parts: &parts,
        module: GraphModule::default(),
    };
    let read = reader.read_program();
    let read = read.and_then(|()| if lifted { Ok(()) } else { reader.unlift() });
    if let Err(e) = read {
        let what = match e {
            Bad::Malformed(_) => "does not match the schema of torch.export",
            Bad::Unsupported(_) => "contains something that fxc does not support",
        };
        let (code, why) = e.into_code_and_text();
        out.push(Diagnostic::new(code, format!("`{entry}` in `{}` {what}", archive.name)).note(why));
        return Err(out);
    }
    let mut module = reader.module;
    // Free the program before the tables of weights are parsed into trees of their own.
    drop((program, parts));
    if !lifted {
        ArchiveWeights::open(archive, &name, &mut out).fill_attributes(&mut module, &mut out);
    }
    out.into_result(module)
}

fn check_kind(archive: &Archive) -> Result<(), Diagnostic> {
    let old = [
        "serialized_exported_program.json",
        "serialized_state_dict.json",
        "serialized_state_dict.pt",
    ];
    // Entries of the old layout are at the top level, so they have no folder to strip.
    if old.iter().any(|p| archive.has_entry(p)) {
        let title = format!(
            "`{}` uses the archive layout of torch versions before 2.8, with pickled weights",
            archive.name
        );
        let help = "load it in Python with `torch.export.load` and save it again with `torch.export.save`";
        return Err(Diagnostic::new(Code::E0405, title).help(help));
    }
    if archive.has_entry("byteorder") && archive.read_text("byteorder")? != "little" {
        let title = format!("`{}` was written on a big-endian machine", archive.name);
        return Err(Diagnostic::new(Code::E0405, title).help("export the model on a little-endian machine"));
    }
    Ok(())
}

/// The entry that describes the model, and the name of the model.
fn find_model(archive: &Archive) -> Result<(String, String), Diagnostic> {
    let paths = archive.entry_paths();
    let names: Vec<&str> = paths
        .iter()
        .filter_map(|p| p.strip_prefix("models/")?.strip_suffix(".json"))
        .filter(|n| !n.contains('/'))
        .collect();
    let name = match names[..] {
        [] => return Err(other_kind(archive)),
        [one] => one,
        _ if names.contains(&"model") => "model",
        _ => {
            let title = format!(
                "`{}` contains {} models, but none is named `model`",
                archive.name,
                names.len()
            );
            return Err(Diagnostic::new(Code::E0405, title).note(format!("the models are {}", names.join(", "))));
        }
    };
    Ok((format!("models/{name}.json"), name.to_string()))
}

/// The error for an archive without a model.
fn other_kind(archive: &Archive) -> Diagnostic {
    let name = &archive.name;
    match archive.kind() {
        FileKind::Zip => Diagnostic::new(Code::E0402, format!("`{name}` was not written by `torch.export.save`"))
            .note("it has no entry `models/….json`"),
        kind => {
            let advice = kind.advice(FileRole::Model, name);
            Diagnostic::new(
                Code::E0703,
                format!("cannot read `{name}` as a model: the file is {kind}"),
            )
            .help(advice)
        }
    }
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

struct ProgramReader<'a> {
    program: &'a Value,
    parts: &'a GraphParts,
    module: GraphModule,
}

impl ProgramReader<'_> {
    fn read_program(&mut self) -> Result<(), Bad> {
        let gm = get_member(self.program, "graph_module")?;
        let json = get_member(gm, "graph")?;
        let signature = get_member(gm, "signature")?;
        self.read_dim_ranges()?;
        self.module.name = model_name(json, self.parts).unwrap_or_else(|| "model".into());
        let mut cx = ImportContext::default();
        let mut scope = Scope::new(json, self.parts)?;
        let inputs = read_inputs(&mut scope, json, signature)?;
        scope.read_nodes(json, self.parts, &mut cx)?;
        let values = scope.read_outputs(json)?;
        let outputs = read_output_specs(signature, &values)?;
        let users = outputs.iter().filter(|o| o.is_users()).count();
        let output = scope.graph.set_output(Val::Tuple(values));
        let mut graph = scope.graph;
        graph::type_output(&mut graph, output);
        graph.signature = Some(Signature {
            inputs,
            outputs,
            ranges: self.range_texts(),
            results: read_nesting(gm, users)?,
        });
        let vmaps = vmap::extract_regions(&mut graph, || cx.unique_graph_name("vmap"));
        self.module.graphs = IndexMap::from([(ENTRY.into(), graph)]);
        self.module.graphs.extend(cx.graphs);
        self.module.graphs.extend(vmaps);
        Ok(())
    }

    /// Turns lifted inputs into attributes, and adds what is known about sizes.
    fn unlift(&mut self) -> Result<(), Bad> {
        graph::unlift(&mut self.module)?;
        let guards = get_optional(self.program, "guards_code").and_then(Value::as_array);
        let texts = guards.into_iter().flatten().filter_map(Value::as_str);
        self.module.call_spec = read_call_spec(get_member(self.program, "graph_module")?);
        let spec = &self.module.call_spec;
        if let Some(graph) = self.module.graphs.get_mut(ENTRY) {
            graph.called = spec.as_ref().and_then(|c| {
                treespec::parse_called(&c.inputs, c.names.clone(), graph.placeholders().len())
                    .ok()
                    .flatten()
            });
            self.module.guards = texts.filter_map(|t| guards::parse(t, graph)).collect();
        }
        Ok(())
    }

    /// The ranges of sizes, as torch prints them.
    fn range_texts(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let ranges = get_optional(self.program, "range_constraints").and_then(Value::as_object);
        let bound = |range: &Value, key: &str, open: &str| match get_optional(range, key) {
            Some(v) => v.to_string(),
            None => open.to_string(),
        };
        let read_range = |(name, r): (&String, &Value)| {
            let text = format!(
                "VR[{}, {}]",
                bound(r, "min_val", "-int_oo"),
                bound(r, "max_val", "int_oo")
            );
            (name.as_str().into(), text.into())
        };
        ranges.into_iter().flatten().map(read_range).collect()
    }

    /// Reads the ranges of sizes.
    fn read_dim_ranges(&mut self) -> Result<(), Bad> {
        let Some(ranges) = get_optional(self.program, "range_constraints").and_then(Value::as_object) else {
            return Ok(());
        };
        for (name, range) in ranges {
            // The range of an expression follows from those of its variables.
            if parse_size(name).is_none_or(|d| d.as_var().is_none()) {
                continue;
            }
            let bound = |key| {
                get_optional(range, key)
                    .map(read_int)
                    .transpose()
                    .map_err(|e| e.within(format_args!("range of `{name}`")))
            };
            let (min, max) = (bound("min_val")?.unwrap_or(0), bound("max_val")?);
            let min = graph::traced_minimum(min);
            self.module
                .dims
                .insert(name.as_str().into(), DimRange { min, max, span: None });
        }
        Ok(())
    }
}

/// Reads the inputs: creates a node for each and returns its specification.
fn read_inputs(scope: &mut Scope, json: &Value, signature: &Value) -> Result<Vec<InputSpec>, Bad> {
    let specs = get_list(signature, "input_specs")?;
    let inputs = get_list(json, "inputs")?;
    if specs.len() != inputs.len() {
        let (a, b) = (specs.len(), inputs.len());
        return Err(format!("the signature has {}, but the graph has {b}", count(a, "input")).into());
    }
    let mut out = vec![];
    for (i, (input, spec)) in inputs.iter().zip(specs).enumerate() {
        out.push(self::read_input(scope, i, input, spec).map_err(|e| e.within(format_args!("input {i}")))?);
    }
    Ok(out)
}

fn read_input(scope: &mut Scope, index: usize, input: &Value, spec: &Value) -> Result<InputSpec, Bad> {
    let (kind, spec) = read_union(spec)?;
    let mut made = InputSpec {
        name: "".into(),
        kind: "USER_INPUT".into(),
        target: None,
        persistent: None,
        constant: None,
    };
    let (word, key) = match kind {
        "user_input" => {
            let (name, constant) = scope.read_placeholder(input, index)?;
            (made.name, made.constant) = (name, constant);
            return Ok(made);
        }
        "constant_input" => {
            made.constant = Some(super::pt2_scalars::read_constant(get_member(spec, "value")?)?);
            made.name = scope.bare_placeholder(get_text(spec, "name")?)?;
            return Ok(made);
        }
        "token" => {
            made.kind = "TOKEN".into();
            made.name = scope.bare_placeholder(get_text(get_member(spec, "arg")?, "name")?)?;
            return Ok(made);
        }
        "parameter" => ("PARAMETER", "parameter_name"),
        "buffer" => ("BUFFER", "buffer_name"),
        "tensor_constant" => ("CONSTANT_TENSOR", "tensor_constant_name"),
        _ => return Err(Bad::unsupported(format!("it has the unsupported kind `{kind}`"))),
    };
    made.kind = word.into();
    made.target = Some(get_text(spec, key)?.into());
    made.persistent = get_optional(spec, "persistent").and_then(Value::as_bool);
    made.name = scope.bare_placeholder(get_text(get_member(input, "as_tensor")?, "name")?)?;
    Ok(made)
}

/// The specifications of the results.
fn read_output_specs(signature: &Value, values: &[graph::Arg]) -> Result<Vec<OutputSpec>, Bad> {
    let specs = get_list(signature, "output_specs")?;
    if specs.len() != values.len() {
        let (a, b) = (specs.len(), values.len());
        return Err(format!("the signature has {}, but the graph has {b}", count(a, "output")).into());
    }
    let read_spec = |(i, spec): (usize, &Value)| {
        let (kind, spec) = read_union(spec).map_err(|e| e.within(format_args!("output {i}")))?;
        let (word, key) = match kind {
            "user_output" => ("USER_OUTPUT", None),
            "loss_output" => ("LOSS_OUTPUT", None),
            "token" => ("TOKEN", None),
            "buffer_mutation" => ("BUFFER_MUTATION", Some("buffer_name")),
            "parameter_mutation" => ("PARAMETER_MUTATION", Some("parameter_name")),
            "user_input_mutation" => ("USER_INPUT_MUTATION", Some("user_input_name")),
            _ => return Err(Bad::unsupported(format!("output {i} of the signature is a `{kind}`"))),
        };
        let arg = get_member(spec, "arg")?;
        // The argument of a mutation is the tensor itself; that of other results is a union.
        let name = value_name(arg)?.unwrap_or_default();
        Ok(OutputSpec {
            name: name.into(),
            kind: word.into(),
            target: key.map(|k| get_text(spec, k)).transpose()?.map(Arc::from),
        })
    };
    specs.iter().enumerate().map(read_spec).collect()
}

/// The model's nesting of `count` results.
fn read_nesting(gm: &Value, count: usize) -> Result<Option<Val<usize>>, Bad> {
    let calls = get_list(gm, "module_call_graph")?;
    let root = calls.iter().find(|c| c.get("fqn").and_then(Value::as_str) == Some(""));
    let Some(s) = root.and_then(|r| get_optional(r, "signature")) else {
        return Ok(None);
    };
    let leaves = (0..count).map(Val::Leaf).collect();
    treespec::nest_leaves(get_text(s, "out_spec")?, leaves)
        .map(Some)
        .map_err(|e| e.within("`out_spec`"))
}

/// The calling convention of the model.
fn read_call_spec(gm: &Value) -> Option<CallSpec> {
    let calls = get_list(gm, "module_call_graph").ok()?;
    let root = calls
        .iter()
        .find(|c| c.get("fqn").and_then(Value::as_str) == Some(""))?;
    let s = get_optional(root, "signature")?;
    let names = get_optional(s, "forward_arg_names").and_then(Value::as_array);
    let names = names.and_then(|l| l.iter().map(|n| n.as_str().map(str::to_string)).collect());
    Some(CallSpec {
        inputs: get_text(s, "in_spec").ok()?.into(),
        results: get_text(s, "out_spec").ok()?.into(),
        names,
    })
}

/// The class of the model: the first entry of the first module stack, `L__self__,,nets.MLP;…`.
fn model_name(graph: &Value, parts: &GraphParts) -> Option<String> {
    let whole = graph.get("nodes")?.as_array()?.iter().find_map(node_model_class);
    whole.or_else(|| parts.nodes().find_map(|n| node_model_class(&n.ok()?)))
}

/// The class of the model that a node is part of.
fn node_model_class(node: &Value) -> Option<String> {
    let stack = node.get("metadata")?.get("nn_module_stack")?.as_str()?;
    let mut root = stack.split(';').next()?.splitn(3, ',');
    let (_, path, class) = (root.next()?, root.next()?, root.next()?);
    let class = class.rsplit('.').next()?;
    (path.is_empty() && !class.is_empty()).then(|| class.to_string())
}

#[cfg(test)]
#[path = "pt2_tests.rs"]
mod tests;
