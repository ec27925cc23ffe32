//! Everything that a call runs follows the target of its options.

use super::{Model, Options};
use crate::op::custom::{CustomOp, register};
use crate::op::{Call, OpResult, Sizes};
use crate::target::{Target, thread_target};
use crate::tensor::Tensor;
use crate::types::{TensorType, Type, Val};

/// Returns the number of features that loops may use where the op runs.
struct FeatureCount;

impl CustomOp for FeatureCount {
    fn schema(&self) -> String {
        "fxc_target_tests::feature_count(Tensor x) -> Tensor".into()
    }

    fn infer(&self, call: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
        Ok(Val::Leaf(call.leaf("x")?.clone()))
    }

    fn run(&self, call: &Call<Tensor>) -> OpResult<Val<Tensor>> {
        let count = thread_target().features().count() as f32;
        let x = call.leaf("x")?;
        Ok(Val::Leaf(Tensor::from_slice(x.shape(), &vec![count; x.numel()])))
    }
}

/// The first op is a step of the compiled program. The last one is interpreted, because its size depends on a value.
const MODEL: &str = "graph main {
    %x : f32[2] = placeholder x
    %compiled = call_function fxc_target_tests.feature_count(%x)
    %places = call_function torch.nonzero(%x)
    %floats = call_method to(%places, torch.float32)
    %interpreted = call_function fxc_target_tests.feature_count(%floats)
    output (%compiled, %interpreted)
}";

#[test]
fn routines_and_interpreted_parts_use_the_features_of_the_target() {
    // Another test of this process may have registered it.
    let _ = register(FeatureCount);
    let model = Model::from_text(MODEL).unwrap();
    for target in [Target::parse("x86-64-v2").unwrap_or_default(), Target::native()] {
        let compiled = model.compile(&Options::new().target(target)).unwrap();
        let x = Tensor::from_slice(&[2], &[1.0f32, 1.0]);
        let out = compiled.run([x.into()]).unwrap();
        let count = target.features().count() as f32;
        assert_eq!(out[0].as_slice::<f32>(), [count; 2], "{target:?}");
        assert_eq!(out[1].as_slice::<f32>(), [count; 2], "{target:?}");
    }
}
