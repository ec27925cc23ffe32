//! Python statements: loops, conditionals, imports. There is one error for a whole block.

use super::Mender;
use crate::diag::{Code, Diagnostic};
use crate::syntax::token::Token;

/// Words that begin a statement in Python but not in FXIR.
const WORDS: [&str; 20] = [
    "for", "while", "if", "elif", "else", "with", "try", "except", "finally", "def", "class", "import", "from",
    "print", "assert", "del", "raise", "pass", "async", "global",
];

/// Words that continue the preceding block.
const GOES_ON: [&str; 4] = ["elif", "else", "except", "finally"];

impl<'s> Mender<'s, '_, '_> {
    /// Skips a Python statement with everything indented below it.
    pub(super) fn skip_python(&mut self) -> bool {
        let (start, token, end) = &self.c.tokens[self.index];
        let (start, end) = (*start, *end);
        let Token::Ident(word) = token else { return false };
        let named = matches!(
            self.c.token(self.index + 1),
            Some(Token::Assign | Token::Colon | Token::LBrace)
        );
        let colon_ends = matches!(*word, "else" | "try" | "finally");
        if !WORDS.contains(word) || !self.c.first_on_line(self.index) || named && !colon_ends || !self.may_begin() {
            return false;
        }
        let block_end = self.block_end(start);
        self.note_names(block_end);
        let whole_lines = self.c.span(
            start - self.c.line_indent(start).len(),
            (block_end + 1).min(self.c.text.len()),
        );
        self.skip_to(block_end);
        let d = Diagnostic::new(Code::E0001, format!("`{word}` is Python, not FXIR"));
        let d = d.at(self.c.span(start, end), "graphs have no statement of this kind");
        let d = match *word {
            "for" | "while" => d.help("unroll the loop, or call `torch.while_loop` or `higher_order.scan` with graphs"),
            "if" | "elif" | "else" => d.help("select values with `torch.where`, or call `torch.cond` with a graph for each branch"),
            "def" | "class" => {
                d.help("write a graph as `graph main { … }`; fxc reads Python only in the form that torch generates: `def forward(self, x): …`")
            }
            "import" | "from" | "pass" | "global" => d.fix(whole_lines, "", "remove it: graphs need no imports"),
            "assert" => d.help("call `torch._assert` to check a value"),
            _ => d.suggest(whole_lines, "", "remove it"),
        };
        self.report(d);
        true
    }

    /// The end of the last line of the block that begins at `start`.
    fn block_end(&self, start: usize) -> usize {
        let indent = self.c.line_indent(start).len();
        let mut end = self.c.line_end(start);
        let mut offset = end;
        while offset < self.c.text.len() {
            let from = offset + 1;
            let Some(line) = self.c.text.get(from..self.c.line_end(from.min(self.c.text.len()))) else {
                break;
            };
            let content = line.trim_start_matches([' ', '\t']);
            let depth = line.len() - content.len();
            let word = content.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
            let inside = depth > indent && !content.starts_with('}') || depth == indent && GOES_ON.contains(&word);
            if !content.trim().is_empty() {
                if !inside {
                    break;
                }
                end = from + line.len();
            }
            offset = from + line.len();
        }
        end
    }

    /// Records the names that the tokens up to `byte` define.
    fn note_names(&mut self, byte: usize) {
        let mut i = self.index;
        while let Some((start, token, _)) = self.c.tokens.get(i).filter(|t| t.0 < byte) {
            let defines = matches!(self.c.token(i + 1), Some(Token::Assign | Token::Colon));
            if let (Token::Node(n) | Token::Ident(n), true) = (token, defines) {
                self.lost.push((*start, (*n).into()));
            }
            i += 1;
        }
    }
}
