use super::{Runner, RunnerOptions};
use crate::diag::Code;
use crate::{Model, Options, Tensor, View, ViewMut};
use std::path::PathBuf;
use std::time::Duration;

/// A file that is removed at the end of a test.
struct CompiledFile(PathBuf);

impl Drop for CompiledFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn compile(name: &str, text: &str, options: &Options) -> CompiledFile {
    let path = std::env::temp_dir().join(format!("fxc-runner-{name}-{}.fxc", std::process::id()));
    let model = Model::from_text(text).expect("the text is a model");
    model.save_compiled(&path, options).expect("the model is compiled");
    CompiledFile(path)
}

fn open(file: &CompiledFile) -> Runner {
    Runner::open(&file.0, &RunnerOptions::new().threads(1)).expect("the file has code")
}

const NESTED: &str = "graph main {
    %unused : f32[3] = placeholder unused
    %pair : (f32[2], f32[2]) = placeholder pair
    %x : f32[2] = placeholder x
    %a = call_function operator.getitem(%pair, 0)
    %b = call_function operator.getitem(%pair, 1)
    %y = call_function operator.sub(%a, %b)
    %z = call_function operator.mul(%y, %x)
    output {\"z\": %z, \"more\": (%y, 3)}
}";

#[test]
fn inputs_and_results_are_flat() {
    let file = compile("flat", NESTED, &Options::new());
    let mut runner = open(&file);
    assert_eq!(runner.input_names(), ["unused", "pair.0", "pair.1", "x"]);
    assert_eq!(runner.input_types()[0].len(), 4);
    let (unused, a, b) = ([0.0f32; 3], [5.0f32, 0.0, 7.0], [1.0f32, 2.0]);
    let inputs = [
        View::from_slice(&[3], &unused).unwrap(),
        View::strided(&[2], &[2], &a).unwrap(),
        View::from_slice(&[2], &b).unwrap(),
        View::from_slice(&[2], &b).unwrap(),
    ];
    let results = runner.run(&inputs).unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(results[0].as_slice::<f32>(), [4.0, 10.0]);
    assert_eq!(results[1].as_slice::<f32>(), [4.0, 5.0]);
    let (mut z, mut y) = ([0.0f32; 2], [0.0f32; 2]);
    let mut outputs = [&mut z, &mut y].map(|m| ViewMut::from_slice(&[2], m).unwrap());
    runner.run_into(&inputs, &mut outputs).unwrap();
    assert_eq!((z, y), ([4.0, 10.0], [4.0, 5.0]));
    let error = runner.run(&inputs[..3]).unwrap_err();
    assert_eq!(error.code(), Code::E0604);
    assert!(
        error.to_string().contains("the inputs are (f32[3], f32[2], f32[2])"),
        "{error}"
    );
}

const COUNTER: &str = "const total : f32[2] = [1, 2]
    graph main {
        %x : f32[2] = placeholder x
        %t = get_attr total
        %u = call_method add_(%t, %x)
        %v = call_method mul_(%x, 2)
        %y = call_function operator.mul(%t, 10)
        output %y
    }";

#[test]
fn buffers_keep_their_values_from_call_to_call() {
    let file = compile("state", COUNTER, &Options::new());
    let mut runner = open(&file);
    let x = Tensor::from_slice(&[2], &[1.0f32, 1.0]);
    let call = |runner: &mut Runner| runner.run(&[(&x).into()]).unwrap()[0].as_slice::<f32>().to_vec();
    assert_eq!(call(&mut runner), [20.0, 30.0]);
    assert_eq!(call(&mut runner), [30.0, 40.0]);
    let changed: Vec<_> = runner.changed_inputs().collect();
    assert!(changed.len() == 1 && changed[0].0 == "x" && changed[0].1.as_slice::<f32>() == [2.0, 2.0]);
    assert_eq!(runner.state()["total"].as_slice::<f32>(), [3.0, 4.0]);
    runner
        .set_state("total", &Tensor::from_slice(&[2], &[0.0f32, 0.0]))
        .unwrap();
    assert_eq!(call(&mut runner), [10.0, 10.0]);
    assert_eq!(
        runner.set_state("total", &Tensor::scalar(1.0f32)).unwrap_err().code(),
        Code::E0504
    );
    assert_eq!(runner.set_state("weight", &x).unwrap_err().code(), Code::E0505);
    runner.reset();
    assert_eq!(call(&mut runner), [20.0, 30.0]);
    // Another runner of the file has buffers of its own.
    assert_eq!(call(&mut open(&file)), [20.0, 30.0]);
}

#[test]
fn ops_without_code_in_the_file_are_named_when_it_is_opened() {
    let text = "graph main {
        %x : f32[2, 3] = placeholder x
        %s = call_function torch.sort(%x)
        %y = call_function operator.getitem(%s, 0)
        output %y
    }";
    let file = compile("routine", text, &Options::new());
    let error = Runner::open(&file.0, &RunnerOptions::new())
        .err()
        .expect("it is refused");
    assert_eq!(error.code(), Code::E0604);
    assert!(error.to_string().contains("`sort`"), "{error}");
    assert!(format!("{error:#}").contains("feature `compiler`"), "{error:#}");
}

#[test]
fn work_beyond_the_limits_is_an_error_and_keeps_buffers() {
    let file = compile("limits", COUNTER, &Options::new());
    let no_time = RunnerOptions::new().max_time(Duration::ZERO);
    let x = Tensor::from_slice(&[2], &[1.0f32, 1.0]);
    let late = Runner::open(&file.0, &no_time).err().expect("it takes longer");
    assert_eq!(late.code(), Code::E0513);
    let mut runner = open(&file);
    runner.options = no_time;
    assert_eq!(runner.run(&[(&x).into()]).unwrap_err().code(), Code::E0513);

    let large = compile(
        "memory",
        "const total : f32[2] = [1, 2]
        graph main {
            %x : f32[2] = placeholder x
            %n : f32[1] = placeholder n
            %t = get_attr total
            %u = call_method add_(%t, %x)
            %w = call_method expand(%n, [1000000])
            %y = call_function torch.cumsum(%w, 0)
            output (%t, %y)
        }",
        &Options::new(),
    );
    let mut runner = open(&large);
    let n = Tensor::from_slice(&[1], &[1.0f32]);
    let call = |runner: &mut Runner| {
        runner
            .run(&[(&x).into(), (&n).into()])
            .map(|r| r[0].as_slice::<f32>().to_vec())
    };
    let first = runner.run(&[(&x).into(), (&n).into()]).unwrap();
    assert_eq!(first[0].as_slice::<f32>(), [2.0, 3.0]);
    // The first result is in use, so the second call needs new memory for its own.
    runner.options = RunnerOptions::new().max_memory(1 << 20);
    assert_eq!(call(&mut runner).unwrap_err().code(), Code::E0509);
    runner.options = RunnerOptions::new();
    assert_eq!(call(&mut runner).unwrap(), [3.0, 4.0]);
}

#[test]
fn files_that_are_no_compiled_models_are_refused() {
    let open = |path: &std::path::Path| Runner::open(path, &RunnerOptions::new()).err().map(|e| e.code());
    assert_eq!(open("nowhere.fxc".as_ref()), Some(Code::E0701));
    assert_eq!(open("Cargo.toml".as_ref()), Some(Code::E0409));
    let file = compile("damaged", NESTED, &Options::new());
    let mut bytes = std::fs::read(&file.0).unwrap();
    bytes.pop();
    std::fs::write(&file.0, bytes).unwrap();
    assert_eq!(open(&file.0), Some(Code::E0409));
}
