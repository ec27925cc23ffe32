//! What a call costs besides the work: after the first nothing is allocated.

use fxc::driver::{Request, Session, compile};
use fxc::tensor::Tensor;
use fxc::types::DType;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counting.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Pointwise, softmax, products with and without a constant operand, a convolution with a tail, attention.
const GRAPH: &str = "
const w : f32[4, 3, 3, 3] = full(0.125)
graph g {
    %x : f32[1, 3, 12, 12] = placeholder x
    %y : f32[1, 4, 100] = placeholder y
    %w = get_attr w
    %conv = call_function torch.conv2d(%x, %w)
    %act = call_function torch.nn.functional.silu(%conv)
    %rows = call_function torch.reshape(%act, [1, 4, 100])
    %sum = call_function torch.add(%rows, %y)
    %soft = call_function torch.softmax(%sum, -1)
    %t = call_method transpose(%soft, 1, 2)
    %scores = call_function torch.matmul(%sum, %t)
    %att = call_function torch.nn.functional.scaled_dot_product_attention(%sum, %rows, %soft)
    output (%scores, %att)
}
";

/// Buffers with new values: a counter, a running mean, and two that change places.
const STATE: &str = "
const n : f32[] = 0.0
const mean : f32[4] = [0.5, 0.25, 0.0, 1.0]
const a : f32[4] = [1.0, 2.0, 3.0, 4.0]
const b : f32[4] = [5.0, 6.0, 7.0, 8.0]
graph g updates (buffer n, buffer mean, buffer a, buffer b) {
    %x : f32[8, 4] = placeholder x
    %n = get_attr n
    %n1 = call_function torch.add(%n, 1.0)
    %mean = get_attr mean
    %m = call_function torch.mean(%x, 0)
    %mean1 = call_function torch.lerp(%mean, %m, 0.1)
    %a = get_attr a
    %b = get_attr b
    %y = call_function torch.sub(%x, %mean1)
    output (%n1, %mean1, %b, %a, %y)
}
";

/// Kernels of their own: rows of a table, joining, windows, running sums; a sum in parts.
const SPECIAL: &str = "
graph g {
    %ids : i64[1, 5] = placeholder ids
    %x : f32[1, 5, 8] = placeholder x
    %long : f32[300000] = placeholder long
    %table = call_function torch.ones([10, 8])
    %rows = call_function torch.nn.functional.embedding(%ids, %table)
    %both = call_function torch.cat((%rows, %x), -1)
    %windows = call_function torch.nn.functional.max_pool1d(%both, 2)
    %sums = call_function torch.cumsum(%windows, -1)
    %total = call_function torch.sum(%long)
    output (%sums, %total)
}
";

#[test]
fn calls_allocate_nothing_after_the_first() {
    let inputs = [
        Tensor::zeros(DType::F32, &[1, 3, 12, 12]),
        Tensor::zeros(DType::F32, &[1, 4, 100]),
    ];
    allocates_nothing(&GRAPH.replace("full(0.125)", &weights()), &inputs);
    let ids = Tensor::zeros(DType::I64, &[1, 5]);
    allocates_nothing(STATE, &[Tensor::zeros(DType::F32, &[8, 4])]);
    allocates_nothing(
        SPECIAL,
        &[
            ids,
            Tensor::zeros(DType::F32, &[1, 5, 8]),
            Tensor::zeros(DType::F32, &[300_000]),
        ],
    );
}

/// The graph runs on one and two threads without allocating after the first calls.
fn allocates_nothing(text: &str, inputs: &[Tensor]) {
    for threads in [1, 2] {
        let mut session = Session::new();
        let model = session.load_text("calls.fxir", text);
        let model = model.unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        let request = Request {
            threads,
            ..Request::default()
        };
        let made = compile(&mut session, model, &request).unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        let mut executable = made.ready.and_then(|r| r.into_executable()).expect("an executable");
        // Workers take their working memory when they first get a chunk, which on a busy machine may be late.
        let mut allocations = || {
            let before = COUNT.load(Relaxed);
            for _ in 0..200 {
                executable.execute(inputs).expect("runs");
            }
            COUNT.load(Relaxed) - before
        };
        let rounds: Vec<usize> = (0..20).map(|_| allocations()).collect();
        assert!(
            rounds.ends_with(&[0]) && rounds.iter().filter(|&&n| n == 0).count() > 10,
            "allocations in each 200 calls on {threads} threads: {rounds:?}"
        );
    }
}

/// `[4, 3, 3, 3]` numbers as FXIR writes them.
fn weights() -> String {
    let row = |_| "[0.1, -0.2, 0.3]";
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let kernel = list((0..3).map(|i| row(i).to_string()).collect());
    let channel = list(vec![kernel; 3]);
    list(vec![channel; 4])
}
