//! The brackets and signs shared by FXIR, Python and TorchScript.

/// Declares the tokens of a language: first those with their own rules, then those with a fixed text (`Graph "graph"`),
/// then the shared brackets and signs. `text` returns the text of the latter two kinds.
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
        pub(crate) enum $name<$life> {
            $($own)*
            $(#[token($text)] $word,)*
        }

        impl $name<'_> {
            /// The text of this token, if it is fixed.
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
