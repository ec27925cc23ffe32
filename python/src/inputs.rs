//! Arguments as inputs of the library.

use crate::args::{Arguments, Signature};
use crate::array::Array;
use fxc::types::Val;
use fxc::{Error, Input, Tensor};

/// The inputs of a call.
pub(crate) fn of_call(arguments: &Arguments, signature: &Signature) -> Result<Vec<Input>, Error> {
    let all = arguments.slots.iter().all(Option::is_some);
    let given = arguments.slots.iter().zip(&signature.inputs);
    let given = given.filter_map(|(slot, name)| {
        let value = to_value(slot.as_ref()?, &arguments.arrays);
        Some(match all {
            true => Input::new(value),
            false => Input::named(name.clone(), value),
        })
    });
    Ok(given.collect())
}

/// A value with the tensors of its arrays.
pub(crate) fn to_value(value: &Val<usize>, arrays: &[Array]) -> Val<Tensor> {
    value.map(|&i| to_tensor(&arrays[i]))
}

/// A tensor with the elements of an array, copied.
pub(crate) fn to_tensor(array: &Array) -> Tensor {
    let mut t = Tensor::zeros(array.dtype, &array.shape);
    let size = array.dtype.size();
    let strides: Vec<isize> = match &array.strides {
        Some(s) => s.to_vec(),
        None => t.strides().iter().map(|&s| s as isize).collect(),
    };
    if t.numel() == 0 {
        return t;
    }
    let mut index = vec![0usize; array.shape.len()];
    for to in t.bytes_mut().chunks_exact_mut(size) {
        let at: isize = index.iter().zip(&strides).map(|(&i, &s)| i as isize * s).sum();
        // SAFETY: the index is within the shape, whose elements lie in the array's memory, which its owner keeps.
        let from = unsafe { std::slice::from_raw_parts(array.data.offset(at * size as isize), size) };
        to.copy_from_slice(from);
        for d in (0..index.len()).rev() {
            index[d] += 1;
            if index[d] < array.shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    t
}
