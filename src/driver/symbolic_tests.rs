//! Tests of code that is lowered from a module with symbolic sizes.

use crate::driver::inputs::fill::{Fill, filled_tensor};
use crate::driver::{
    CallResult, Dims, Function, Given, Observer, Provided, Request, Session, Stage, StageProduct, bind,
};
use crate::tensor::Tensor;
use crate::types::{DType, Val};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts the runs of the passes.
struct Passes(Arc<AtomicUsize>);

impl Observer for Passes {
    fn after_stage(&mut self, stage: Stage, _product: StageProduct, _time: Duration) {
        if stage == Stage::Optimize {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Model {
    session: Session,
    function: Function,
    passes: Arc<AtomicUsize>,
}

impl Model {
    fn new(text: &str) -> Model {
        let (mut session, passes) = (Session::new(), Arc::new(AtomicUsize::new(0)));
        session.observe(Passes(passes.clone()));
        let model = session.load_text("test", text);
        let model = model.unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        Model {
            function: Function::new(model, Request::default()),
            session,
            passes,
        }
    }

    /// Calls the model with `x` of this shape. `None` if the call fails.
    fn call(&mut self, shape: &[usize]) -> Option<CallResult> {
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(filled_tensor(DType::F32, shape, Fill::Uniform(3)))),
            origin: "the test".into(),
            must_match: true,
        };
        let (bound, found) = bind::bind_inputs(self.function.module(), vec![given], Dims::new());
        let bound = bound.unwrap_or_else(|| panic!("{found:?}"));
        self.function.call(&mut self.session, &bound).ok()
    }

    /// How often the passes have run since the last question.
    fn runs_of_passes(&self) -> usize {
        self.passes.swap(0, Ordering::Relaxed)
    }
}

fn bytes(result: &CallResult) -> Vec<Vec<u8>> {
    let tensors = result.result.leaves().into_iter();
    let written = result.written.iter().map(|(_, t)| t);
    tensors.chain(written).map(|t: &Tensor| t.bytes().to_vec()).collect()
}

/// Calls one model at all sizes, and a new one at each; their results must be equal bit for bit.
fn assert_same_at_all_sizes(text: &str, sizes: &[usize]) -> Vec<usize> {
    let mut model = Model::new(text);
    let called = |n: &usize| {
        let results = [model.call(&[*n, 6]), Model::new(text).call(&[*n, 6])];
        let [all, one] = results.map(|r| r.map(|r| bytes(&r)));
        assert_eq!(all, one, "{n} rows");
        model.runs_of_passes()
    };
    sizes.iter().map(called).collect()
}

/// What depends on sizes alone: numbers, positions, a mask, a table of which rows are read, a uniform tensor.
const SIZED: &str = "
    const table : f32[6] = [1, 2, 3, 5, 8, 13]
    graph main {
        %x : f32[N, 6] = placeholder x
        %t = get_attr table
        %n = call_method size(%x, 0)
        %rows = call_function torch.arange(%n)
        %row = call_method unsqueeze(%rows, 1)
        %mask = call_function operator.ge(%row, %rows)
        %weights = call_method to(%mask, torch.float32)
        %mixed = call_function torch.matmul(%weights, %x)
        %ones = call_function torch.ones(%n)
        %column = call_method unsqueeze(%ones, 1)
        %scaled = call_function operator.mul(%t, %column)
        %sum = call_function operator.add(%mixed, %scaled)
        %halves = call_method view(%sum, %n, 2, -1)
        %soft = call_function torch.softmax(%halves, -1)
        %mean = call_function operator.truediv(%soft, %n)
        output {\"y\": %mean, \"rows\": %rows}
    }";

#[test]
fn passes_run_for_the_first_sizes_only() {
    let runs = assert_same_at_all_sizes(SIZED, &[5, 7, 64, 5, 300]);
    // Once on symbolic sizes and once on the first ones.
    assert_eq!(runs, [2, 0, 0, 0, 0]);
}

#[test]
fn sizes_that_broadcast_have_passes_of_their_own() {
    assert_eq!(assert_same_at_all_sizes(SIZED, &[1, 5, 7, 1]), [2, 1, 0, 0]);
}

#[test]
fn more_that_passes_find_for_known_sizes_is_found_for_all() {
    // A view to the same shape, if the size is 6.
    let text = "graph main {
        %x : f32[N, 6] = placeholder x
        %y = call_method view(%x, -1, 6)
        %z = call_function torch.zeros_like(%y)
        %w = call_function torch.add(%y, %z)
        %v = call_function torch.cumsum(%w, 0)
        output %v
    }";
    assert_same_at_all_sizes(text, &[4, 6, 9, 20]);
}

#[test]
fn buffers_are_kept_between_sizes() {
    let text = "const total : f32[6] = [0, 0, 0, 0, 0, 0]
    graph main {
        %x : f32[N, 6] = placeholder x
        %t = get_attr total
        %s = call_function torch.sum(%x, 0)
        %u = call_method add_(%t, %s)
        %y = call_function operator.mul(%t, 2)
        output %y
    }";
    let mut model = Model::new(text);
    let mut sum = [0f32; 6];
    for rows in [3, 4, 5] {
        let x = filled_tensor(DType::F32, &[rows, 6], Fill::Uniform(3));
        (0..rows * 6).for_each(|i| sum[i % 6] += x.get(i).to_f64() as f32);
        let result = model.call(&[rows, 6]).expect("the call is valid");
        let got = result.result.leaves()[0];
        (0..6).for_each(|i| assert!((got.get(i).to_f64() - 2.0 * f64::from(sum[i])).abs() < 1e-5));
    }
    assert_eq!(model.runs_of_passes(), 2);
}

#[test]
fn a_size_that_does_not_fit_is_an_error_as_before() {
    let text = "graph main {
        %x : f32[N, 6] = placeholder x
        %y = call_method reshape(%x, -1, 4)
        output %y
    }";
    let mut model = Model::new(text);
    assert!(model.call(&[2, 6]).is_some() && model.call(&[4, 6]).is_some());
    assert!(model.call(&[3, 6]).is_none());
    let said = model
        .session
        .diagnostics
        .iter()
        .map(|d| d.title.clone())
        .collect::<Vec<_>>();
    let mut fresh = Model::new(text);
    assert!(fresh.call(&[3, 6]).is_none());
    assert_eq!(
        said,
        fresh
            .session
            .diagnostics
            .iter()
            .map(|d| d.title.clone())
            .collect::<Vec<_>>()
    );
    assert!(model.call(&[6, 6]).is_some());
}

#[test]
fn sizes_that_types_took_for_equal_may_broadcast() {
    let text = "graph main {
        %x : f32[N, M] = placeholder x
        %ones = call_function torch.ones_like(%x)
        %rows = call_method sum(%ones, 1)
        %columns = call_method sum(%ones, 0)
        %sum = call_function torch.add(%rows, %columns)
        %both = call_function torch.cat((%sum, %sum))
        %m = call_method size(%x, 1)
        %y = call_method narrow(%both, 0, 0, %m)
        output %y
    }";
    let mut model = Model::new(text);
    let mut called = |shape: &[usize]| {
        let called = model.call(shape)?;
        let y = called.result.leaves()[0].clone();
        Some((0..y.numel()).map(|i| y.get(i).to_f64()).collect::<Vec<_>>())
    };
    assert_eq!(called(&[3, 3]), Some(vec![6.0; 3]));
    assert_eq!(called(&[3, 1]), Some(vec![4.0; 1]));
    assert_eq!(called(&[1, 4]), Some(vec![5.0; 4]));
    assert_eq!(called(&[3, 2]), None);
    assert_eq!(called(&[4, 4]), Some(vec![8.0; 4]));
}
