//! The tokens of the Python that torch prints.

use crate::syntax::signs::tokens;
use logos::Logos;
use std::fmt;

tokens! {
    /// A token. White space within a line and terminal colours are skipped; [`super::lexer`] adds the tokens for
    /// newlines and indentation.
    #[derive(Logos, Clone, Debug, PartialEq)]
    #[logos(skip r"[ \t\r\f]+")]
    #[logos(skip r"\x1b\[[0-9;]*m")]
    #[allow(missing_docs, reason = "a token is its text")]
    pub enum Token<'s> {
        /// A name, or AOTAutograd's name for the classes of its graphs.
        #[regex(r"[\p{XID_Start}_]\p{XID_Continue}*")]
        #[token("<lambda>", |l| l.slice())]
        Name(&'s str),
        #[regex(r"[0-9][0-9_]*")]
        Int(&'s str),
        #[regex(r"([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")]
        #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
        Float(&'s str),
        #[regex(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[jJ]")]
        Imag(&'s str),
        #[regex(r#""([^"\\\n]|\\.)*""#)]
        #[regex(r"'([^'\\\n]|\\.)*'")]
        Str(&'s str),
        /// The text of an object without a literal form: `<InputKind.PARAMETER: 1>`, `<built-in function add>`.
        #[regex(r"<[A-Za-z_][A-Za-z_.-]*[: ][^<>\n]*>")]
        Object(&'s str),

        /// `+=` and other in-place operators, without the `=`.
        #[regex(r"(\+|-|\*|/|//|%|@|&|\||\^|<<|>>|\*\*)=", |l| &l.slice()[..l.slice().len() - 1])]
        InPlace(&'s str),
        #[token("==")]
        #[token("!=")]
        #[token("<")]
        #[token("<=")]
        #[token(">")]
        #[token(">=")]
        Compare(&'s str),
        #[token("<<")]
        #[token(">>")]
        Shift(&'s str),
        #[token("/")]
        #[token("//")]
        #[token("%")]
        #[token("@")]
        Product(&'s str),

        /// The end of a line outside of brackets.
        Newline,
        /// An increase of the indentation.
        Indent,
        /// A decrease of the indentation to that of an earlier line.
        Dedent,
    }
    // `signature` and `constraints` are names, except in `Graph signature:` and similar headers.
    texts {
        Signature "signature"  Constraints "constraints"  Class "class"  Def "def"  Return "return"  Pass "pass"
        Del "del"  None "None"  True "True"  False "False"  And "and"  Or "or"  Not "not"  In "in"  Is "is"
        Semicolon ";"  Dot "."  Dots "..."  Arrow "->"  Bar "|"  Caret "^"  Ampersand "&"  Plus "+"  Minus "-"
        Tilde "~"  Power "**"
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Token::Name(s) | Token::Int(s) | Token::Float(s) | Token::Imag(s) | Token::Str(s) | Token::Object(s) => s,
            Token::InPlace(s) => return write!(f, "`{s}=`"),
            Token::Compare(s) | Token::Shift(s) | Token::Product(s) => s,
            Token::Newline => return f.write_str("end of the line"),
            Token::Indent => return f.write_str("indent"),
            Token::Dedent => return f.write_str("end of the block"),
            t => t.text().unwrap_or("?"),
        };
        write!(f, "`{text}`")
    }
}
