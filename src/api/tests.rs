use super::*;
use crate::diag::Code;
use crate::tensor::Tensor;

fn model(text: &str) -> Model {
    Model::from_text(text).unwrap()
}

const SCALE: &str = "graph main {
    %x : f32[N, 2] = placeholder x
    %by = placeholder by
    %y = call_function operator.mul(%x, %by)
    output %y
}";

const COUNTER: &str = "const total : f32[2] = [0, 0]
graph main {
    %x : f32[N, 2] = placeholder x
    %t = get_attr total
    %s = call_function torch.sum(%x, 0)
    %u = call_method add_(%t, %s)
    %y = call_function operator.mul(%t, 1)
    output {\"total\": %y, \"rows\": 3}
}";

fn rows(n: usize) -> Tensor {
    let data: Vec<f32> = (0..2 * n).map(|i| i as f32).collect();
    Tensor::from_slice(&[n, 2], &data)
}

#[test]
fn inputs_go_by_position_or_name() {
    let compiled = model(SCALE).compile(&Options::new()).unwrap();
    let by_position = compiled.run([rows(2).into(), 3i64.into()]).unwrap();
    let by_name = compiled.run([("by", 3i64).into(), ("x", rows(2)).into()]).unwrap();
    let mixed = compiled.run([("by", 3i64).into(), rows(2).into()]).unwrap();
    for out in [by_position, by_name, mixed] {
        assert_eq!(out[0].as_slice::<f32>(), [0.0, 3.0, 6.0, 9.0]);
    }
}

#[test]
fn calls_of_other_sizes_and_dtypes_compile_for_them() {
    let compiled = model(SCALE).compile(&Options::new().threads(1)).unwrap();
    for n in [1, 3, 2, 3] {
        let out = compiled.run([rows(n).into(), 2.0.into()]).unwrap();
        assert_eq!(out[0].shape(), [n, 2]);
    }
    let fixed = model(SCALE).compile(&Options::new().dim("N", 2)).unwrap();
    assert!(fixed.run([rows(2).into(), 1i64.into()]).is_ok());
    assert!(fixed.run([rows(3).into(), 1i64.into()]).is_err());
}

#[test]
fn errors_are_one_line_or_the_whole_report() {
    let e = Model::from_text(
        "graph main {\n    %x : f32[2] = placeholder x\n    %y = call_function torch.rellu(%x)\n    output %z\n}",
    );
    let e = match e.and_then(|m| m.compile(&Options::new())) {
        Err(e) => e,
        Ok(_) => panic!("the text has two errors"),
    };
    let line = e.to_string();
    assert!(!line.contains('\n') && line.ends_with("(and 1 more)"), "{line}");
    let report = format!("{e:#}");
    assert!(
        report.contains("call_function torch.rellu(%x)") && report.contains("help"),
        "{report}"
    );
    assert_eq!(format!("{e:?}"), report);
    fn is_usable<T: std::error::Error + Send + Sync + Clone + 'static>(_: &T) {}
    is_usable(&e);

    let compiled = model(SCALE).compile(&Options::new()).unwrap();
    let code = |inputs: Vec<Input>| compiled.run(inputs).err().and_then(|e| e.code());
    assert_eq!(code(vec![rows(2).into()]), Some(Code::E0501));
    assert_eq!(code(vec![rows(2).into(), 1i64.into(), 1i64.into()]), Some(Code::E0501));
    assert_eq!(
        code(vec![Tensor::scalar(1.0f32).into(), 1i64.into()]),
        Some(Code::E0504)
    );
    let missing = Model::open("no/such/file.fxir").err().and_then(|e| e.code());
    assert_eq!(missing, Some(Code::E0701));
}

#[test]
fn calls_forget_and_sessions_remember() {
    let compiled = model(COUNTER).compile(&Options::new()).unwrap();
    for _ in 0..2 {
        let out = compiled.run([rows(2).into()]).unwrap();
        assert_eq!(out[0].as_slice::<f32>(), [2.0, 4.0]);
    }
    let mut session = compiled.session();
    session.run([rows(2).into()]).unwrap();
    let first = session.run([rows(2).into()]).unwrap();
    session.run([rows(1).into()]).unwrap();
    assert_eq!(first[0].as_slice::<f32>(), [4.0, 8.0]);
    assert_eq!(session.state()["total"].as_slice::<f32>(), [4.0, 9.0]);
    session
        .set_state("total", Tensor::from_slice(&[2], &[1.0f32, 0.0]))
        .unwrap();
    let out = session.run([rows(1).into()]).unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [1.0, 1.0]);
    assert!(session.set_state("total", Tensor::scalar(1.0f32)).is_err());
    assert!(
        session
            .set_state("totl", Tensor::scalar(1.0f32))
            .unwrap_err()
            .report(false)
            .contains("`total`")
    );
    session.reset();
    let out = session.run([rows(2).into()]).unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [2.0, 4.0]);
    drop(session);
    let out = compiled.run([rows(2).into()]).unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [2.0, 4.0]);
}

#[test]
fn values_that_calls_only_read_are_set_and_reset_too() {
    let text = "const scale : f32[2] = [1, 10]
        graph main {
            %x : f32[N, 2] = placeholder x
            %s = get_attr scale
            %y = call_function operator.mul(%x, %s)
            output %y
        }";
    let compiled = model(text).compile(&Options::new()).unwrap();
    let mut session = compiled.session();
    let first_row = |s: &mut Session| s.run([rows(2).into()]).unwrap()[0].as_slice::<f32>()[2..].to_vec();
    assert_eq!(first_row(&mut session), [2.0, 30.0]);
    session
        .set_state("scale", Tensor::from_slice(&[2], &[5.0f32, 0.0]))
        .unwrap();
    assert_eq!(first_row(&mut session), [10.0, 0.0]);
    drop(session);
    assert_eq!(first_row(&mut compiled.session()), [2.0, 30.0]);
}

#[test]
fn what_is_interpreted_is_a_warning() {
    let text = "graph main { %x : f32[4] = placeholder x  %y = call_function torch.nonzero(%x)  output %y }";
    let compiled = model(text).compile(&Options::new()).unwrap();
    let codes: Vec<Code> = compiled.warnings().iter().map(|d| d.code).collect();
    assert_eq!(codes, [Code::L0003]);
}

#[test]
fn a_model_is_saved_over_the_file_that_it_was_read_from() {
    let folder = std::env::temp_dir().join(format!("fxc-api-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("scaled.fxir");
    let mut module = model(COUNTER).into_module();
    module.add_parameter("w", Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]));
    Model::from(module).save(&file).unwrap();
    let read = Model::open(&file).unwrap();
    read.save(&file).unwrap();
    let again = Model::open(&file).unwrap();
    let w = again.module().attributes["w"].value.clone().unwrap();
    assert_eq!(w.as_slice::<f32>(), [1.0, 2.0, 3.0]);
    let refused = again.save(folder.join("scaled.safetensors")).unwrap_err();
    assert_eq!(refused.code(), Some(Code::E0702));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn results_keep_the_models_structure() {
    let compiled = model(COUNTER).compile(&Options::new()).unwrap();
    let out = compiled.run([rows(2).into()]).unwrap();
    assert_eq!(out.len(), 1);
    let crate::types::Val::Dict(items) = out.value() else {
        panic!("{:?}", out.value());
    };
    assert_eq!(items[1].1.as_int(), Some(3));
}

#[test]
fn threads_call_at_the_same_time() {
    let compiled = model(COUNTER).compile(&Options::new().threads(2)).unwrap();
    std::thread::scope(|scope| {
        for n in 1..5 {
            let compiled = compiled.clone();
            scope.spawn(move || {
                for _ in 0..20 {
                    let out = compiled.run([rows(n).into()]).unwrap();
                    let n = n as f32;
                    assert_eq!(out[0].as_slice::<f32>(), [n * (n - 1.0), n * n]);
                }
            });
        }
    });
}

#[test]
fn graphs_built_in_code_compile() {
    use crate::graph::Graph;
    use crate::types::Val;
    let mut g = Graph::new();
    let x = g.placeholder("x", None);
    let y = g.call_function("torch.relu", vec![Val::Leaf(x)], vec![]);
    g.set_output(Val::Leaf(y));
    let compiled = Model::from(g).compile(&Options::new()).unwrap();
    let out = compiled
        .run([Tensor::from_slice(&[2], &[-1.0f32, 1.0]).into()])
        .unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [0.0, 1.0]);
}

#[test]
fn models_are_read_from_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/buffers.pt2");
    let mut bytes = std::fs::read(path).unwrap();
    let (file, memory) = (Model::open(path).unwrap(), Model::from_bytes(&bytes).unwrap());
    // The weights do not refer to the caller's bytes, and compiling does not drop them as it drops the pages of a file.
    bytes.fill(0);
    memory.compile(&Options::new()).unwrap();
    assert!(!file.module().attributes.is_empty());
    for (name, attribute) in &file.module().attributes {
        let value = attribute.value.as_ref().unwrap();
        value.release_pages();
        memory.module().attributes[name].value.as_ref().unwrap().release_pages();
        assert_eq!(Some(value), memory.module().attributes[name].value.as_ref(), "{name}");
    }
    assert_eq!(crate::graph::print(file.module()), crate::graph::print(memory.module()));
    let text = Model::from_bytes(SCALE.as_bytes()).unwrap();
    let out = text
        .compile(&Options::new())
        .unwrap()
        .run([rows(1).into(), 2i64.into()]);
    assert_eq!(out.unwrap()[0].as_slice::<f32>(), [0.0, 2.0]);
}

#[test]
fn bytes_that_are_no_model_are_refused() {
    let path = std::env::temp_dir().join(format!("fxc-bytes-{}.fxc", std::process::id()));
    model("graph main { %x : f32[2] = placeholder x  output %x }")
        .save_compiled(&path, &Options::new())
        .unwrap();
    let compiled = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let code = |bytes: &[u8]| Model::from_bytes(bytes).err().and_then(|e| e.code());
    assert_eq!(code(&compiled), Some(Code::E0409));
    assert_eq!(code(b""), Some(Code::E0113));
    assert_eq!(code(b"\x93NUMPY\x01\x00"), Some(Code::E0703));
    assert_eq!(code(b"graph main {\0}"), Some(Code::E0703));
    let archive = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/buffers.pt2")).unwrap();
    for length in [4, 100, archive.len() / 2, archive.len() - 1] {
        assert!(code(&archive[..length]).is_some());
    }
}

#[test]
fn work_beyond_its_limits_is_an_error_and_later_work_is_not() {
    let text = "graph main { %x : f32[N] = placeholder x  %p = call_function torch.outer(%x, %x)  %y = call_function torch.exp(%p)  output %y }";
    let model = Model::from_text(text).unwrap();
    let code = |e: Error| e.code().unwrap();
    let options = Options::new().threads(1);
    let compiled = model.compile(&options.clone().max_memory(2 << 30)).unwrap();
    let run = |n: usize| compiled.run([Tensor::from_slice(&[n], &vec![0f32; n]).into()]);
    assert_eq!(code(run(1 << 15).err().unwrap()), Code::E0509);
    assert_eq!(run(2).unwrap()[0].as_slice::<f32>(), [1.0; 4]);
    let small = model.compile(&options.clone().dim("N", 2).max_nodes(3));
    assert_eq!(code(small.err().unwrap()), Code::E0114);
    let read = Model::from_text_with(text, &options.clone().max_nodes(1));
    assert_eq!(code(read.err().unwrap()), Code::E0114);
    let read = Model::from_bytes_with(text.as_bytes(), &options.clone().max_nodes(1));
    assert_eq!(code(read.err().unwrap()), Code::E0114);
    let archive = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/buffers.pt2")).unwrap();
    let read = Model::from_bytes_with(&archive, &options.clone().max_memory(1));
    assert_eq!(code(read.err().unwrap()), Code::E0509);
    let late = options.clone().max_time(std::time::Duration::ZERO);
    assert_eq!(code(model.check_with(&late).unwrap_err()), Code::E0513);
    let late = model.compile(&options.clone().dim("N", 2).max_time(std::time::Duration::ZERO));
    assert_eq!(code(late.err().unwrap()), Code::E0513);
    assert!(model.compile(&options.dim("N", 2)).is_ok());
}

#[test]
fn weights_in_another_folder_need_permission() {
    let dir = std::env::temp_dir().join(format!("fxc-api-weights-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("models")).unwrap();
    let weights = dir.join("w.safetensors");
    crate::tensor::files::write(&weights, [("w", &Tensor::from_slice(&[2], &[1.0f32, 2.0]))]).unwrap();
    let text = |weights: &str| format!("weights \"{weights}\"\ngraph main {{ %w = get_attr w  output %w }}");
    let (text, path) = (text(&weights.display().to_string()), dir.join("models/m.fxir"));
    std::fs::write(&path, &text).unwrap();
    let refused = |m: Result<Model, Error>| m.err().and_then(|e| e.code());
    assert_eq!(refused(Model::from_text(&text)), Some(Code::E0410));
    assert_eq!(refused(Model::open(&path)), Some(Code::E0410));
    let allowed = Options::new().allow_path(&dir);
    assert!(Model::from_text_with(&text, &allowed).is_ok() && Model::open_with(&path, &allowed).is_ok());
    // What `save` writes, `open` reads.
    let saved = dir.join("models/saved.fxir");
    Model::open_with(&path, &allowed).unwrap().save(&saved).unwrap();
    assert!(Model::open(&saved).is_ok());
    std::fs::remove_dir_all(dir).unwrap();
}
