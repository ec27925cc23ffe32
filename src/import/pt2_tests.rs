use super::*;
use crate::graph::{AttributeKind, Opcode};
use crate::graph::{lint, torch_print};
use crate::tensor::Tensor;
use std::io::{Read, Write};
use std::path::PathBuf;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> GraphModule {
    let (module, found) = read_pt2(&data(name)).unwrap_or_else(|d| panic!("{:?}", d.into_iter().collect::<Vec<_>>()));
    assert!(found.is_empty());
    assert!(!lint(&module).has_errors());
    module
}

/// torch's text of the exported graph and ours, without the lines that differ because of lifting: parameters as inputs,
/// the values of constant inputs, the nesting of the result.
fn texts(name: &str, module: &GraphModule) -> (Vec<String>, Vec<String>) {
    let lifted = |l: &&str| ["%p_", "%b_", "%c_"].iter().any(|p| l.trim_start().starts_with(p));
    let keep = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| !lifted(l) && !l.starts_with("    return"));
        lines
            .map(|l| l.split("(default=").next().unwrap_or(l).to_string())
            .collect()
    };
    let want = std::fs::read_to_string(data(name)).expect("the text beside the archive");
    (
        keep(&want),
        keep(&torch_print::print(module.entry().expect("an entry"), Some(module))),
    )
}

fn result(module: &GraphModule) -> String {
    let g = module.entry().expect("an entry");
    torch_print::format_node(g, g.output().expect("an output"))
}

#[test]
fn nested_results_and_sizes() {
    let m = read("mlp.pt2");
    let (want, got) = texts("mlp.txt", &m);
    assert_eq!(want, got);
    assert_eq!(m.name, "Mlp");
    assert_eq!(
        result(&m),
        "return {'logits': linear_1, 'aux': {'prob': softmax, 'parts': [linear_2, sym_size_int_1]}}"
    );
    let g = m.entry().unwrap();
    let x = g.find("x").unwrap();
    let size = m.dims.keys().next().unwrap().to_string();
    assert_eq!(g[x].meta.ty.as_ref().unwrap().to_string(), format!("f32[{size}, 6]"));
    // torch's tracer reports 2; see `graph::signature::traced_minimum`.
    assert_eq!(m.dims[&*size].min, 0);
    let w = g.find("p_net_0_weight").unwrap();
    assert_eq!((g[w].op(), g[w].target()), (Opcode::GetAttr, "net.0.weight"));
    let loc = g[g.find("gelu").unwrap()].meta.loc.clone().unwrap();
    assert_eq!((&*loc.file, &*loc.function), ("data/make_pt2.py", "forward"));
    let weight = m.attributes["net.0.weight"].value.clone().unwrap();
    assert_eq!(
        (weight.shape(), m.attributes["net.0.weight"].kind),
        (&[8, 6][..], AttributeKind::Parameter)
    );
}

#[test]
fn buffers_constants_and_ties() {
    let m = read("buffers.pt2");
    let (want, got) = texts("buffers.txt", &m);
    assert_eq!(want, got);
    let value = |name: &str| m.attributes[name].value.clone().unwrap();
    // Not saved with the state, and not stored contiguously.
    let table: Vec<f32> = (0..4).flat_map(|c| (0..3).map(move |r| (r * 4 + c) as f32)).collect();
    assert_eq!(value("table"), Tensor::from_slice(&[4, 3], &table));
    assert_eq!(value("lifted_tensor_0"), Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]));
    assert_eq!(m.attributes["lifted_tensor_0"].kind, AttributeKind::Constant);
    // Tied weights share one tensor.
    assert_eq!(value("a.weight").bytes().as_ptr(), value("b.weight").bytes().as_ptr());
}

#[test]
fn new_values_of_buffers_and_inputs_are_copied_back() {
    let m = read("buffers_core.pt2");
    let (want, mut got) = texts("buffers_core.txt", &m);
    let copies: Vec<String> = got.iter().filter(|l| l.contains("copy_")).cloned().collect();
    got.retain(|l| !l.contains("copy_"));
    // `%y` has one more user.
    let users = |l: &String| l.replace("[num_users=2] = placeholder", "[num_users=1] = placeholder");
    assert_eq!(want, got.iter().map(users).collect::<Vec<_>>());
    let args = ["(%b_count, %add)", "(%y, %mul)"];
    assert!(
        copies.len() == 2 && copies.iter().zip(args).all(|(l, a)| l.contains(a)),
        "{copies:?}"
    );
    assert_eq!(result(&m), "return (add_2, [getitem_2, mm], None, add_3)");
}

#[test]
fn graphs_as_arguments() {
    let m = read("branches.pt2");
    let (want, got) = texts("branches.txt", &m);
    // The archive stores the operands as a list, and torch's own loader returns a list, too.
    let operands = |l: &String| l.replace("[%x])", "(%x,))");
    assert_eq!(want, got.iter().map(operands).collect::<Vec<_>>());
    assert_eq!(
        m.graphs.keys().map(|k| &**k).collect::<Vec<_>>(),
        ["main", "true_graph_0", "false_graph_0"]
    );
    assert_eq!(
        torch_print::print(&m.graphs["false_graph_0"], Some(&m)),
        "graph():
    %x : [num_users=2] = placeholder[target=x]
    %sub : [num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%x, 1), kwargs = {})
    %mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%x, 3), kwargs = {})
    return (sub, mul)"
    );
    let g = m.entry().unwrap();
    let scale = &g[g.find("scale").unwrap()];
    assert_eq!(scale.args(), [Val::Float(3.0)]);
    let size = m.dims.keys().next().unwrap();
    let ty = |n: &str| g[g.find(n).unwrap()].meta.ty.as_ref().unwrap().to_string();
    assert_eq!(ty("full"), format!("f64[2*{size} + 1]"));
    assert_eq!(ty("to"), format!("f16[({size} // 2), 4]"));
    assert_eq!(ty("cond"), format!("(f32[{size}, 4], f32[{size}, 4])"));
}

struct Temp(PathBuf);

impl Temp {
    fn new(name: &str, bytes: &[u8]) -> Temp {
        let path = std::env::temp_dir().join(format!("fxc-pt2-{}-{name}.pt2", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The first diagnostic for a file with these bytes.
fn finding(name: &str, bytes: &[u8]) -> Option<(Code, String)> {
    let file = Temp::new(name, bytes);
    let d = read_pt2(&file.0).err()?.into_iter().next()?;
    let text = [d.title].into_iter().chain(d.notes).collect::<Vec<_>>().join("; ");
    Some((d.code, text.replace(&file.0.display().to_string(), "FILE")))
}

/// `mlp.pt2` with one entry changed; an empty entry is removed.
fn changed(entry: &str, f: impl Fn(&str) -> String) -> Vec<u8> {
    edited_entries(&std::fs::read(data("mlp.pt2")).unwrap(), entry, f)
}

/// An archive with the entries changed whose names end with `entry`; empty entries are removed.
fn edited_entries(bytes: &[u8], entry: &str, f: impl Fn(&str) -> String) -> Vec<u8> {
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let mut out = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    for i in 0..zip.len() {
        let mut file = zip.by_index(i).unwrap();
        let mut content = vec![];
        file.read_to_end(&mut content).unwrap();
        let name = file.name().unwrap().to_string();
        if name.ends_with(entry) {
            content = f(&String::from_utf8_lossy(&content)).into_bytes();
            if content.is_empty() {
                continue;
            }
        }
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        out.start_file(name, options).unwrap();
        out.write_all(&content).unwrap();
    }
    out.finish().unwrap().into_inner()
}

#[test]
fn compressed_archives_are_read() {
    let same = Temp::new("deflated", &changed("nothing", str::to_string));
    let (m, _) = read_pt2(&same.0).unwrap();
    assert_eq!(m.attributes["net.2.bias"], read("mlp.pt2").attributes["net.2.bias"]);
}

/// A name, the bytes of an archive, and the expected diagnostic: its code and a part of its text.
type Case = (&'static str, Vec<u8>, Code, &'static str);

/// `mlp.pt2` with one text in its graph replaced.
fn edited(from: &'static str, to: &'static str) -> Vec<u8> {
    changed("models/model.json", move |s| {
        assert!(s.contains(from), "{from}");
        s.replacen(from, to, 1)
    })
}

fn assert_said(cases: &[Case]) {
    for (name, bytes, code, text) in cases {
        let (found, why) = finding(name, bytes).unwrap_or_else(|| panic!("{name} is read without a finding"));
        assert_eq!(found, *code, "{name}: {why}");
        assert!(why.contains(text), "{name}: {why}");
    }
}

#[test]
fn what_is_wrong_with_the_graph_is_said_with_the_entry() {
    let model = "models/model.json";
    assert_said(&[
        ("empty", vec![], Code::E0402, "FILE"),
        (
            "text",
            b"hello".to_vec(),
            Code::E0402,
            "`FILE` is not a valid or complete zip archive",
        ),
        (
            "json",
            changed(model, |s| s[..s.len() / 2].into()),
            Code::E0403,
            "`models/model.json` in `FILE` is not JSON",
        ),
        (
            "entry",
            changed(model, |_| String::new()),
            Code::E0402,
            "was not written by `torch.export.save`",
        ),
        (
            "version",
            edited("\"major\": 8", "\"major\": 9"),
            Code::E0404,
            "schema version 9",
        ),
        (
            "name",
            edited("{\"name\": \"linear\"}", "{\"name\": \"nowhere\"}"),
            Code::E0403,
            "node ",
        ),
        (
            "kind",
            edited("\"as_tensor\": {\"name\": \"linear\"}", "\"as_what\": 1"),
            Code::E0405,
            "`as_what`",
        ),
        (
            "input",
            edited("{\"parameter\": {\"arg\"", "{\"custom_obj\": {\"arg\""),
            Code::E0405,
            "input 0: it has the unsupported kind `custom_obj`",
        ),
        ("expr", edited("Symbol('", "Symbol("), Code::E0403, "is not a size"),
        (
            "spec",
            edited("\\\"builtins.list\\\"", "\\\"builtins.list"),
            Code::E0403,
            "`out_spec`",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_the_weights_is_said_with_the_entry() {
    let weights = "model_weights_config.json";
    assert_said(&[
        (
            "pickle",
            changed(weights, |s| {
                s.replacen("\"use_pickle\": false", "\"use_pickle\": true", 1)
            }),
            Code::E0403,
            "it is not a file of `torch.save`",
        ),
        (
            "shape",
            changed(weights, |s| s.replacen("{\"as_int\": 8}", "{\"as_int\": 9}", 1)),
            Code::E0403,
            "it exceeds the",
        ),
        (
            "huge",
            changed(weights, |s| {
                s.replacen("{\"as_int\": 8}", "{\"as_int\": 9000000000000000000}", 1)
            }),
            Code::E0403,
            "overflows",
        ),
        (
            "missing",
            changed(weights, |s| s.replacen("net.0.weight", "net.0.wieght", 1)),
            Code::E0401,
            "no weight `net.0.weight`",
        ),
        (
            "noweights",
            changed(weights, |_| String::new()),
            Code::E0402,
            "model_weights_config.json",
        ),
        (
            "blob",
            changed("weight_1", |_| String::new()),
            Code::E0402,
            "data/weights/weight_1",
        ),
    ]);
}

#[test]
fn attributes_of_weights_are_weights() {
    let m = read("subclasses.pt2");
    let shown: Vec<String> = m
        .attributes
        .iter()
        .map(|(name, a)| format!("{name} {}", a.value.as_ref().unwrap().ty()))
        .collect();
    assert_eq!(
        shown,
        [
            "plain.weight.elements i8[3, 4]",
            "plain.weight.scale f32[3, 1]",
            "plain.bias f32[3]",
            "nested.weight.elements.elements f8e4m3fn[4, 3]",
            "nested.weight.elements.scale f32[4, 1]",
            "nested.weight.scale f32[1, 3]",
            "nested.bias f32[4]",
            "rows.weight.elements bf16[2, 4]",
            "rows.weight.scale f32[2, 1]",
            "rows.bias f32[2]",
        ]
    );
    assert!(
        m.entry()
            .unwrap()
            .find_calls("torch.ops.export.access_subclass_inner_tensor.default")
            .is_empty()
    );
    let targets: Vec<_> = m
        .exported
        .iter()
        .flat_map(|s| &s.inputs)
        .map(|i| i.target.as_deref())
        .collect();
    assert_eq!(targets.len(), 11);
    assert!(
        targets[..10]
            .iter()
            .zip(m.attributes.keys())
            .all(|(a, b)| *a == Some(&**b))
    );
}

#[test]
fn weights_of_classes_that_no_graph_unpacks_are_refused() {
    let bytes = std::fs::read(data("subclasses.pt2")).unwrap();
    let model = edited_entries(&bytes, "models/model.json", |s| {
        s.replace("\"elements\"", "\"missing\"")
    });
    let (code, why) = finding("attribute", &model).unwrap();
    assert_eq!(code, Code::E0403);
    assert!(
        why.contains("`plain.weight.missing`") && why.contains("it has no attribute `missing`"),
        "{why}"
    );
    let model = edited_entries(&bytes, "models/model.json", |s| {
        s.replace(
            "torch.ops.export.access_subclass_inner_tensor.default",
            "torch.ops.aten.alias.default",
        )
    });
    let (code, why) = finding("class", &model).unwrap();
    assert_eq!(code, Code::E0405);
    assert!(why.contains("a tensor of the Python class `make_pt2.Scaled`"), "{why}");
}

#[test]
fn no_damage_panics() {
    for name in ["branches.pt2", "subclasses.pt2"] {
        damage(&std::fs::read(data(name)).unwrap());
    }
}

fn damage(whole: &[u8]) {
    for n in (0..whole.len()).step_by(997) {
        assert!(finding("cut", &whole[..n]).is_some(), "{n}");
    }
    let mut seed = 7u64;
    for _ in 0..200 {
        let mut bytes = whole.to_vec();
        for _ in 0..8 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (seed % 8);
        }
        // Damage to parts that are not read, or to weights (whose checksum is not verified when they are mapped), is
        // not detected, but nothing panics.
        let _ = finding("flip", &bytes);
    }
}
