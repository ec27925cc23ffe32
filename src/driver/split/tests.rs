use crate::driver::{Dims, Fill, Function, Given, Provided, Request, Session, bind, fill};
use crate::interp;
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// A model with regions: products of chosen rows, which are added up in a tensor of known type, and a product of that.
const CHOSEN_ROWS: &str = "graph main {
    %x : f32[8, 64] = placeholder x
    %w : f32[64, 64] = placeholder w
    %chosen = call_function torch.gt(%x, 20.0)
    %any = call_function torch.any(%chosen, 1)
    %rows = call_function torch.nonzero(%any)
    %row = call_function torch.select(%rows, 1, 0)
    %some = call_function torch.index_select(%x, 0, %row)
    %product = call_function torch.matmul(%some, %w)
    %act = call_function torch.relu(%product)
    %zeros = call_function torch.zeros_like(%x)
    %sum = call_function torch.index_add(%zeros, 0, %row, %act)
    %again = call_function torch.matmul(%sum, %w)
    %y = call_function torch.add(%again, %x)
    output (%y, %act)
}";

/// The function of a model that is given as text.
fn function_of(session: &mut Session, text: &str) -> Function {
    match session.load_text("test", text) {
        Ok(model) => Function::new(model, Request::default()),
        Err(_) => panic!("{:?}", session.diagnostics),
    }
}

/// The results of a call with tensors, and of the interpreter.
fn call_and_interpret(session: &mut Session, f: &mut Function, inputs: &[(&str, Tensor)]) -> [Vec<Tensor>; 2] {
    let given = inputs.iter().map(|(name, t)| Provided {
        name: (*name).into(),
        given: Given::Value(Val::Leaf(t.clone())),
        origin: "the test".into(),
        must_match: true,
    });
    let (bound, found) = bind::bind_inputs(f.module(), given.collect(), Dims::new());
    let bound = bound.unwrap_or_else(|| panic!("{found:?}"));
    let expected = interp::run(f.module(), bound.values.clone()).unwrap();
    let called = f.call(session, &bound);
    let result = called.unwrap_or_else(|_| panic!("{:?}", session.diagnostics)).result;
    [result, expected].map(|v| v.leaves().into_iter().cloned().collect())
}

/// Rows of which those in `chosen` have an element above 20.
fn rows_with(chosen: &[usize]) -> Tensor {
    let value = |row: usize, col: usize| match (chosen.contains(&row), col) {
        (true, 3) => 25.0,
        _ => ((row * 7 + col * 3) % 11) as f32 - 5.0,
    };
    let values: Vec<f32> = (0..8 * 64).map(|i| value(i / 64, i % 64)).collect();
    Tensor::from_slice(&[8, 64], &values)
}

#[test]
fn what_follows_a_data_dependent_size_is_compiled_for_the_sizes_that_occur() {
    let mut s = Session::new();
    let mut f = function_of(&mut s, CHOSEN_ROWS);
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 3) as f32 - 1.0).collect();
    let weight = ("w", Tensor::from_slice(&[64, 64], &values));
    for chosen in [&[1, 4][..], &[0, 2, 3, 7], &[], &[5], &[1, 4]] {
        let inputs = [("x", rows_with(chosen)), weight.clone()];
        let [got, expected] = call_and_interpret(&mut s, &mut f, &inputs);
        assert_eq!(got.len(), expected.len());
        for (a, b) in got.iter().zip(&expected) {
            assert_eq!(a.shape(), b.shape());
            // Whole numbers, so that no sum is rounded.
            assert!((0..a.numel()).all(|i| a.get(i) == b.get(i)), "{chosen:?}");
        }
    }
    let warning = s
        .diagnostics
        .iter()
        .find(|d| d.title.contains("run in the interpreter"));
    // `nonzero` alone.
    assert!(
        warning.unwrap().title.starts_with("1 of 11 "),
        "{}",
        warning.unwrap().title
    );
}

/// Node ids of each graph start at zero: those of `more` equal ids of nodes that the head computed.
#[test]
fn called_graphs_compute_their_own_nodes() {
    let text = "graph main {
            %x : f32[2, 2] = placeholder x
            %a = call_function torch.relu(%x)
            %b = call_function torch.mul(%a, 2.0)
            %i = call_function torch.nonzero(%b)
            %n = call_function torch.sum(%i)
            %p = call_function operator.gt(%n, 0)
            %y = call_function torch.cond(%p, @more, @less, (%i,))
            output (%b, %y)
        }
        graph more {
            %i = placeholder i
            %j = call_function torch.add(%i, 1)
            %k = call_function torch.mul(%j, 3)
            output (%k,)
        }
        graph less { %i = placeholder i  output (%i,) }";
    let mut s = Session::new();
    let mut f = function_of(&mut s, text);
    let x = fill::filled_tensor(DType::F32, &[2, 2], Fill::Arange);
    let [leaves, _] = call_and_interpret(&mut s, &mut f, &[("x", x)]);
    assert!(s.diagnostics.iter().any(|d| d.title.contains("run in the interpreter")));
    let numbers = |i: usize| {
        (0..leaves[i].numel())
            .map(|k| leaves[i].get(k).to_f64())
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(0), [0.0, 2.0, 4.0, 6.0]);
    assert_eq!(numbers(1), [3.0, 6.0, 6.0, 3.0, 6.0, 6.0]);
}

/// Both results have the type `i64[?, 2]`, as the operand, but other sizes.
#[test]
fn views_of_unknown_sizes_are_kept() {
    let text = "graph main {
            %x : f32[8, 64] = placeholder x
            %i = call_function torch.nonzero(%x)
            %first = call_function torch.ops.aten.slice.Tensor(%i, 0, 0, 1)
            %rows = call_function torch.ops.aten.expand_as(%first, %i)
            output (%first, %rows)
        }";
    let mut s = Session::new();
    let mut f = function_of(&mut s, text);
    let [got, expected] = call_and_interpret(&mut s, &mut f, &[("x", rows_with(&[2]))]);
    assert_eq!(got[0].shape(), [1, 2]);
    assert_eq!(got[1].shape(), expected[1].shape());
}
