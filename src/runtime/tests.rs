//! Programs lowered from tensor IR written as text, run.

use super::{Executable, ExecutableOptions, RoutineFn, Routines, Shared};
use crate::codegen::{self, Jit};
use crate::diag::Code;
use crate::lower::ir::Tir;
use crate::lower::lower_tir;
use crate::math;
use crate::parallel::{CancelToken, Pool};
use crate::program::Program;
use crate::target::Target;
use crate::tensor::Tensor;
use crate::types::{Mutation, Val};
use std::sync::Arc;

struct NoRoutines;

impl Routines for NoRoutines {
    fn find(&self, _: &str) -> Option<RoutineFn> {
        None
    }
}

fn options(threads: usize) -> ExecutableOptions {
    ExecutableOptions {
        pool: Arc::new(Pool::new(threads)),
        library: Arc::new(math::native_library()),
        compiler: Arc::new(Jit::new(codegen::CodegenOptions::default())),
        routines: Arc::new(NoRoutines),
        shared: Arc::new(Shared::default()),
        cancel: CancelToken::new(),
        target: Target::native(),
    }
}

fn program(text: &str) -> Program {
    let tir = Tir::parse(text).unwrap_or_else(|e| panic!("{e}"));
    lower_tir(tir).unwrap_or_else(|e| panic!("{e:?}"))
}

fn executable(program: Program, options: &ExecutableOptions) -> Executable {
    Executable::new(program, options).unwrap_or_else(|d| panic!("{}", d.title))
}

fn run(e: &mut Executable, inputs: &[Tensor]) -> Vec<Tensor> {
    let result = e.run(inputs).unwrap_or_else(|d| panic!("{}", d.title));
    result.leaves().into_iter().cloned().collect()
}

fn vector(data: &[f32]) -> Tensor {
    Tensor::from_slice(&[data.len()], data)
}

const DOUBLED: &str = "\
%x: f32[3] = input 0
%two: f32[3] = map(%x) { add(a0, a0) }
%sum: f32[1] = sum(%two) dims=[0]
return (%two, %sum)
";

#[test]
fn steps_run_in_order() {
    let mut e = executable(program(DOUBLED), &options(1));
    let out = run(&mut e, &[vector(&[1.0, 2.0, 4.0])]);
    assert_eq!(out[0].as_slice::<f32>(), [2.0, 4.0, 8.0]);
    assert_eq!(out[1].as_slice::<f32>(), [14.0]);
}

#[test]
fn inputs_are_checked_before_anything_runs() {
    let mut e = executable(program(DOUBLED), &options(1));
    let mut code = |inputs: &[Tensor]| e.run(inputs).err().map(|d| d.code);
    assert_eq!(code(&[]), Some(Code::E0501));
    assert_eq!(code(&[vector(&[1.0, 2.0])]), Some(Code::E0503));
    assert_eq!(code(&[Tensor::from_slice(&[3], &[1i64, 2, 3])]), Some(Code::E0503));
    assert_eq!(code(&[vector(&[1.0, 2.0, 3.0])]), None);
}

#[test]
fn results_that_are_held_stay_as_they_are_and_others_give_back_their_memory() {
    let mut e = executable(program(DOUBLED), &options(1));
    let held = run(&mut e, &[vector(&[1.0, 1.0, 1.0])]);
    let next = run(&mut e, &[vector(&[5.0, 5.0, 5.0])]);
    assert_eq!(held[0].as_slice::<f32>(), [2.0; 3]);
    let place = held[0].as_slice::<f32>().as_ptr();
    assert_ne!(place, next[0].as_slice::<f32>().as_ptr());
    drop(held);
    let third = run(&mut e, &[vector(&[0.0; 3])]);
    assert_eq!(place, third[0].as_slice::<f32>().as_ptr());
    assert_eq!(next[0].as_slice::<f32>(), [10.0; 3]);
}

#[test]
fn buffers_keep_their_values_from_run_to_run() {
    let mut p = program(
        "%total: f32[2] = input 0
         %x: f32[2] = input 1
         %new: f32[2] = map(%total, %x) { add(a0, a1) }
         %y: f32[2] = map(%new) { mul(a0, a0) }
         return (%new, %y)",
    );
    p.inputs[0].state = Some(vector(&[0.0, 1.0]));
    let path = p.inputs[0].name.clone();
    p.mutations = vec![Mutation::Buffer(path.clone())];
    let mut e = executable(p, &options(1));
    let x = [vector(&[1.0, 1.0])];
    assert_eq!(run(&mut e, &x)[1].as_slice::<f32>(), [1.0, 4.0]);
    assert_eq!(run(&mut e, &x)[1].as_slice::<f32>(), [4.0, 9.0]);
    assert_eq!(e.state()[&path].as_slice::<f32>(), [2.0, 3.0]);
    // A value of another type is left out.
    e.set_state(&path, &vector(&[0.0; 5]));
    e.set_state(&path, &vector(&[7.0, 7.0]));
    assert_eq!(run(&mut e, &x)[1].as_slice::<f32>(), [64.0, 64.0]);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let text = "%x: f32[64, 300] = input 0
         %max: f32[64, 1] = max(%x) dims=[1]
         %exp: f32[64, 300] = map(%x, %max) { exp(sub(a0, a1)) }
         %sum: f32[64, 1] = sum(%exp) dims=[1]
         %y: f32[64, 300] = map(%exp, %sum) { div(a0, a1) }
         return %y";
    let data: Vec<f32> = (0..64 * 300).map(|i| ((i * 37) % 101) as f32 / 10.0).collect();
    let x = [Tensor::from_slice(&[64, 300], &data)];
    let on = |threads| run(&mut executable(program(text), &options(threads)), &x).remove(0);
    let one = on(1);
    assert!(one.bit_eq(&on(2)) && one.bit_eq(&on(3)));
}

#[test]
fn executables_share_packed_weights() {
    let text = "%x: f32[4, 64] = input 0
         %w: f32[64, 64] = constant
         %y: f32[4, 64] = matmul(%x, %w)
         return %y";
    let p = program(text);
    let options = options(1);
    let (a, b) = (executable(p.clone(), &options), executable(p, &options));
    assert!(!a.packed_constants().is_empty());
    assert!(
        a.packed_constants()
            .iter()
            .zip(b.packed_constants())
            .all(|(a, b)| Arc::ptr_eq(&a.bytes, &b.bytes))
    );
}

#[test]
fn a_profile_has_a_row_for_each_step() {
    let mut e = executable(program(DOUBLED), &options(1));
    e.start_profile();
    for _ in 0..3 {
        run(&mut e, &[vector(&[1.0, 2.0, 3.0])]);
    }
    let profile = e.profile();
    assert_eq!(profile.rows.len(), e.program().steps.len());
    assert!(profile.rows.iter().all(|r| 3 * r.min <= r.time && !r.name.is_empty()));
}

#[test]
fn what_a_called_graph_hands_through_is_the_input_itself() {
    let mut tir = Tir::parse("%x: f32[2] = input 0\nreturn %x").unwrap_or_else(|e| panic!("{e}"));
    tir.is_called = true;
    let program = lower_tir(tir).unwrap_or_else(|e| panic!("{e:?}"));
    let mut e = executable(program, &options(1));
    let x = vector(&[1.0, -0.0]);
    let Val::Leaf(y) = e
        .run(std::slice::from_ref(&x))
        .unwrap_or_else(|d| panic!("{}", d.title))
    else {
        panic!("one tensor");
    };
    assert_eq!(x.as_slice::<f32>().as_ptr(), y.as_slice::<f32>().as_ptr());
}
