//! Locations in the user's Python, from torch's stack traces.

use crate::graph::{Frame, Loc, ModuleFrame};
use crate::tensor::files::parse_json;
use std::sync::Arc;

/// Parses a stack trace, in which the innermost frame is last. Returns the innermost frame.
///
/// ```text
/// File "zoo/nets.py", line 12, in forward
///     return self.net(torch.flatten(x, 1))
///   File "modules/linear.py", line 134, in forward
///     return F.linear(input, self.weight, self.bias)
/// ```
///
/// If a trace is deeper than [`Frame::MAX_DEPTH`], the result has only its outermost frames.
pub(super) fn parse_frames(stack_trace: &str) -> Option<Arc<Frame>> {
    let mut lines = stack_trace.trim().lines().peekable();
    let mut found = None;
    while let Some(line) = lines.next() {
        let Some(loc) = parse_frame_line(line) else { continue };
        let code = lines.next_if(|l| parse_frame_line(l).is_none());
        match Frame::new(loc, code.map(|c| c.trim().into()), found.clone()) {
            Some(f) => found = Some(f),
            None => break,
        }
    }
    found
}

/// The line of the innermost frame outside of torch's own code, or of the innermost frame if there is none.
pub(super) fn user_loc(frame: &Frame) -> Loc {
    let own = frame.chain().find(|f| !is_library(&f.loc.file));
    own.unwrap_or(frame).loc.clone()
}

/// The modules in an `nn_module_stack`: `L__self__,,nets.MLP;L__self__net,net,torch.nn.modules.container.Sequential`.
/// The class may contain commas; the key and the path do not.
pub(super) fn parse_modules(stack: &str) -> Arc<[ModuleFrame]> {
    let frame = |entry: &str| {
        let mut parts = entry.splitn(3, ',');
        let (_, path, class) = (parts.next()?, parts.next()?, parts.next()?);
        Some(ModuleFrame {
            path: path.into(),
            class: class.into(),
        })
    };
    stack.split(';').filter_map(frame).collect()
}

/// The annotations of a node, from a JSON object. Values that are not strings stay JSON.
pub(super) fn parse_annotations(json: &str) -> Vec<(Arc<str>, Arc<str>)> {
    let Ok(serde_json::Value::Object(map)) = parse_json(json.as_bytes()) else {
        return vec![];
    };
    let text = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
    map.iter().map(|(k, v)| (k.as_str().into(), text(v).into())).collect()
}

fn parse_frame_line(line: &str) -> Option<Loc> {
    let rest = line.trim_start().strip_prefix("File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let (number, function) = match rest.split_once(", in ") {
        Some((n, f)) => (n, f),
        None => (rest, ""),
    };
    Some(Loc {
        file: file.into(),
        line: number.trim().parse().ok()?,
        function: function.trim().into(),
    })
}

/// Whether a file is torch's own: its full path, or `modules/linear.py` in a trace whose paths are shortened to two
/// parts.
fn is_library(file: &str) -> bool {
    const MODULES: &[&str] = &[
        "activation",
        "adaptive",
        "batchnorm",
        "container",
        "conv",
        "distance",
        "dropout",
        "flatten",
        "fold",
        "instancenorm",
        "linear",
        "loss",
        "module",
        "normalization",
        "padding",
        "pixelshuffle",
        "pooling",
        "rnn",
        "sparse",
        "transformer",
        "upsampling",
    ];
    let file = file.replace('\\', "/");
    let short = file.strip_prefix("modules/").and_then(|f| f.strip_suffix(".py"));
    file.contains("/torch/")
        || file.starts_with("torch/")
        || file == "nn/functional.py"
        || file.starts_with('<')
        || short.is_some_and(|m| MODULES.contains(&m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_frame_is_found() {
        let trace = "File \"zoo/nets.py\", line 12, in forward\n    return self.net(x)\n  File \"modules/linear.py\", line 134, \
                     in forward\n    return F.linear(input)";
        let innermost = parse_frames(trace).unwrap();
        let codes: Vec<_> = innermost.chain().filter_map(|f| f.code.as_deref()).collect();
        assert_eq!(codes, ["return F.linear(input)", "return self.net(x)"]);
        let loc = user_loc(&innermost);
        assert_eq!((&*loc.file, loc.line, &*loc.function), ("zoo/nets.py", 12, "forward"));
        let only = "  File \"/usr/lib/python3/site-packages/torch/nn/functional.py\", line 7, in f";
        let only = parse_frames(only).unwrap();
        assert_eq!((user_loc(&only).line, &only.code), (7, &None));
        assert_eq!(parse_frames("nothing here"), None);
        let deep = "File \"a.py\", line 1, in f\n".repeat(5000);
        assert_eq!(parse_frames(&deep).unwrap().chain().count(), Frame::MAX_DEPTH);
    }

    #[test]
    fn module_stacks_are_taken_apart() {
        let stack = "L__self__,,nets.MLP;L__self__net,net,pkg.Pair[int, str];odd";
        let found = parse_modules(stack);
        let parts: Vec<_> = found.iter().map(|m| (&*m.path, &*m.class)).collect();
        assert_eq!(parts, [("", "nets.MLP"), ("net", "pkg.Pair[int, str]")]);
        assert!(parse_modules("").is_empty());
        let custom = parse_annotations(r#"{"stage": "one", "depth": 2}"#);
        assert_eq!(custom, [("stage".into(), "one".into()), ("depth".into(), "2".into())]);
        assert!(parse_annotations("[1]").is_empty() && parse_annotations("{").is_empty());
    }
}
