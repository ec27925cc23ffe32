//! What a call costs besides the work: after the first nothing is allocated.

use fxc::internals::driver::{Request, Session, compile};
use fxc::internals::tensor::Tensor;
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

/// Views of all kinds, some handed out, an input handed back, one value twice, a number that every row reads.
const VIEWS: &str = "
graph g {
    %x : f32[6, 8] = placeholder x
    %s : f32[] = placeholder s
    %t = call_method transpose(%x, 0, 1)
    %cut = call_function torch.narrow(%x, 1, 2, 4)
    %flip = call_function torch.flip(%x, [0])
    %each = call_method expand(%s, [6, 8])
    %sum = call_function torch.add(%flip, %each)
    %top = call_function torch.amax(%sum)
    %both = call_function torch.stack((%sum, %x))
    %parts = call_function torch.split(%both, 1)
    %one = call_function operator.getitem(%parts, 1)
    output {'t': %t, 'rest': [%cut, %x, %top, (%top, %one)]}
}
";

/// Steps with working memory of their own: Winograd's tiles, bands of rows, a layer in time, a product of halves.
const LAYERS: &str = "
graph g {
    %x : f32[1, 32, 40, 40] = placeholder x
    %w : f32[32, 32, 3, 3] = placeholder w
    %u : f32[96, 32, 1, 1] = placeholder u
    %k : f32[96, 1, 3, 3] = placeholder k
    %h : f32[16, 1, 24] = placeholder h
    %ih : f32[64, 24] = placeholder ih
    %hh : f32[64, 16] = placeholder hh
    %same = call_function torch.full([32, 32, 3, 3], 0.0625)
    %c = call_function torch.conv2d(%x, %same, None, 1, 1)
    %d = call_function torch.conv2d(%c, %w, None, 2, 1)
    %e = call_function torch.conv2d(%c, %u)
    %r = call_function torch.nn.functional.relu6(%e)
    %b = call_function torch.conv2d(%r, %k, None, 1, 1, 1, 96)
    %z = call_function torch.zeros([1, 1, 16])
    %l = call_function torch.lstm(%h, (%z, %z), [%ih, %hh], False, 1, 0.0, False, False, False)
    %lo = call_function operator.getitem(%l, 0)
    %half = call_method to(%ih, torch.bfloat16)
    %t = call_method transpose(%half, 0, 1)
    %m = call_function torch.matmul(%half, %t)
    output (%d, %b, %lo, %m)
}
";

#[test]
fn calls_allocate_nothing_after_the_first() {
    let inputs = [
        Tensor::zeros(DType::F32, &[1, 3, 12, 12]),
        Tensor::zeros(DType::F32, &[1, 4, 100]),
    ];
    allocates_nothing(&GRAPH.replace("full(0.125)", &weights()), &inputs);
    let floats = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    allocates_nothing(VIEWS, &[floats(&[6, 8]), floats(&[])]);
    let shapes: [&[usize]; 7] = [
        &[1, 32, 40, 40],
        &[32, 32, 3, 3],
        &[96, 32, 1, 1],
        &[96, 1, 3, 3],
        &[16, 1, 24],
        &[64, 24],
        &[64, 16],
    ];
    allocates_nothing_in(3, LAYERS, &shapes.map(floats));
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
    allocates_nothing_in(200, text, inputs);
}

/// The same, measured in rounds of so many calls.
fn allocates_nothing_in(calls: usize, text: &str, inputs: &[Tensor]) {
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
            for _ in 0..calls {
                executable.execute(inputs).expect("runs");
            }
            COUNT.load(Relaxed) - before
        };
        let rounds: Vec<usize> = (0..20).map(|_| allocations()).collect();
        assert!(
            rounds.ends_with(&[0]) && rounds.iter().filter(|&&n| n == 0).count() > 10,
            "allocations in each {calls} calls on {threads} threads: {rounds:?}"
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
