//! The table of codes: every error and lint that fxc can report, one row for each.
//!
//! The explanation of a code is `explain/CODE.md` in this directory; the file named after the code in `tests/ui/`
//! demonstrates it. Ranges: E00 text, E01 graph, E02 ops and arguments, E03 types and sizes, E04 archives and weights,
//! E05 running, E06 compiling, E07 files, E08 rewrite rules; L0 lints.

use super::Severity;
use std::fmt;

macro_rules! codes {
    ($($name:ident $severity:ident $title:literal;)*) => {
        /// A kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each has a title below, and a page")]
        #[non_exhaustive]
        pub enum Code { $($name),* }

        impl Code {
            /// Every code, in the table's order.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The code's name: `E0201`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => stringify!($name)),* }
            }

            /// A short description of the code.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title),* }
            }

            /// The default severity.
            pub fn severity(self) -> Severity {
                match self { $(Code::$name => Severity::$severity),* }
            }

            /// The page that `fxc explain` prints.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$name => include_str!(concat!("explain/", stringify!($name), ".md"))),* }
            }

            /// The code named `name`.
            pub fn from_name(name: &str) -> Option<Code> {
                Self::ALL.iter().copied().find(|c| c.name().eq_ignore_ascii_case(name))
            }
        }
    };
}

codes! {
    // E00: text that cannot be tokenized or parsed.
    E0001 Error "unexpected token";
    E0002 Error "unrecognised character";
    E0003 Error "unterminated string";
    E0004 Error "unknown escape in a string";
    E0005 Error "integer does not fit in 64 bits";
    E0006 Error "unclosed bracket";
    E0007 Error "unmatched closing bracket";
    E0008 Error "nested too deeply";
    E0009 Error "unknown name";
    E0010 Error "unknown opcode";
    E0011 Error "one-element tuple needs a trailing comma";
    E0012 Error "invalid value";
    E0013 Error "torch's printed graph cannot be parsed";
    E0014 Error "positional argument after a keyword argument";
    E0015 Error "unknown type";
    E0016 Error "invalid size";

    // E01: invalid graphs.
    E0101 Error "undefined node";
    E0102 Error "node is used before it is defined";
    E0103 Error "name is defined more than once";
    E0104 Error "output is missing or misplaced";
    E0105 Error "placeholder is misplaced";
    E0106 Error "unknown module or attribute";
    E0107 Error "invalid name";
    E0108 Error "method without a receiver";
    E0109 Error "graph data structure is inconsistent";
    E0110 Error "unknown graph";
    E0111 Error "recursive graph call";
    E0112 Error "constant does not match its type";
    E0113 Error "file contains no graph";
    E0114 Error "model is too large";

    // E02: ops and their arguments.
    E0201 Error "unknown op";
    E0202 Error "invalid argument";
    E0203 Error "arguments do not match the schema";

    // E03: types and sizes.
    E0301 Error "type annotation does not match";
    E0302 Error "incompatible shapes";
    E0303 Error "incompatible dtypes";
    E0304 Error "unknown shape";
    E0305 Error "conflicting sizes";
    E0306 Error "size overflow";

    // E04: archives and weights.
    E0401 Error "missing weight";
    E0402 Error "archive cannot be read";
    E0403 Error "archive is malformed";
    E0404 Error "unsupported archive version";
    E0405 Error "unsupported content in an archive";
    E0406 Error "weight does not match its declaration";
    E0407 Error "weights file cannot be read";
    E0408 Error "weights file cannot be written";
    E0409 Error "compiled model cannot be read";
    E0410 Error "weights file is outside the graph's folder";

    // E05: running.
    E0501 Error "missing input";
    E0502 Error "value out of range";
    E0503 Error "input has the wrong dtype";
    E0504 Error "input has the wrong shape";
    E0505 Error "unknown input";
    E0506 Error "results differ";
    E0507 Error "input file contains no tensors";
    E0508 Error "input is not written as NAME=VALUE";
    E0509 Error "not enough memory";
    E0510 Error "input is given twice";
    E0511 Error "input is fixed to another value";
    E0512 Error "cancelled";
    E0513 Error "time limit exceeded";
    E0514 Error "model cannot generate text";

    // E06: compiling.
    E0601 Error "op cannot be compiled";
    E0602 Error "kernel fails verification";
    E0603 Error "kernel compilation failed";
    E0604 Error "compiled model has no usable code";

    // E07: files.
    E0701 Error "file cannot be read";
    E0702 Error "file cannot be written";
    E0703 Error "unknown file format";

    // E08: rewrite rules.
    E0801 Error "rule can never match";
    E0802 Error "unbound name in a rule";
    E0803 Error "unknown function in a rule";
    E0804 Error "rewrite rule does not terminate";
    E0805 Error "rule changes a type";
    E0806 Error "file contains no rules";
    E0807 Error "passes cannot be ordered";
    E0808 Error "rule changes a result";

    // L0: lints.
    L0001 Warning "unused node";
    L0002 Note "unused weight";
    L0003 Warning "part of the graph is interpreted";
    L0004 Note "compiled model is recompiled";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
