//! The brackets and signs that FXIR, Python and TorchScript share.

/// Declares the tokens of a text: its own, then the brackets and signs that all texts share, which `sign` spells.
macro_rules! tokens {
    ($(#[$meta:meta])* pub enum $name:ident<$life:lifetime> { $($own:tt)* }) => {
        $(#[$meta])*
        pub enum $name<$life> {
            $($own)*
            #[token("(")]
            LParen,
            #[token(")")]
            RParen,
            #[token("[")]
            LBracket,
            #[token("]")]
            RBracket,
            #[token("{")]
            LBrace,
            #[token("}")]
            RBrace,
            #[token(",")]
            Comma,
            #[token(":")]
            Colon,
            #[token("=")]
            Assign,
            #[token("*")]
            Star,
        }

        impl $name<'_> {
            /// The bracket or sign that this is, if all texts have it.
            fn sign(&self) -> Option<&'static str> {
                Some(match self {
                    $name::LParen => "(",
                    $name::RParen => ")",
                    $name::LBracket => "[",
                    $name::RBracket => "]",
                    $name::LBrace => "{",
                    $name::RBrace => "}",
                    $name::Comma => ",",
                    $name::Colon => ":",
                    $name::Assign => "=",
                    $name::Star => "*",
                    _ => return None,
                })
            }
        }
    };
}

pub(super) use tokens;
