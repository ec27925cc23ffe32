//! Texts as tokens, with a tokenizer of Hugging Face, or tokens as numbers.

use super::super::Stop;
use super::unusable_tokenizer;
use std::path::Path;

#[cfg(feature = "tokenizer")]
mod vocabulary {
    use super::*;
    use crate::diag::{Code, Diagnostic};
    use tokenizers::Tokenizer;

    /// A vocabulary, with the tokens of the text so far.
    pub(in crate::cli::generate) struct Vocabulary {
        tokenizer: Option<Tokenizer>,
        /// The tokens whose text is not complete: a character may take several, and the text of a token may depend on earlier ones.
        tokens: Vec<u32>,
        /// The length of the text of `tokens` that has been returned.
        returned: usize,
    }

    impl Vocabulary {
        /// Opens a tokenizer.json. Without one, tokens are numbers.
        pub(in crate::cli::generate) fn open(file: Option<&Path>) -> Result<Vocabulary, Stop> {
            let open = |file: &Path| Tokenizer::from_file(file).map_err(|e| unusable_tokenizer(file, &e.to_string()));
            Ok(Vocabulary {
                tokenizer: file.map(open).transpose()?,
                tokens: vec![],
                returned: 0,
            })
        }

        /// The tokens of a text, with those that the tokenizer adds.
        pub(in crate::cli::generate) fn encode(&self, text: &str) -> Result<Vec<i64>, Stop> {
            let encoded = self.tokenizer.as_ref().map(|t| t.encode(text, true));
            let encoded = encoded.transpose().map_err(|e| cannot_convert(&e.to_string()))?;
            Ok(encoded.map_or_else(Vec::new, |e| e.get_ids().iter().map(|&id| i64::from(id)).collect()))
        }

        /// The text that a token adds. It is empty until the token completes a character.
        pub(in crate::cli::generate) fn decode(&mut self, token: i64) -> Result<String, Stop> {
            let Some(tokenizer) = &self.tokenizer else {
                return Ok(number(token, &mut self.returned));
            };
            let id = u32::try_from(token).map_err(|_| cannot_convert(&format!("{token} is not a token")))?;
            self.tokens.push(id);
            let text = tokenizer
                .decode(&self.tokens, true)
                .map_err(|e| cannot_convert(&e.to_string()))?;
            // The replacement character stands for the first bytes of a character.
            if text.ends_with('\u{fffd}') && self.tokens.len() < MOST_TOKENS {
                return Ok(String::new());
            }
            let new = text.get(self.returned..).unwrap_or_default().to_string();
            // The last token stays, because a decoder may treat the first token of a text differently.
            self.tokens.drain(..self.tokens.len() - 1);
            let last = tokenizer
                .decode(&self.tokens, true)
                .map_err(|e| cannot_convert(&e.to_string()))?;
            self.returned = last.len();
            Ok(new)
        }
    }

    /// A character has at most four bytes, and a token at least one.
    const MOST_TOKENS: usize = 8;

    fn cannot_convert(reason: &str) -> Diagnostic {
        Diagnostic::new(Code::E0701, format!("the tokenizer failed: {reason}"))
    }
}

#[cfg(not(feature = "tokenizer"))]
mod vocabulary {
    use super::*;

    /// Tokens as numbers, in a build without tokenizers.
    pub(in crate::cli::generate) struct Vocabulary {
        returned: usize,
    }

    impl Vocabulary {
        pub(in crate::cli::generate) fn open(file: Option<&Path>) -> Result<Vocabulary, Stop> {
            match file {
                Some(file) => Err(unusable_tokenizer(file, "fxc was built without the feature `tokenizer`").into()),
                None => Ok(Vocabulary { returned: 0 }),
            }
        }

        pub(in crate::cli::generate) fn encode(&self, _: &str) -> Result<Vec<i64>, Stop> {
            Ok(vec![])
        }

        pub(in crate::cli::generate) fn decode(&mut self, token: i64) -> Result<String, Stop> {
            Ok(number(token, &mut self.returned))
        }
    }
}

pub(super) use vocabulary::Vocabulary;

/// A token as a number, separated from earlier ones by a space.
fn number(token: i64, count: &mut usize) -> String {
    *count += 1;
    match *count {
        1 => token.to_string(),
        _ => format!(" {token}"),
    }
}
