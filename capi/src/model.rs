//! Models: files, texts, inputs and results.

use crate::compiled::fxc_compiled;
use crate::options::{fxc_options, options_or_default};
use crate::status::{
    Failure, borrow, borrow_mut, borrow_slice, borrow_text, c_text, free, fxc_status, give, guard, guard_value,
};
use crate::tensor::{FXC_UNKNOWN, dtype_number, fxc_dtype};
use fxc_rust::types::Val;
use fxc_rust::{Model, ValueInfo};
use std::ffi::{CString, c_char};

/// A model.
pub struct fxc_model {
    model: Model,
    inputs: Vec<Described>,
    /// The results, determined on first use, because that checks the graph.
    outputs: Option<Vec<Described>>,
}

struct Described {
    name: CString,
    ty: CString,
    dtype: fxc_dtype,
    /// -1 for a symbolic or unknown size; `None` if the value is not a tensor or its rank is unknown.
    shape: Option<Vec<i64>>,
}

/// An input or a result of a model. The model owns the texts and the shape, which are valid until it is freed.
#[repr(C)]
pub struct fxc_value_info {
    /// Its name.
    pub name: *const c_char,
    /// Its type in FXIR's notation: "f32[N, 3]"; empty if it is unknown.
    pub type_text: *const c_char,
    /// Element type; FXC_UNKNOWN if it is unknown, or not a tensor.
    pub dtype: fxc_dtype,
    /// The number of dimensions; -1 if it is unknown, or not a tensor.
    pub rank: i64,
    /// The sizes; -1 for a symbolic or unknown size.
    pub shape: *const i64,
}

impl Described {
    fn new(v: &ValueInfo) -> Described {
        let tensor = match &v.ty {
            Some(Val::Leaf(t)) => Some(t),
            _ => None,
        };
        let sizes = tensor.and_then(|t| t.shape.as_ref());
        Described {
            name: c_text(&v.name),
            ty: c_text(&v.ty.as_ref().map(|t| t.to_string()).unwrap_or_default()),
            dtype: tensor.map_or(FXC_UNKNOWN, |t| dtype_number(t.dtype)),
            shape: sizes.map(|s| s.iter().map(|d| d.as_const().unwrap_or(-1)).collect()),
        }
    }

    fn as_info(&self) -> fxc_value_info {
        let shape = self.shape.as_deref();
        fxc_value_info {
            name: self.name.as_ptr(),
            type_text: self.ty.as_ptr(),
            dtype: self.dtype,
            rank: shape.map_or(-1, |s| s.len() as i64),
            shape: shape.unwrap_or_default().as_ptr(),
        }
    }
}

fn describe_all(values: &[ValueInfo]) -> Vec<Described> {
    values.iter().map(Described::new).collect()
}

impl From<Model> for fxc_model {
    fn from(model: Model) -> fxc_model {
        fxc_model {
            inputs: describe_all(&model.inputs()),
            outputs: None,
            model,
        }
    }
}

impl fxc_model {
    fn find_outputs(&mut self) -> Result<&[Described], Failure> {
        if self.outputs.is_none() {
            self.outputs = Some(describe_all(&self.model.outputs()?));
        }
        Ok(self.outputs.as_deref().unwrap_or_default())
    }
}

fn nth(values: &[Described], index: usize) -> Result<fxc_value_info, Failure> {
    let info = values.get(index).map(Described::as_info);
    info.ok_or_else(|| {
        Failure::Argument(format!(
            "index {index} is out of range: there are {} values",
            values.len()
        ))
    })
}

/// Reads a model from a file: a .pt2 archive of torch.export, FXIR, or a graph printed by torch. Weights are mapped,
/// not read.
///
/// # Safety
/// `path` is a NUL-terminated text; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_open(path: *const c_char, out: *mut *mut fxc_model) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Model::open(borrow_text(path, "the path")?)?.into()) }
    })
}

/// Reads a model from a file as `fxc_model_open` does. Of the options, `fxc_options_set_allow_code`, `fxc_options_set_cache`,
/// `fxc_options_allow_path` and the limits apply.
///
/// # Safety
/// `path` is a NUL-terminated text; `options` is NULL for the default options, or options; `out` is valid for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_open_with(
    path: *const c_char,
    options: *const fxc_options,
    out: *mut *mut fxc_model,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (path, options) = unsafe { (borrow_text(path, "the path")?, options_or_default(options)) };
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Model::open_with(path, &options)?.into()) }
    })
}

/// Writes the model with its code to a file (`model.fxc`), which every function that opens a model accepts. The
/// options determine the sizes and processors to compile for.
///
/// # Safety
/// `model` is a model; `path` is a NUL-terminated text; `options` is NULL for the default options, or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_save_compiled(
    model: *const fxc_model,
    path: *const c_char,
    options: *const fxc_options,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (model, path) = unsafe { (borrow(model, "the model")?, borrow_text(path, "the path")?) };
        // SAFETY: guaranteed by the caller.
        let options = unsafe { options_or_default(options) };
        Ok(model.model.save_compiled(path, &options)?)
    })
}

/// Reads a model from a text of `len` bytes: FXIR, or a graph printed by torch.
///
/// # Safety
/// `text` points to `len` bytes; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_from_text(text: *const c_char, len: usize, out: *mut *mut fxc_model) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { borrow_slice(text.cast::<u8>(), len, "the text") }?;
        let text = std::str::from_utf8(bytes).map_err(|_| Failure::Argument("the text is not UTF-8".into()))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Model::from_text(text)?.into()) }
    })
}

/// Reads a model from a text as `fxc_model_from_text` does. Of the options, `fxc_options_allow_path` and the limits
/// apply.
///
/// # Safety
/// `text` points to `len` bytes; `options` is NULL for the default options, or options; `out` is valid for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_from_text_with(
    text: *const c_char,
    len: usize,
    options: *const fxc_options,
    out: *mut *mut fxc_model,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (bytes, options) = unsafe {
            (
                borrow_slice(text.cast::<u8>(), len, "the text")?,
                options_or_default(options),
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|_| Failure::Argument("the text is not UTF-8".into()))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Model::from_text_with(text, &options)?.into()) }
    })
}

/// Reads a model from the content of a file: a .pt2 archive, FXIR, or a graph printed by torch. The bytes are only needed during the call.
/// Compiled models are only read from files. Of the options, `fxc_options_allow_path` and the limits apply.
///
/// # Safety
/// `bytes` points to `len` bytes; `options` is NULL for the default options, or options; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_from_bytes(
    bytes: *const u8,
    len: usize,
    options: *const fxc_options,
    out: *mut *mut fxc_model,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (bytes, options) = unsafe { (borrow_slice(bytes, len, "the bytes")?, options_or_default(options)) };
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Model::from_bytes_with(bytes, &options)?.into()) }
    })
}

/// The number of inputs of the model.
///
/// # Safety
/// `model` is a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_input_count(model: *const fxc_model) -> usize {
    // SAFETY: guaranteed by the caller.
    guard_value(0, || Ok(unsafe { borrow(model, "the model") }?.inputs.len()))
}

/// Input `index` of the model.
///
/// # Safety
/// `model` is a model; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_input(
    model: *const fxc_model,
    index: usize,
    out: *mut fxc_value_info,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (model, out) = unsafe {
            (
                borrow(model, "the model")?,
                borrow_mut(out, "the pointer for the result")?,
            )
        };
        *out = nth(&model.inputs, index)?;
        Ok(())
    })
}

/// The number of tensors, numbers and texts in the model's result; 0 and a last error if the graph has errors.
///
/// # Safety
/// `model` is a model that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_output_count(model: *mut fxc_model) -> usize {
    guard_value(0, || {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { borrow_mut(model, "the model") }?.find_outputs()?.len())
    })
}

/// Item `index` of the model's result.
///
/// # Safety
/// `model` is a model that no other thread uses during the call; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_output(model: *mut fxc_model, index: usize, out: *mut fxc_value_info) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (model, out) = unsafe {
            (
                borrow_mut(model, "the model")?,
                borrow_mut(out, "the pointer for the result")?,
            )
        };
        *out = nth(model.find_outputs()?, index)?;
        Ok(())
    })
}

/// Compiles the model; `options` may be NULL. The model may be freed afterwards.
///
/// # Safety
/// `model` is a model; `options` are options or NULL; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_compile(
    model: *const fxc_model,
    options: *const fxc_options,
    out: *mut *mut fxc_compiled,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (model, options) = unsafe { (borrow(model, "the model")?, options_or_default(options)) };
        let compiled = model.model.compile(&options)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, fxc_compiled(compiled)) }
    })
}

/// Frees a model.
///
/// # Safety
/// `model` is NULL, or a model that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_model_free(model: *mut fxc_model) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(model) }
}
