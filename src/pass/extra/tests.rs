//! The extra passes on an example of every op.

use crate::interp::tests::module;
use crate::op::examples::all_examples;
use crate::pass::{PassOptions, all_passes, by_name, run_pass};

/// What is wrong after the pipeline's canonical part and an extra pass.
fn problem_after(text: &str, extra: &str) -> Option<String> {
    let mut m = module(text);
    let options = PassOptions {
        verify_each: true,
        ..PassOptions::default()
    };
    for name in ["inline", "functionalize", "normalize", extra] {
        let pass = by_name(name).unwrap();
        if let Err(found) = run_pass(pass, &mut m, &options) {
            let titles: Vec<String> = found.iter().map(|d| d.title.clone()).collect();
            return Some(format!("{name}: {}\n{text}", titles.join("; ")));
        }
    }
    None
}

fn extra_passes() -> Vec<&'static str> {
    let all = all_passes().map(|p| p.name);
    all.filter(|n| crate::pass::EXTRA.iter().any(|p| p.name == *n))
        .collect()
}

#[test]
fn every_example_stays_valid() {
    let extra = extra_passes();
    let problems: Vec<String> = all_examples()
        .flat_map(|(_, text)| {
            extra
                .iter()
                .filter_map(move |e| problem_after(&text, e))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// A row has one schema for overloads of torch that differ slightly. The passes choose one that takes the arguments.
#[test]
fn overloads_take_their_arguments() {
    let calls = [
        "%y = call_function torch.count_nonzero(%x, -1)",
        "%y = call_function torch.count_nonzero(%x, [0, 1])",
        "%y = call_function torch.count_nonzero(%x)",
        "%a = call_function torch.exp(%x)  %y = call_function torch.div(%a, 2)",
        "%a = call_function torch.exp(%x)  %y = call_function torch.div(%a, %x)",
        "%a = call_function torch.exp(%x)  %y = call_function torch.div(%a, %x, rounding_mode=\"floor\")",
    ];
    for call in calls {
        let text = format!("graph main {{ %x : f32[2, 3] = placeholder x  {call}  output %y }}");
        for extra in extra_passes() {
            assert_eq!(problem_after(&text, extra), None);
        }
    }
    let mut m = module(
        "graph main { %x : f32[3] = placeholder x  %a = call_function torch.exp(%x)  %y = call_function torch.div(%a, %x)  output %y }",
    );
    for name in ["normalize", "reinplace"] {
        run_pass(by_name(name).unwrap(), &mut m, &PassOptions::default()).unwrap();
    }
    let graph = m.entry().unwrap();
    assert!(graph.iter().any(|n| graph[n].target() == "torch.ops.aten.div_.Tensor"));
}
