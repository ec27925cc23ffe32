//! The status of calls, and the last error of each thread.

use fxc_rust::Error;
use fxc_rust::diag::Code;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The status of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fxc_status {
    /// Success.
    FXC_OK = 0,
    /// The model, the inputs or a file are invalid: see fxc_last_error.
    FXC_ERROR = 1,
    /// An invalid argument: a pointer must not be NULL, a text is not UTF-8, or a number is out of range.
    FXC_INVALID_ARGUMENT = 2,
    /// A cancel token cancelled the call.
    FXC_CANCELLED = 3,
    /// An internal error of fxc. Do not use the objects of the call any more.
    FXC_PANIC = 4,
}

/// The reason why a function failed.
pub(crate) enum Failure {
    Fxc(Box<Error>),
    Argument(String),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Fxc(Box::new(e))
    }
}

impl From<fxc_rust::LayoutError> for Failure {
    fn from(e: fxc_rust::LayoutError) -> Failure {
        Failure::Argument(e.to_string())
    }
}

/// The texts of an error, as C strings.
struct LastError {
    line: CString,
    report: CString,
    code: CString,
}

thread_local! {
    static LAST_ERROR: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// A text without its NUL bytes, at which a C string would end.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

fn set_last_error(line: &str, report: &str, code: &str) {
    let error = LastError {
        line: c_text(line),
        report: c_text(report),
        code: c_text(code),
    };
    LAST_ERROR.with(|e| *e.borrow_mut() = Some(error));
}

fn report_failure(failure: Failure) -> fxc_status {
    match failure {
        Failure::Argument(message) => {
            set_last_error(&message, &message, "");
            fxc_status::FXC_INVALID_ARGUMENT
        }
        Failure::Fxc(e) => {
            let code = e.code();
            set_last_error(&e.to_string(), &format!("{e:#}"), code.map_or("", Code::name));
            match code {
                Some(Code::E0512) => fxc_status::FXC_CANCELLED,
                _ => fxc_status::FXC_ERROR,
            }
        }
    }
}

fn report_panic(panic: Box<dyn Any + Send>) -> fxc_status {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let message = format!("internal error in fxc, please report it: {}", text.unwrap_or("panic"));
    set_last_error(&message, &message, "");
    fxc_status::FXC_PANIC
}

/// Runs the body of a function. An error or panic becomes the thread's last error.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> fxc_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => fxc_status::FXC_OK,
        Ok(Err(failure)) => report_failure(failure),
        Err(panic) => report_panic(panic),
    }
}

/// [`guard`] for a function that returns a value; `otherwise` if it fails.
pub(crate) fn guard_value<T>(otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    let mut value = otherwise;
    guard(|| work().map(|v| value = v));
    value
}

/// The object that a pointer refers to.
///
/// # Safety
/// The pointer is NULL or valid for `'a`.
pub(crate) unsafe fn borrow<'a, T>(p: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { p.as_ref() }.ok_or_else(|| Failure::Argument(format!("{name} is NULL")))
}

/// [`borrow`] for writing.
///
/// # Safety
/// The pointer is NULL or valid for `'a`, and nothing else uses the object during that time.
pub(crate) unsafe fn borrow_mut<'a, T>(p: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { p.as_mut() }.ok_or_else(|| Failure::Argument(format!("{name} is NULL")))
}

/// The elements of a C array, which may be NULL if it has none.
///
/// # Safety
/// `p` points to `len` elements that are valid for `'a`, or `len` is zero or `p` NULL.
pub(crate) unsafe fn borrow_slice<'a, T>(p: *const T, len: usize, name: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if p.is_null() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::Argument(format!("{name} is NULL, or has too many elements")));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(p, len) })
}

/// A C string.
///
/// # Safety
/// `p` is NULL or a NUL-terminated text that is valid for `'a`.
pub(crate) unsafe fn borrow_text<'a>(p: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if p.is_null() {
        return Err(Failure::Argument(format!("{name} is NULL")));
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str()
        .map_err(|_| Failure::Argument(format!("{name} is not UTF-8")))
}

/// Passes ownership of an object to the caller.
///
/// # Safety
/// `out` is NULL or valid for writing.
pub(crate) unsafe fn give<T>(out: *mut *mut T, value: T) -> Result<(), Failure> {
    // SAFETY: guaranteed by the caller.
    let out = unsafe { borrow_mut(out, "the pointer for the result") }?;
    *out = Box::into_raw(Box::new(value));
    Ok(())
}

/// Takes back ownership of an object and drops it.
///
/// # Safety
/// `p` is NULL, or an object from [`give`] that is no longer used.
pub(crate) unsafe fn free<T>(p: *mut T) {
    if !p.is_null() {
        // SAFETY: guaranteed by the caller.
        let object = unsafe { Box::from_raw(p) };
        guard(|| {
            drop(object);
            Ok(())
        });
    }
}

fn last_error_text(text: impl Fn(&LastError) -> &CStr) -> *const c_char {
    LAST_ERROR.with(|e| e.borrow().as_ref().map_or(ptr::null(), |e| text(e).as_ptr()))
}

/// The last error of the calling thread in one line; NULL if there was none. The text is valid until a function of
/// this thread fails again.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_last_error() -> *const c_char {
    last_error_text(|e| &e.line)
}

/// The last error of the calling thread as the command line prints it, with snippets, causes and help; NULL if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_last_error_report() -> *const c_char {
    last_error_text(|e| &e.report)
}

/// The code of the last error of the calling thread, such as "E0504" (`fxc explain E0504` explains it); empty if the
/// error has no code, NULL if there was no error.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_last_error_code() -> *const c_char {
    last_error_text(|e| &e.code)
}

/// The version of fxc.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
