//! Memory that executables of one process share, and the memory of a process.

use crate::support::{Dir, fxc};
use fxc::internals::driver::{Request, Session, Stage, compile};
use fxc::internals::kernel::{BufferRole, LARGE};
use fxc::internals::math::contract::Pack;
use fxc::internals::runtime::Executable;
use fxc::internals::tensor::{Tensor, files};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Convolutions with batch normalisation (folded into weights), a product and an LSTM.
const MODEL: &str = r#"weights "model.safetensors"
dim N in 1..64
graph main {
    %x : f32[N, 32, 12, 12] = placeholder x
    %w1 = get_attr conv.weight
    %scale = get_attr scale
    %w2 = get_attr linear.weight
    %zero = call_function torch.zeros([32])
    %one = call_function torch.ones([32])
    %c = call_function torch.conv2d(%x, %w1, None, 1, 1)
    %n = call_function torch.nn.functional.batch_norm(%c, %zero, %one, %scale, %zero)
    %r = call_function torch.relu(%n)
    %m = call_function torch.mean(%r, [2, 3])
    %y = call_function torch.nn.functional.linear(%m, %w2)
    output %y
}
"#;

fn weights(dir: &Dir, tensors: &[(&str, &[usize])]) {
    let made: Vec<Tensor> = tensors
        .iter()
        .map(|(_, shape)| {
            let n: usize = shape.iter().product();
            let data: Vec<f32> = (0..n).map(|i| ((i * 7919) % 2003) as f32 / 1000.0 - 1.0).collect();
            Tensor::from_slice(shape, &data)
        })
        .collect();
    let path = dir.0.join("model.safetensors");
    let named = tensors.iter().map(|(n, _)| *n).zip(&made);
    files::write(&path, named).expect("the file is written");
}

/// The model compiled for a batch size, in a session of its own.
fn executable(path: &str, batch: i64) -> Executable {
    let mut s = Session::new();
    let model = s.load(path).unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    let request = Request {
        dims: BTreeMap::from([("N".to_string(), batch)]),
        threads: 2,
        ..Request::default()
    };
    let made = compile(&mut s, model, &request).unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    made.ready.and_then(|r| r.into_executable()).expect("an executable")
}

fn same(a: &[Pack], b: &[Pack]) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.iter().any(|y| Arc::ptr_eq(&x.bytes, &y.bytes)))
}

#[test]
fn a_file_that_is_read_twice_has_its_weights_packed_once() {
    let dir = Dir::new("sharing");
    weights(
        &dir,
        &[
            ("conv.weight", &[32, 32, 3, 3]),
            ("scale", &[32]),
            ("linear.weight", &[48, 32]),
        ],
    );
    let path = dir.file("model.fxir", MODEL);
    let mut one = executable(&path, 2);
    let mut other = executable(&path, 2);
    assert_eq!(
        one.packed_constants().len(),
        2,
        "the weights of the convolution and of the product"
    );
    assert!(
        same(one.packed_constants(), other.packed_constants()),
        "two readers of one file"
    );
    let larger = executable(&path, 9);
    assert!(
        same(one.packed_constants(), larger.packed_constants()),
        "two sizes of one model"
    );
    let x = Tensor::from_slice(&[2, 32, 12, 12], &[0.5f32; 2 * 32 * 144]);
    let [a, b] = [&mut one, &mut other].map(|e| e.run(std::slice::from_ref(&x)).expect("runs"));
    assert!(a.leaves()[0].bit_eq(b.leaves()[0]));
    // Another file at the same path is another model.
    weights(
        &dir,
        &[
            ("linear.weight", &[48, 32]),
            ("conv.weight", &[32, 32, 3, 3]),
            ("scale", &[32]),
        ],
    );
    let changed = executable(&path, 2);
    assert!(
        !changed
            .packed_constants()
            .iter()
            .any(|p| one.packed_constants().iter().any(|q| Arc::ptr_eq(&p.bytes, &q.bytes)))
    );
}

/// The peak memory of a run and the size of its weights, in MiB.
fn peak(model: &str) -> Option<(f64, f64)> {
    let ran = fxc(&[
        "bench",
        model,
        "x=rand:1",
        "--threads",
        "1",
        "--seconds",
        "0.01",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let v: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let memory = &v["memory_bytes"];
    let mib = |key: &str| memory[key].as_f64().unwrap() / (1 << 20) as f64;
    assert_eq!(mib("weights"), mib("packed"));
    Some((v["peak_rss_mb"].as_f64()?, mib("weights")))
}

/// Six convolutions whose transformed weights would take 1.7 MiB more each; there is room for four.
#[test]
fn transformed_weights_are_kept_as_far_as_there_is_room() {
    let dir = Dir::new("room");
    let names: Vec<String> = (0..6).map(|i| format!("w{i}")).collect();
    let all: Vec<(&str, &[usize])> = names.iter().map(|n| (n.as_str(), &[128, 128, 3, 3][..])).collect();
    weights(&dir, &all);
    let steps = (0..6).map(|i| {
        format!(
            "    %w{i} = get_attr w{i}\n    %y{} = call_function torch.conv2d(%y{i}, %w{i}, None, 1, 1)\n",
            i + 1
        )
    });
    let steps: String = steps.collect();
    let text = format!(
        "weights \"model.safetensors\"\ndim N in 1..64\ngraph main {{\n    %y0 : f32[N, 128, 28, 28] = placeholder x\n{steps}    output %y6\n}}\n"
    );
    let path = dir.file("model.fxir", text);
    let [one, more] = [1, 2].map(|batch| executable(&path, batch));
    let bytes: usize = one.packed_constants().iter().map(|p| p.bytes.bytes().len()).sum();
    let extra = (bytes - one.program().weight_bytes()) as f64 / (1 << 20) as f64;
    assert!((6.0..8.0).contains(&extra), "{extra} MiB");
    assert!(
        same(one.packed_constants(), more.packed_constants()),
        "two sizes of one model"
    );
}

/// Rows of a table in a file are copied as indices refer to them. The rest of the table is not in memory.
#[test]
fn tables_are_read_row_by_row() {
    let dir = Dir::new("tables");
    let (rows, columns) = (1 << 16, 256);
    weights(&dir, &[("w", &[rows, columns])]);
    let text = "weights \"model.safetensors\"\ngraph main {\n    %i : i64[N] = placeholder i\n    %w = get_attr w\n    \
                %y = call_function torch.nn.functional.embedding(%i, %w)\n    output %y\n}\n";
    let path = dir.file("model.fxir", text.replace("i64[N]", "i64[128]"));
    let at: Vec<i64> = (0..128).map(|i| i * 512 + i % 3).collect();
    let mut run = executable(&path, 1);
    let table = files::read(&dir.0.join("model.safetensors")).expect("the file").tensors["w"].clone();
    let mut rows_are = |at: &[i64]| {
        let out = run.run(&[Tensor::from_slice(&[128], at)]).expect("runs");
        let row = |i: &i64| &table.as_slice::<f32>()[*i as usize * columns..(*i as usize + 1) * columns];
        let want: Vec<f32> = at.iter().flat_map(row).copied().collect();
        assert!(out.leaves()[0].as_slice::<f32>() == want, "other rows");
    };
    rows_are(&at);
    rows_are(&at.iter().map(|i| i + 100).collect::<Vec<_>>());
    rows_are(&[rows as i64 - 1; 128]);
    let wrong = [Tensor::from_slice(&[128], &[rows as i64; 128])];
    assert!(run.run(&wrong).is_err(), "no such row");
    let peak = |at: &[i64]| {
        files::write(&dir.0.join("i.npy"), [("i", &Tensor::from_slice(&[128], at))]).expect("written");
        let ids = format!("i={}", dir.0.join("i.npy").display());
        let ran = fxc(&["bench", &path, &ids, "--threads", "1", "--seconds", "0.01", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let v: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        v["memory_bytes"]["peak"].as_f64()
    };
    match [peak(&[0; 128]), peak(&at)] {
        [Some(one), Some(all)] => assert!(all - one < 12e6, "{} bytes of a table of 64 MiB", all - one),
        _ => println!("skipped: this system does not tell a process's memory"),
    }
}

/// No weight is in memory twice: neither as a whole besides its packed form, nor during packing.
#[test]
fn originals_leave_memory_while_they_are_packed() {
    let measured = [64, 6144].map(|columns| {
        let dir = Dir::new(&format!("peak{columns}"));
        weights(&dir, &[("w", &[columns, 1024])]);
        let text = "weights \"model.safetensors\"\ngraph main {\n    %x : f32[1, 1024] = placeholder x\n    \
                    %w = get_attr w\n    %y = call_function torch.nn.functional.linear(%x, %w)\n    output %y\n}\n";
        peak(&dir.file("model.fxir", text))
    });
    let [Some((small, few)), Some((large, many))] = measured else {
        println!("skipped: this system does not tell a process's memory");
        return;
    };
    assert!(Path::new("/proc").exists() && many - few > 20.0);
    let rest = (large - small) - (many - few);
    assert!(rest < 8.0, "{rest} MiB more than the weights: {measured:?}");
}

/// For each output of a graph's kernels, whether it is written with streaming stores, past the caches.
fn streams(text: &str) -> Vec<bool> {
    let mut s = Session::new();
    let model = s.load_text("streams.fxir", text);
    let model = model.unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    let request = Request {
        until: Some(Stage::Lower),
        ..Request::default()
    };
    let made = compile(&mut s, model, &request).unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    let program = made.program.expect("a program");
    let outs = program.kernels.iter().flat_map(|k| &k.buffers);
    let outs = outs.filter(|b| b.role == BufferRole::Out);
    outs.map(|b| b.streams).collect()
}

#[test]
fn only_large_results_that_are_not_read_next_pass_the_caches() {
    let graph = |rows: usize, ops: &str| {
        format!("graph g {{\n    %x : f32[{rows}, 1024] = placeholder x\n{ops}    output %y\n}}\n")
    };
    let neg = "    %y = call_function torch.neg(%x)\n";
    let rows = LARGE / 4096;
    assert_eq!(streams(&graph(rows / 2, neg)), [false], "it stays in the cache");
    assert_eq!(streams(&graph(rows, neg)), [true], "nobody reads it");
    // The second sum reduces columns of what the first kernel writes, so it is a separate kernel.
    let two = "    %s = call_function torch.softmax(%x, -1)\n    %y = call_function torch.softmax(%s, 0)\n";
    assert!(!streams(&graph(rows, two))[0], "the next kernel reads it");
    assert!(
        streams(&graph(2 * rows, two))[0],
        "nothing of its beginning would be left"
    );
}
