//! Inputs and state of models: every given value is used or rejected.

use crate::support::{Dir, Ran, codes, fxc_in};
use fxc::internals::tensor::{Tensor, files};
use std::path::Path;

const SUM: &str = "graph main {
    %x : f32[2] = placeholder x
    %n : i64[1] = placeholder n
    %y = call_function operator.mul(%x, %n)
    output %y
}
";
/// Adds its input to a buffer and doubles another input in place.
const STATE: &str = "const total : f32[2] = [0, 0]
graph main {
    %x : f32[2] = placeholder x
    %cache : f32[2] = placeholder cache
    %total = get_attr total
    %sum = call_method add_(%total, %x)
    %twice = call_method mul_(%cache, 2)
    %y = call_function operator.add(%sum, %twice)
    output %y
}
";
const NESTED: &str = "graph main {
    %d : {\"k\": f32[2], \"v\": [f32[2], int]} = placeholder d
    %k = call_function operator.getitem(%d, \"k\")
    %v = call_function operator.getitem(%d, \"v\")
    %a = call_function operator.getitem(%v, 0)
    %n = call_function operator.getitem(%v, 1)
    %s = call_function operator.add(%k, %a)
    %y = call_function operator.mul(%s, %n)
    output %y
}
";
/// The same with the input of [`NESTED`] flattened, as `torch.export` does it.
const FLAT: &str = "graph main {
    %d_k : f32[2] = placeholder d_k
    %d_v_0 : f32[2] = placeholder d_v_0
    %y = call_function operator.add(%d_k, %d_v_0)
    output %y
}
";

fn run(dir: &Dir, args: &[&str]) -> Ran {
    fxc_in(&dir.0, &[&["run"], args].concat())
}

/// The first line of results; empty if there is an error.
fn result(ran: &Ran) -> &str {
    ran.out.lines().next().unwrap_or_default()
}

fn refused(dir: &Dir, args: &[&str]) -> Vec<String> {
    let ran = run(dir, &[args, &["--message-format", "json"]].concat());
    assert_ne!(ran.code, 0, "{args:?}: {}", ran.out);
    codes(&ran.err)
}

fn write(dir: &Dir, name: &str, tensors: &[(&str, &[f32])]) {
    let made: Vec<(&str, Tensor)> = tensors
        .iter()
        .map(|(n, v)| (*n, Tensor::from_slice(&[v.len()], v)))
        .collect();
    files::write(&dir.0.join(name), made.iter().map(|(n, t)| (*n, t))).unwrap();
}

/// The tensors of a file, by name.
fn read(dir: &Dir, name: &str) -> Vec<(String, Vec<f32>)> {
    let file = files::read(Path::new(&dir.0.join(name))).unwrap();
    let tensors = file.tensors.into_iter();
    let mut all: Vec<_> = tensors.map(|(n, t)| (n, t.as_slice::<f32>().to_vec())).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn values_are_written_out_with_their_types() {
    let dir = Dir::new("written");
    dir.file("m.fxir", SUM);
    for args in [
        ["x=[1,2]", "n:i64[1]=3"],
        ["x:f32[2]=[1,2]", "n=[3]"],
        ["x=[1.0,2]", "n:i64[1]=[3]"],
    ] {
        let ran = run(&dir, &[&["m.fxir"], &args[..]].concat());
        assert!(result(&ran).ends_with(" 3 6"), "{args:?}: {}{}", ran.out, ran.err);
    }
    for (args, code) in [
        (["x=[1,2]", "n=3"], "E0503"),
        (["x=[1,2,3]", "n=[3]"], "E0504"),
        (["x=[1,[2]]", "n=[3]"], "E0508"),
        (["x=[1,2]", "n=[2.5]"], "E0508"),
        (["x=[1,2]", "n:i64[1]=2.5"], "E0508"),
        (["x=[1,2]", "n:f32[1]=3"], "E0503"),
        (["x:f32[3]=[1,2]", "n=[3]"], "E0508"),
        (["x=word", "n=[3]"], "E0508"),
        (["x=[1,2", "n=[3]"], "E0508"),
        (["x=ones", "x=zeros"], "E0510"),
    ] {
        let found = refused(&dir, &[&["m.fxir"], &args[..]].concat());
        assert!(found.iter().any(|c| c == code), "{args:?}: {found:?}");
    }
}

#[test]
fn an_input_is_given_once() {
    let dir = Dir::new("once");
    dir.file("m.fxir", SUM);
    write(&dir, "a.npz", &[("x", &[1.0, 2.0])]);
    write(&dir, "b.safetensors", &[("x", &[3.0, 4.0])]);
    assert_eq!(
        refused(&dir, &["m.fxir", "--inputs", "a.npz", "x=ones", "n=[1]"]),
        ["E0510"]
    );
    assert_eq!(
        refused(
            &dir,
            &["m.fxir", "--inputs", "a.npz", "--inputs", "b.safetensors", "n=[1]"]
        ),
        ["E0510"]
    );
    assert_eq!(run(&dir, &["m.fxir", "--inputs", "a.npz", "n=[1]"]).code, 0);
}

#[test]
fn nested_inputs_are_given_by_their_items() {
    let dir = Dir::new("nested");
    dir.file("m.fxir", NESTED);
    dir.file("flat.fxir", FLAT);
    write(&dir, "in.npz", &[("d.k", &[1.0, 2.0]), ("d.v.0", &[10.0, 20.0])]);
    for args in [
        &["m.fxir", "d.k=[1,2]", "d.v.0=[10,20]", "d.v.1=2"][..],
        &["m.fxir", "d={\"k\": [1,2], \"v\": [[10,20], 2]}"],
        &["m.fxir", "--inputs", "in.npz", "d[\"v\"][1]=2"],
    ] {
        let ran = run(&dir, args);
        assert!(result(&ran).ends_with(" 22 44"), "{args:?}: {}{}", ran.out, ran.err);
        assert!(!ran.err.contains("L0003"), "it is not compiled: {}", ran.err);
        let interpreted = run(&dir, &[args, &["--interpret"]].concat());
        assert_eq!(result(&interpreted), result(&ran));
    }
    for args in [
        &["flat.fxir", "d.k=[1,2]", "d.v.0=[10,20]"][..],
        &["flat.fxir", "d={\"k\": [1,2], \"v\": [[10,20]]}"],
        &["flat.fxir", "--inputs", "in.npz"],
    ] {
        let ran = run(&dir, args);
        assert!(result(&ran).ends_with(" 11 22"), "{args:?}: {}{}", ran.out, ran.err);
    }
    assert_eq!(refused(&dir, &["m.fxir", "d.k=[1,2]", "d.v.1=2"]), ["E0501"]);
    assert_eq!(
        refused(&dir, &["m.fxir", "--inputs", "in.npz", "d.v.1=2", "d.w=ones"]),
        ["E0505"]
    );
    assert_eq!(
        refused(&dir, &["m.fxir", "--inputs", "in.npz", "d.v.1=2", "d.k=[1,2]"]),
        ["E0510"]
    );
    assert_eq!(refused(&dir, &["m.fxir", "d=3"]), ["E0503"]);
}

/// Without types, the names imply the structure.
#[test]
fn nested_inputs_need_no_declaration() {
    let dir = Dir::new("undeclared");
    let text = NESTED.replace(" : {\"k\": f32[2], \"v\": [f32[2], int]}", "");
    dir.file("m.fxir", text);
    let ran = run(&dir, &["m.fxir", "d.k:f32[2]=[1,2]", "d.v.0:f32[2]=[10,20]", "d.v.1=2"]);
    assert!(result(&ran).ends_with(" 22 44"), "{}{}", ran.out, ran.err);
}

#[test]
fn state_goes_out_and_back_in() {
    let dir = Dir::new("state");
    dir.file("m.fxir", STATE);
    let first = ["m.fxir", "x=[1,2]", "cache=[1,1]"];
    for mode in [&[][..], &["--interpret"]] {
        for kind in ["npz", "safetensors"] {
            let file = format!("s.{kind}");
            let with = |args: &[&str]| {
                let ran = run(&dir, &[args, mode].concat());
                assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
                result(&ran).to_string()
            };
            with(&[&first[..], &["--save-state", &file]].concat());
            let want = [
                ("buffer.total".to_string(), vec![1.0, 2.0]),
                ("input.cache".to_string(), vec![2.0, 2.0]),
            ];
            assert_eq!(read(&dir, &file), want);
            let second = with(&["m.fxir", "x=[1,2]", "--state", &file]);
            let twice = with(&[&first[..], &["--repeat", "2"]].concat());
            assert_eq!(second, twice);
            assert!(second.ends_with(" 6 8"), "{second}");
            // The same names among the inputs, and in the file that --outputs writes.
            assert_eq!(with(&["m.fxir", "x=[1,2]", "--inputs", &file]), second);
            let out = format!("out.{kind}");
            with(&[&first[..], &["--outputs", &out]].concat());
            assert_eq!(with(&["m.fxir", "x=[1,2]", "--state", &out]), second);
            assert_eq!(
                with(&["m.fxir", "x=[1,2]", "cache=[2,2]", "buffer.total=[1,2]"]),
                second
            );
        }
    }
    let bench = ["bench", "m.fxir", "x=ones", "--state", "s.npz", "--seconds", "0"];
    assert_eq!(fxc_in(&dir.0, &bench).code, 0);
}

#[test]
fn state_of_another_model_is_refused() {
    let dir = Dir::new("other_state");
    dir.file("m.fxir", STATE);
    write(&dir, "name.npz", &[("buffer.totals", &[1.0, 2.0])]);
    write(&dir, "shape.npz", &[("total", &[1.0, 2.0, 3.0])]);
    write(
        &dir,
        "both.npz",
        &[("total", &[1.0, 2.0]), ("input.cache", &[0.0, 0.0])],
    );
    let given = ["m.fxir", "x=ones", "cache=ones", "--state"];
    let with = |args: &[&str]| refused(&dir, &[&given[..], args].concat());
    assert_eq!(with(&["name.npz"]), ["E0505"]);
    assert_eq!(with(&["shape.npz"]), ["E0406"]);
    assert_eq!(with(&["both.npz"]), ["E0510"]);
    assert_eq!(
        refused(&dir, &["m.fxir", "x=ones", "--state", "both.npz", "buffer.total=zeros"]),
        ["E0510"]
    );
}

#[test]
fn calls_in_a_row_take_their_own_inputs() {
    let dir = Dir::new("sequence");
    dir.file("m.fxir", STATE);
    write(&dir, "a.npz", &[("x", &[1.0, 1.0]), ("cache", &[1.0, 1.0])]);
    write(&dir, "b.npz", &[("x", &[2.0, 2.0])]);
    let ok = |args: &[&str]| {
        let ran = run(&dir, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        result(&ran).to_string()
    };
    // The buffer accumulates 1 and 2; the cache is doubled twice.
    for mode in [&[][..], &["--interpret"], &["--check"]] {
        let files = ["m.fxir", "--inputs", "a.npz", "--inputs", "b.npz", "--repeat", "2"];
        assert!(ok(&[&files[..], mode].concat()).ends_with(" 7 7"));
        let rows = ["m.fxir", "x:f32[2,2]=[[1,1],[2,2]]", "cache=ones", "--each", "x"];
        assert!(ok(&[&rows[..], mode].concat()).ends_with(" 7 7"));
        let stacked = ok(&[&rows[..], mode, &["--stack"]].concat());
        assert!(
            stacked.contains("f32[2, 2]") && stacked.ends_with(" 3 3 7 7"),
            "{stacked}"
        );
        // An input that each call gets anew does not keep the value that the previous call left.
        let both = ["m.fxir", "x=ones", "cache:f32[2,2]=[[1,1],[5,5]]", "--each", "cache"];
        assert!(ok(&[&both[..], mode].concat()).ends_with(" 12 12"));
    }
    let two = ["m.fxir", "--inputs", "a.npz", "--inputs", "b.npz"];
    assert_eq!(refused(&dir, &two), ["E0510"]);
    assert_eq!(refused(&dir, &[&two[..], &["--repeat", "3"]].concat()), ["E0504"]);
    assert_eq!(
        refused(&dir, &["m.fxir", "cache=ones", "x=ones", "--each", "x"]),
        ["E0304"]
    );
    assert_eq!(
        refused(&dir, &["m.fxir", "cache=ones", "x=ones", "--each", "y"]),
        ["E0501"]
    );
}

/// Values that `torch.export` made part of a program, in FXIR as `fxc print` writes it for an archive.
#[test]
fn fixed_inputs_take_their_own_value_only() {
    let dir = Dir::new("fixed");
    let text = std::fs::read_to_string(crate::support::root().join("tests/ui/E0511.fxir")).unwrap();
    dir.file("m.fxir", text);
    for ok in [
        "k=3",
        "k=3.0",
        "y=None",
        "flag=True",
        "flag=1",
        "mode=mean",
        "mode=\"mean\"",
        "k:int=3",
    ] {
        let ran = run(&dir, &["m.fxir", "x=ones", ok]);
        assert!(result(&ran).ends_with(" 3 3 3"), "{ok}: {}", ran.err);
    }
    for wrong in [
        "k=5",
        "k=3.5",
        "k=True",
        "k=ones",
        "y=0",
        "y:f32[3]=ones",
        "flag=0",
        "flag=None",
        "mode=sum",
        "mode=3",
    ] {
        assert_eq!(refused(&dir, &["m.fxir", "x=ones", wrong]), ["E0511"], "{wrong}");
    }
    // In a graph that was not exported, a default is only a default.
    let own = "graph main {\n    %x : f32[1] = placeholder x\n    %k = placeholder k = 3\n    %y = call_function operator.mul(%x, %k)\n    output %y\n}\n";
    dir.file("own.fxir", own);
    assert!(result(&run(&dir, &["own.fxir", "x=ones", "k=5"])).ends_with(" 5"));
}

/// An `.npy` file of complex numbers.
fn complex() -> Vec<u8> {
    let header = "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }\n";
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), &[0; 16]].concat()
}

#[test]
fn arrays_of_other_types_are_named() {
    let dir = Dir::new("complex");
    dir.file("m.fxir", SUM);
    dir.file("x.npy", complex());
    let ran = run(&dir, &["m.fxir", "--inputs", "x.npy", "n=[1]"]);
    assert!(
        ran.err.contains("error[E0503]: `x` has complex elements of type <c8"),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.matches("error[").count(), 1, "{}", ran.err);
    assert_eq!(refused(&dir, &["m.fxir", "x=x.npy", "n=[1]"]), ["E0507"]);
}
