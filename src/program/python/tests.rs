use super::*;
use crate::program::Buffer;

#[test]
fn places_of_names_that_hold_the_conjunction() {
    let loc = |line| crate::source::Loc {
        file: "m.py".into(),
        line,
        function: "forward".into(),
    };
    let p = Program {
        places: std::sync::Arc::new([("logical_and_1".into(), loc(3)), ("relu".into(), loc(4))].into()),
        ..Program::default()
    };
    assert_eq!(
        p.places_of("logical_and_1_and_relu [128 bits]"),
        "m.py:3 in forward, m.py:4 in forward"
    );
    assert_eq!(p.places_of("other_and_relu"), "m.py:4 in forward");
    assert_eq!(p.places_of("other"), "");
}

#[test]
fn buffers_steps_and_results() {
    let buffer = |name: &str, shape: &[usize], place| Buffer {
        name: name.into(),
        dtype: DType::F32,
        shape: shape.to_vec(),
        place,
    };
    let whole = |b: usize, shape: &[usize]| BufferOperand {
        buffer: BufferId(b),
        offset: 0,
        shape: shape.to_vec(),
        strides: crate::tensor::contiguous_strides(shape)
            .into_iter()
            .map(|s| s as i64)
            .collect(),
    };
    let weight = Tensor::from_slice::<f32>(&[3, 4], &[0.0; 12]);
    let input = crate::program::ProgramInput {
        name: "x".into(),
        ty: Some((DType::F32, vec![2, 3])),
        state: None,
    };
    let product = Contract::MatMul(
        MatMul::new(DType::F32, 2, 4, 3),
        vec![whole(0, &[2, 3]), whole(1, &[3, 4])],
    );
    let p = Program {
        buffers: vec![
            buffer("x", &[2, 3], BufferPlace::Input(0)),
            buffer("w", &[3, 4], BufferPlace::Constant(weight)),
            buffer("y", &[2, 4], BufferPlace::Output(0)),
        ],
        steps: vec![Step::Contract {
            contract: product,
            out: BufferId(2),
            tail: None,
        }],
        inputs: vec![input],
        output: Some(Val::List(vec![Val::Leaf((BufferId(2), vec![2, 4]))])),
        ..Program::default()
    };
    let want = "def run(inputs, constants):
    # inputs: x
    b0 = flat(inputs[0], np.float32)  # x f32[2, 3]
    b1 = flat(constants[\"b1\"], np.float32)  # w f32[3, 4]
    b2 = np.zeros(8, np.float32)  # y f32[2, 4]
    matmul(view(b2, 0, [2, 4], [4, 1]), view(b0, 0, [2, 3], [3, 1]), view(b1, 0, [3, 4], [4, 1]), None)
    return [b2.reshape([2, 4])]
";
    assert_eq!(print_run(&p, &kernel_names(&p)), want);
    let names: Vec<String> = named_constants(&p).into_iter().map(|c| c.0).collect();
    assert_eq!(names, ["b1"]);
}
