//! Tests of the lowering steps on tensor IR written as text.

use super::fuse::{Unit, fuse};
use super::ir::Tir;
use super::schedule::{KnownKernels, schedule};
use super::{lower_tir, lower_tir_traced};
use crate::kernel::{Kernel, Stmt};
use crate::program::BufferPlace;

fn tir(text: &str) -> Tir {
    Tir::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Softmax of `%x` over its last dim, as values of the same rank.
fn softmax(shape: &str, kept: &str, dim: usize) -> String {
    format!(
        "%x: f32{shape} = input 0
         %max: f32{kept} = max(%x) dims=[{dim}]
         %exp: f32{shape} = map(%x, %max) {{ exp(sub(a0, a1)) }}
         %sum: f32{kept} = sum(%exp) dims=[{dim}]
         %y: f32{shape} = map(%exp, %sum) {{ div(a0, a1) }}
         return %y"
    )
}

fn kernels(text: &str) -> Vec<Kernel> {
    let t = tir(text);
    let f = fuse(&t);
    let clusters = f.order.iter().filter_map(|u| match &f.units[u.as_u32() as usize] {
        Some(Unit::Cluster(c)) => Some(c),
        _ => None,
    });
    clusters
        .flat_map(|c| {
            schedule(&t, &f, c, "kernel", false, &mut KnownKernels::default()).unwrap_or_else(|e| panic!("{e}"))
        })
        .map(|s| s.kernel)
        .collect()
}

/// The tensor IR after a step of the pipeline.
fn after(step: &str, text: &str) -> String {
    let mut found = String::new();
    let lowered = lower_tir_traced(tir(text), &mut |name, t| {
        if name == step {
            found = t.to_string();
        }
    });
    lowered.unwrap_or_else(|e| panic!("{e:?}"));
    found
}

fn loops(body: &[Stmt]) -> usize {
    body.iter().filter(|s| matches!(s, Stmt::Loop(_))).count()
}

#[test]
fn softmax_is_one_kernel_of_three_loops() {
    let ks = kernels(&softmax("[4, 8, 64]", "[4, 8, 1]", 2));
    assert_eq!(ks.len(), 1);
    // The outer dims merge, and the exponentials are kept in a row between the loops.
    assert_eq!(ks[0].parallel_extent(), 32);
    assert_eq!(loops(&ks[0].parallel_loop().unwrap().body), 3);
    assert!(ks[0].scratch_layout().1 >= 64 * 4);
}

#[test]
fn softmax_over_another_dim_runs_in_columns() {
    let ks = kernels(&softmax("[16, 64]", "[1, 64]", 0));
    assert_eq!(ks.len(), 1);
    // The exponentials of a block of columns are kept between the loops.
    assert_eq!(lanes_of(&ks[0]), [64, 3]);
    assert!(ks[0].scratch_layout().1 >= 16 * 64 * 4);
}

/// The lanes of a kernel's block, and the number of loops over their columns.
fn lanes_of(k: &Kernel) -> [usize; 2] {
    let body = &k.parallel_loop().unwrap().body;
    let lanes = body.iter().find_map(|s| match s {
        Stmt::Loop(l) if l.vector => Some([k.extent(l.vars[0]), loops(&l.body)]),
        _ => None,
    });
    lanes.unwrap_or_default()
}

#[test]
fn short_rows_run_in_lanes() {
    let ks = kernels(&softmax("[1000, 7]", "[1000, 1]", 1));
    assert_eq!(ks.iter().map(|k| k.parallel_extent()).collect::<Vec<_>>(), [15, 1]);
    assert_eq!(ks.iter().map(lanes_of).collect::<Vec<_>>(), [[64, 3], [40, 3]]);
    // Rows of whole vectors, and few of them, stay rows.
    for (shape, kept) in [("[1000, 8]", "[1000, 1]"), ("[16, 7]", "[16, 1]")] {
        let ks = kernels(&softmax(shape, kept, 1));
        assert_eq!((ks.len(), lanes_of(&ks[0])[1]), (1, 0), "{shape}");
    }
}

#[test]
fn a_residual_joins_the_normalisation_that_reads_it_and_is_stored_once() {
    let ks = kernels(
        "%a: f32[8, 32] = input 0
         %b: f32[8, 32] = input 1
         %x: f32[8, 32] = map(%a, %b) { add(a0, a1) }
         %sum: f32[8, 1] = sum(%x) dims=[1]
         %centred: f32[8, 32] = map(%x, %sum) { sub(a0, a1) }
         %square: f32[8, 32] = map(%centred) { mul(a0, a0) }
         %var: f32[8, 1] = sum(%square) dims=[1]
         %inv: f32[8, 1] = map(%var) { rsqrt(a0) }
         %y: f32[8, 32] = map(%centred, %inv) { mul(a0, a1) }
         return (%y, %x)",
    );
    assert_eq!(ks.len(), 1);
    assert_eq!(ks[0].params().count(), 4);
}

#[test]
fn a_path_through_another_unit_keeps_clusters_apart() {
    // The transposed read is from a stored buffer.
    let ks = kernels(
        "%a: f32[8, 8] = input 0
         %x: f32[8, 8] = map(%a) { exp(a0) }
         %swapped: f32[8, 8] = affine(%x) at=[d1, d0]
         %y: f32[8, 8] = map(%x, %swapped) { add(a0, a1) }
         return %y",
    );
    assert_eq!(ks.len(), 2);
}

#[test]
fn keepdim_or_not_makes_no_difference() {
    let ks = kernels(
        "%x: f32[4, 6, 32] = input 0
         %s: f32[4, 6, 1] = sum(%x) dims=[2]
         %flat: f32[4, 6] = reshape(%s)
         %e: f32[4, 6] = map(%flat) { exp(a0) }
         %wide: f32[4, 6, 1] = reshape(%e)
         %y: f32[4, 6, 32] = map(%x, %wide) { mul(a0, a1) }
         return %y",
    );
    assert_eq!(ks.len(), 1);
    assert_eq!(ks[0].params().count(), 2);
}

#[test]
fn reshapes_without_strides_are_copied() {
    use crate::op::IndexMap;
    let mut t = tir("%x: f32[4, 6] = input 0\n%v: f32[6, 4] = affine(%x) at=[d1, d0]\nreturn %v");
    let [x, v] = [0, 1].map(super::ir::ValueId);
    let flat = t.view(v, IndexMap::Reshape, &[24]).unwrap();
    // The flattened transpose has no single stride: its elements are copied in order first.
    let at = t.access(flat).unwrap();
    assert!(at.base != x && at.is_contiguous(&[24]), "{at:?}");
    assert_eq!(t.value(at.base).shape, [6, 4]);
    // A flat view of the matrix itself only changes strides.
    let flat = t.view(x, IndexMap::Reshape, &[24]).unwrap();
    assert_eq!(t.access(flat).unwrap().base, x);
}

#[test]
fn layout_turns_a_convolution_and_what_follows_it() {
    let text = "\
        %x: f32[1, 16, 8, 8] = input 0
        %w: f32[16, 16, 3, 3] = constant
        %conv: f32[1, 16, 8, 8] = conv(%x, %w) stride=[1, 1] padding=[1, 1] dilation=[1, 1] groups=1
        %relu: f32[1, 16, 8, 8] = map(%conv) { max(a0, f32(0.0)) } activation=relu
        %pool: f32[1, 16, 4, 4] = max_pool(%relu) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
        return %pool";
    insta::assert_snapshot!(after("layout", text), @r"
    %x: f32[1, 16, 8, 8] = input 0
    %w: f32[16, 16, 3, 3] = constant
    %conv: f32[1, 8, 8, 16] = conv(%x, %w) stride=[1, 1] padding=[1, 1] dilation=[1, 1] groups=1 channels_last=[0, 1]
    %conv#1: f32[1, 16, 8, 8] = affine(%conv) at=[d0, d2, d3, d1]
    %relu: f32[1, 8, 8, 16] = map(%conv) { max(a0, f32(0.0)) } activation=relu
    %relu#1: f32[1, 16, 8, 8] = affine(%relu) at=[d0, d2, d3, d1]
    %pool: f32[1, 4, 4, 16] = max_pool(%relu) first=1 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
    %pool#1: f32[1, 16, 4, 4] = affine(%pool) at=[d0, d2, d3, d1]
    return %pool#1
    ");
}

#[test]
fn a_reduction_that_is_computed_twice_is_computed_once() {
    let text = "\
        %x: f32[4, 8] = input 0
        %a: f32[4, 1] = sum(%x) dims=[1]
        %b: f32[4, 1] = sum(%x) dims=[1]
        %c: f32[4, 1] = sum(%x) dims=[1] after { neg(a0) }
        %y: f32[4, 1] = map(%a, %b, %c) { add(a0, mul(a1, a2)) }
        return %y";
    insta::assert_snapshot!(after("merge-reductions", text), @r"
    %x: f32[4, 8] = input 0
    %a: f32[4, 1] = sum(%x) dims=[1] in=f32
    %b: f32[4, 1] = reshape(%a)
    %c: f32[4, 1] = sum(%x) dims=[1] in=f32 after { neg(a0) }
    %y: f32[4, 1] = map(%a, %b, %c) { add(a0, mul(a1, a2)) }
    return %y
    ");
}

#[test]
fn results_that_are_views_are_copied() {
    let text = "\
        %x: f32[4, 8] = input 0
        %t: f32[8, 4] = affine(%x) at=[d1, d0]
        %flat: f32[32] = reshape(%x)
        return (%t, %flat)";
    insta::assert_snapshot!(after("copy-results", text), @r"
    %x: f32[4, 8] = input 0
    %t: f32[8, 4] = affine(%x) at=[d1, d0]
    %flat: f32[32] = reshape(%x)
    %flat#1: f32[8, 4] = map(%t) { a0 }
    %flat#2: f32[32] = map(%flat) { a0 }
    return (%flat#1, %flat#2)
    ");
}

#[test]
fn reductions_are_vector_code_along_the_dim_of_most_accesses() {
    let runs_along_results = |text: &str| kernels(text)[0].parallel_loop().expect("a loop over results").vector;
    // One row times a matrix: its columns are as contiguous as the row, but the results are too.
    let product = "\
        %w: f32[1024, 512] = input 0
        %x: f32[1024, 1] = input 1
        %m: f32[1024, 512] = map(%w, %x) { mul(a0, a1) }
        %y: f32[1, 512] = sum(%m) dims=[0]
        return %y";
    assert!(runs_along_results(product));
    // The spread of channels: means and results are contiguous along the channels, but there is one for each row.
    let spread = "\
        %x: f32[32, 3055] = input 0
        %mean: f32[32, 1] = input 1
        %d: f32[32, 3055] = map(%x, %mean) { sub(a0, a1) }
        %y: f32[32, 1] = sum(%d) dims=[1]
        return %y";
    assert!(!runs_along_results(spread));
}

#[test]
fn maps_of_transposed_operands_are_tiled() {
    let transposed = |rows: usize, columns: usize| {
        let text = format!(
            "%x: f32[{rows}, {columns}] = input 0
             %t: f32[{columns}, {rows}] = affine(%x) at=[d1, d0]
             %y: f32[{columns}, {rows}] = map(%t) {{ neg(a0) }}
             return %y"
        );
        kernels(&text).swap_remove(0)
    };
    // Tiles cover whole lines of the operand, and several ones if the dim is long. After the loop over them, the rest of the long dim is copied and computed.
    let k = transposed(200, 96);
    assert_eq!(k.parallel_extent(), 96 / 16);
    assert_eq!(loops(&k.parallel_loop().unwrap().body), 3);
    assert_eq!(transposed(48, 96).parallel_extent(), 96 / 16);
    assert_eq!(transposed(528, 1024).parallel_extent(), 1024 / 64);
    // Rows of the result a power of two apart would evict each other from the cache, so that tiles have few of them.
    assert_eq!(transposed(512, 1024).parallel_extent(), 1024 / 16);
    // If tiles do not divide the outer dim, threads share those of the last one; if they divide neither, both loops are serial.
    assert_eq!(transposed(200, 97).parallel_extent(), 200 / 20);
    assert_eq!(transposed(197, 97).parallel_extent(), 1);
    // A copy takes rows in whole blocks of registers, and a second loop has the rest.
    let copy = "%x: bf16[96, 1000] = input 0
             %t: bf16[1000, 96] = affine(%x) at=[d1, d0]
             %y: bf16[1000, 96] = map(%t) { a0 }
             return %y";
    let copy = kernels(copy).swap_remove(0);
    assert_eq!(
        (copy.parallel_loops().count(), copy.parallel_extent()),
        (2, 1000 / 64 + 1)
    );
    // An operand of less than a line is read in the order of the result.
    assert_eq!(transposed(200, 7).parallel_extent(), 7);
}

#[test]
fn a_result_with_permuted_dims_is_computed_with_its_operands() {
    // The transposes cancel out: one contiguous loop.
    let cancels = "\
        %x: f32[40, 96] = input 0
        %t: f32[96, 40] = affine(%x) at=[d1, d0]
        %n: f32[96, 40] = map(%t) { neg(a0) }
        %u: f32[40, 96] = affine(%n) at=[d1, d0]
        %y: f32[40, 96] = map(%u) { a0 }
        return %y";
    let k = kernels(cancels);
    assert_eq!(k.len(), 1);
    assert_eq!(k[0].parallel_extent(), 40 * 96);
    // The loops run in the order of the result, and the operand is transposed.
    let transposes = "\
        %x: f32[40, 96] = input 0
        %n: f32[40, 96] = map(%x) { neg(a0) }
        %u: f32[96, 40] = affine(%n) at=[d1, d0]
        %y: f32[96, 40] = map(%u) { a0 }
        return %y";
    let k = kernels(transposes);
    assert_eq!(k.len(), 1);
    assert_eq!(k[0].buffers.len(), 3, "the operand, its tile and the result");
    // The kernel of a value that something else needs stores it in its own order.
    let both = transposes.replace("return %y", "return (%y, %n)");
    assert_eq!(kernels(&both).len(), 2);
}

/// The buffers of the results, and the number of steps.
fn results_and_steps(t: Tir) -> (Vec<BufferPlace>, usize) {
    let p = lower_tir(t).unwrap_or_else(|e| panic!("{e:?}"));
    let leaves = p.output.iter().flat_map(|o| o.leaves());
    let places = leaves.map(|(b, _)| p.buffers[b.0].place.clone()).collect();
    (places, p.steps.len())
}

#[test]
fn kernels_copy_results_that_are_inputs() {
    let text = "%x: f32[4, 8] = input 0
         %flat: f32[32] = reshape(%x)
         return (%x, %x, %flat)";
    let (places, steps) = results_and_steps(tir(text));
    assert!(places.iter().all(|p| matches!(p, BufferPlace::Output(_))), "{places:?}");
    assert!(steps > 0);
    // The caller of a called graph only reads its results.
    let mut called = tir(text);
    called.is_called = true;
    let (places, steps) = results_and_steps(called);
    assert!(places.iter().all(|p| matches!(p, BufferPlace::Input(0))), "{places:?}");
    assert_eq!(steps, 0);
}

#[test]
fn a_result_does_not_share_the_memory_of_a_buffers_new_value() {
    let text = "%x: f32[4] = input 0
         %y: f32[4] = map(%x) { neg(a0) }
         return (%y, %y, %y)";
    let mut t = tir(text);
    t.mutations = vec![crate::types::Mutation::Buffer("y".into())];
    let numbers: Vec<usize> = results_and_steps(t)
        .0
        .iter()
        .map(|p| match p {
            BufferPlace::Output(n) => *n,
            p => panic!("{p:?}"),
        })
        .collect();
    assert!(numbers[0] != numbers[1] && numbers[1] == numbers[2], "{numbers:?}");
}

/// Integer weights of 64 columns and 128 product indices.
const INTEGER_WEIGHT: &str = "%x: f32[4, 128] = input 0
         %w: i8[64, 128] = constant
         %s: f32[64, 1] = constant\n";

#[test]
fn weights_of_integers_become_constants() {
    let text = format!(
        "{INTEGER_WEIGHT}
         %f: f32[64, 128] = map(%w) {{ f32.cast(a0) }}
         %z: f32[64, 128] = map(%f) {{ sub(a0, f32(3.0)) }}
         %d: f32[64, 128] = map(%z, %s) {{ mul(a0, a1) }}
         %y: f32[4, 64] = matmul(%x, %d) transpose_b=1
         return %y"
    );
    assert!(after("weights", &text).contains("%d: f32[64, 128] = constant"));
}

#[test]
fn weights_that_other_values_read_are_computed() {
    let text = format!(
        "{INTEGER_WEIGHT}
         %d: f32[64, 128] = map(%w) {{ f32.cast(a0) }}
         %y: f32[4, 64] = matmul(%x, %d) transpose_b=1
         return (%y, %d)"
    );
    assert!(after("weights", &text).contains("%d: f32[64, 128] = map(%w)"));
}
