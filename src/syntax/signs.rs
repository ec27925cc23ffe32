//! The brackets and signs that FXIR, Python and TorchScript share.

/// Declares the tokens of a text: those with rules of their own, then those that have one text each (`Graph "graph"`), then
/// the brackets and signs that all texts share. `text` gives what is written for the last two.
macro_rules! tokens {
    (
        $(#[$meta:meta])* pub enum $name:ident<$life:lifetime> { $($own:tt)* }
        texts { $($word:ident $word_text:tt)* }
    ) => {
        $crate::syntax::signs::tokens! {
            @all $(#[$meta])* pub enum $name<$life> { $($own)* }
            $($word $word_text)*
            LParen "(" RParen ")" LBracket "[" RBracket "]" LBrace "{" RBrace "}"
            Comma "," Colon ":" Assign "=" Star "*"
        }
    };
    (
        @all $(#[$meta:meta])* pub enum $name:ident<$life:lifetime> { $($own:tt)* }
        $($word:ident $text:tt)*
    ) => {
        $(#[$meta])*
        pub enum $name<$life> {
            $($own)*
            $(#[token($text)] $word,)*
        }

        impl $name<'_> {
            /// What is written for this token, if that is always the same.
            pub(super) fn text(&self) -> Option<&'static str> {
                match self {
                    $($name::$word => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

pub(super) use tokens;
