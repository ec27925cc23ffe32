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

#[test]
fn calls_allocate_nothing_after_the_first() {
    for threads in [1, 2] {
        let mut session = Session::new();
        let text = GRAPH.replace("full(0.125)", &weights());
        let model = session.load_text("calls.fxir", &text);
        let model = model.unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        let request = Request {
            threads,
            ..Request::default()
        };
        let made = compile(&mut session, model, &request).unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        let mut executable = made.ready.and_then(|r| r.into_executable()).expect("an executable");
        let inputs = [
            Tensor::zeros(DType::F32, &[1, 3, 12, 12]),
            Tensor::zeros(DType::F32, &[1, 4, 100]),
        ];
        // Workers take their working memory when they first get a chunk.
        for _ in 0..200 {
            executable.execute(&inputs).expect("runs");
        }
        let before = COUNT.load(Relaxed);
        for _ in 0..200 {
            executable.execute(&inputs).expect("runs");
        }
        assert_eq!(
            COUNT.load(Relaxed) - before,
            0,
            "allocations in 200 calls on {threads} threads"
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
