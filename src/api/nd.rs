//! Arrays of the crate `ndarray` as inputs, and views of results.

use super::input::Input;
use super::output::Outputs;
use crate::tensor::{Element, LayoutError, View};
use ndarray::{ArrayBase, ArrayView, ArrayViewD, Data, Dimension};

impl<'a, T: Element, D: Dimension> From<ArrayView<'a, T, D>> for Input<'a> {
    fn from(a: ArrayView<'a, T, D>) -> Input<'a> {
        View::from(a).into()
    }
}

impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> From<&'a ArrayBase<S, D>> for Input<'a> {
    fn from(a: &'a ArrayBase<S, D>) -> Input<'a> {
        a.view().into()
    }
}

impl Outputs {
    /// Tensor `i` of [`Outputs::tensors`] as an array, or an error if `T` is not its element type. Panics if `i` is out of range; see
    /// [`Outputs::get`].
    pub fn array<T: Element>(&self, i: usize) -> Result<ArrayViewD<'_, T>, LayoutError> {
        self[i].array()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Model, Options};
    use ndarray::{Array2, array, s};

    #[test]
    fn arrays_go_in_as_they_are_and_come_out_as_views() {
        let text = "graph main { %x : f32[N, M] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
        let compiled = Model::from_text(text).unwrap().compile(&Options::new()).unwrap();
        let x: Array2<f32> = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        for view in [x.view(), x.t(), x.slice(s![.., ..;2]), x.slice(s![..;-1, 1..])] {
            let out = compiled.run([view.into()]).unwrap();
            assert_eq!(out.array::<f32>(0).unwrap(), view.mapv(|v| -v).into_dyn());
        }
        assert!(compiled.run([(&x).into()]).unwrap().array::<i64>(0).is_err());
    }
}
