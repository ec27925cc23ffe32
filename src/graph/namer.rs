//! torch.fx's rules for node names (`torch/fx/graph.py`, `_Namespace.create_name`).

use std::collections::{HashMap, HashSet};

/// The names of one graph: those in use, and the last number used for each base.
#[derive(Clone, Debug, Default)]
pub struct Namer {
    used: HashSet<String>,
    counts: HashMap<String, u64>,
}

impl Namer {
    /// Creates a fresh name from `candidate`: in snake case, legal in Python and unused, such as `add`, `add_1`,
    /// `add_2`.
    pub fn create(&mut self, candidate: &str) -> String {
        let clean = sanitise_name(candidate);
        let (base, num) = split_number(&clean);
        let (base, mut num) = (base.to_string(), num);
        let mut name = clean.clone();
        if num.is_none() || self.used.contains(&name) {
            let mut n = self.counts.get(&base).copied().unwrap_or(0);
            if is_illegal(&name) {
                n += 1;
                name = format!("{base}_{n}");
            }
            num = Some(n);
        }
        let mut n = num.unwrap_or(0);
        while self.used.contains(&name) {
            n += 1;
            name = format!("{base}_{n}");
        }
        self.used.insert(name.clone());
        self.counts.insert(base, n);
        name
    }

    /// Reserves `name` unchanged, as a file gives it. Returns whether it was free.
    pub fn reserve(&mut self, name: &str) -> bool {
        let fresh = self.used.insert(name.to_string());
        let (base, num) = split_number(name);
        let slot = self.counts.entry(base.to_string()).or_insert(0);
        *slot = (*slot).max(num.unwrap_or(0));
        fresh
    }
}

/// The name that a target suggests, in snake case: for a function, the last part of its path (with the overload of an
/// ATen op: `add_tensor`); for a module or attribute, the whole path (`layer1_0_conv1`).
pub fn candidate_name(target: &str, is_function: bool) -> String {
    let last = if is_function {
        match target
            .strip_prefix("torch.ops.")
            .or(target.strip_prefix("aten.").map(|_| target))
        {
            // The `__name__` of `torch.ops.aten.add.Tensor` is `add.Tensor`.
            Some(op) => op.split_once('.').map_or(op, |(_, rest)| rest),
            None => target.rsplit('.').next().unwrap_or(target),
        }
    } else {
        target
    };
    let last = match last.strip_prefix("__").and_then(|s| s.strip_suffix("__")) {
        Some(inner) if !inner.is_empty() => inner,
        _ => last,
    };
    snake_case(last)
}

/// `convBN` is `conv_bn`, `LSTM` is `lstm`, `getHTTPResponse` is `get_httpresponse`.
pub fn snake_case(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 4);
    let mut before = ' ';
    for c in s.chars() {
        if before.is_ascii_lowercase() && c.is_ascii_uppercase() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
        before = c;
    }
    out
}

fn sanitise_name(candidate: &str) -> String {
    let mut out = String::with_capacity(candidate.len());
    let mut gap = false;
    for c in candidate.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
            gap = false;
        } else if !gap {
            out.push('_');
            gap = true;
        }
    }
    if out.is_empty() {
        return "_unnamed".into();
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

/// Splits off a number: `add_12` is `("add", Some(12))`. This is the regular expression `^([a-zA-Z_]\w*?)(?:_(\d+))?$`.
fn split_number(name: &str) -> (&str, Option<u64>) {
    match name.rsplit_once('_') {
        Some((base, digits))
            if !base.is_empty() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (base, digits.parse().ok())
        }
        _ => (name, None),
    }
}

/// Whether generated Python cannot use a name for a value: keywords, builtins, and names that generated code always
/// defines. torch's list lacks `None`.
pub fn is_illegal(name: &str) -> bool {
    const NAMES: &str = " False None True and as assert async await break class continue def del elif else except finally \
        for from global if import in is lambda nonlocal not or pass raise return try while with yield \
        inf nan NoneType torch device fx_pytree pytree \
        ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError \
        BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError \
        ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception \
        ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError \
        ImportError ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError \
        KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplemented \
        NotImplementedError OSError OverflowError PendingDeprecationWarning PermissionError ProcessLookupError \
        RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration \
        SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError \
        UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning UserWarning ValueError \
        Warning ZeroDivisionError __build_class__ __debug__ __doc__ __import__ __loader__ __name__ __package__ __spec__ \
        abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex \
        copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr \
        globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max \
        memoryview min next object oct open ord pow print property quit range repr reversed round set setattr slice \
        sorted staticmethod str sum super tuple type vars zip ";
    !name.is_empty() && !name.contains(' ') && NAMES.contains(&format!(" {name} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_torch_does() {
        let mut n = Namer::default();
        for (candidate, want) in [
            ("add", "add"),
            ("add", "add_1"),
            ("add_1", "add_2"),
            ("sum", "sum_1"),
            ("sum", "sum_2"),
            ("add_", "add_"),
            ("add_", "add__1"),
            ("x_01", "x_01"),
            ("x_01", "x_2"),
            ("class", "class_1"),
            ("self", "self"),
            ("a..b", "a_b"),
            ("é", "_"),
            ("", "_unnamed"),
            ("1x", "_1x"),
            ("0", "_0"),
            ("None", "None_1"),
        ] {
            assert_eq!(n.create(candidate), want, "{candidate:?}");
        }
    }

    #[test]
    fn targets_suggest_names_as_torch_does() {
        for (target, function, want) in [
            ("torch.ops.aten.add.Tensor", true, "add.tensor"),
            ("torch.nn.functional.relu", true, "relu"),
            ("operator.add", true, "add"),
            ("layer1.0.convBN", false, "layer1.0.conv_bn"),
            ("__call__", false, "call"),
            ("LSTM", false, "lstm"),
            ("getHTTPResponse", false, "get_httpresponse"),
        ] {
            assert_eq!(candidate_name(target, function), want);
        }
    }
}
