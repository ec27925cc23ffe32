//! Text generation: a session that calls a language model token by token.

mod feed;
mod sampler;
mod signature;
#[cfg(test)]
mod tests;

use super::error::Error;
use super::session::Session;
use crate::diag::{Code, Diagnostic};
use crate::tensor::{Tensor, widen_f16};
use crate::types::DType;
use half::{bf16, f16};
use sampler::{Sampler, Sampling};
use signature::{CallLength, ModelInputs, cannot_generate};
use std::borrow::BorrowMut;
use std::time::{Duration, Instant};

/// Options of text generation. The defaults take the most probable token each time, up to 64 tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    max_new_tokens: usize,
    sampling: Sampling,
    seed: u64,
    stop: Vec<i64>,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            max_new_tokens: 64,
            sampling: Sampling {
                temperature: 0.0,
                top_k: 0,
                top_p: 1.0,
            },
            seed: 0,
            stop: vec![],
        }
    }
}

impl GenerateOptions {
    /// The default options.
    pub fn new() -> GenerateOptions {
        GenerateOptions::default()
    }

    /// The maximum number of tokens to generate; 64 is the default.
    pub fn max_new_tokens(mut self, count: usize) -> GenerateOptions {
        self.max_new_tokens = count;
        self
    }

    /// Divides the scores before a token is drawn; 0, the default, always takes the most probable token.
    pub fn temperature(mut self, temperature: f64) -> GenerateOptions {
        self.sampling.temperature = temperature;
        self
    }

    /// Draws among this many of the most probable tokens; 0, the default, means all.
    pub fn top_k(mut self, count: usize) -> GenerateOptions {
        self.sampling.top_k = count;
        self
    }

    /// Draws among the most probable tokens whose probabilities add up to this; 1, the default, means all.
    pub fn top_p(mut self, probability: f64) -> GenerateOptions {
        self.sampling.top_p = probability;
        self
    }

    /// The seed of the random numbers. The same seed gives the same tokens.
    pub fn seed(mut self, seed: u64) -> GenerateOptions {
        self.seed = seed;
        self
    }

    /// Tokens that end the text. They are not returned.
    pub fn stop(mut self, tokens: impl IntoIterator<Item = i64>) -> GenerateOptions {
        self.stop.extend(tokens);
        self
    }
}

/// What a generation did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerateStats {
    /// The number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// The time that it took to generate code for the length of the prompt, for single tokens, and for each further size if the model
    /// has caches that grow.
    pub compile: Duration,
    /// The time of the calls with the prompt, without compilation.
    pub prefill: Duration,
    /// The number of generated tokens whose calls are in `decode`: all but the first, which the prompt's call gives.
    pub decoded_tokens: usize,
    /// The time of the calls with one token, without compilation.
    pub decode: Duration,
}

/// The tokens of a generation, computed one by one. See [`Session::generate`]. `S` is the session, or borrows it.
pub struct Generation<S: BorrowMut<Session>> {
    session: S,
    progress: Progress,
}

/// A generation without its session.
struct Progress {
    signature: ModelInputs,
    sampler: Sampler,
    options: GenerateOptions,
    /// The tokens that the next call gets: the prompt, then the last token.
    next: Vec<i64>,
    /// All tokens, if the model has no memory of earlier ones.
    all: Vec<i64>,
    /// The number of tokens that the model remembers.
    past: usize,
    /// The caches that are inputs and results of the model.
    caches: Vec<Tensor>,
    /// The number of tokens that fit into the model's memory.
    capacity: Option<usize>,
    produced: usize,
    is_done: bool,
    stats: GenerateStats,
}

impl Session {
    /// Generates the tokens that follow `prompt`, with a language model: one whose inputs are tokens (`input_ids`) and optionally
    /// their positions, masks and caches of keys and values, and whose first result are the scores of the next token. The session's
    /// buffers, which may be such caches, are reset first and written in place. The model's inputs are told by their names and types.
    ///
    /// The iterator calls the model for each token. It ends after [`GenerateOptions::max_new_tokens`], before a token of
    /// [`GenerateOptions::stop`], and when the caches are full. An error ends it too.
    ///
    /// ```no_run
    /// use fxc::{GenerateOptions, Model, Options};
    ///
    /// let compiled = Model::open("llm.pt2")?.compile(&Options::new())?;
    /// let mut session = compiled.session();
    /// for token in session.generate(&[1, 15043], &GenerateOptions::new().max_new_tokens(20))? {
    ///     println!("{}", token?);
    /// }
    /// # Ok::<(), fxc::Error>(())
    /// ```
    pub fn generate(&mut self, prompt: &[i64], options: &GenerateOptions) -> Result<Generation<&mut Session>, Error> {
        let progress = self.begin_generation(prompt, options)?;
        Ok(Generation {
            session: self,
            progress,
        })
    }

    /// [`Session::generate`] with an iterator that owns the session.
    pub fn into_generation(mut self, prompt: &[i64], options: &GenerateOptions) -> Result<Generation<Session>, Error> {
        let progress = self.begin_generation(prompt, options)?;
        Ok(Generation {
            session: self,
            progress,
        })
    }

    fn begin_generation(&mut self, prompt: &[i64], options: &GenerateOptions) -> Result<Progress, Error> {
        let signature = self.signature().and_then(|signature| match prompt {
            [] => Err(Diagnostic::new(Code::E0501, "the prompt has no tokens")
                .help("start with the token that begins a text")),
            _ => Ok(signature),
        });
        let signature = signature.map_err(|d| self.make_error(d))?;
        self.reset();
        Ok(Progress {
            sampler: Sampler::new(options.sampling, options.seed),
            options: options.clone(),
            next: prompt.to_vec(),
            all: vec![],
            past: 0,
            caches: signature.empty_caches(),
            capacity: signature.capacity(),
            signature,
            produced: 0,
            is_done: options.max_new_tokens == 0,
            stats: GenerateStats {
                prompt_tokens: prompt.len(),
                ..GenerateStats::default()
            },
        })
    }

    fn signature(&self) -> Result<ModelInputs, Diagnostic> {
        ModelInputs::of_module(self.model().signature())
    }
}

impl<S: BorrowMut<Session>> Generation<S> {
    /// What was done so far.
    pub fn stats(&self) -> GenerateStats {
        self.progress.stats
    }

    /// The bytes of weights and of caches that a call with one token reads, half-way through the generated tokens, if the last call was
    /// compiled as a whole. The rows of embeddings do not count.
    pub fn bytes_per_token(&self) -> Option<usize> {
        let stats = self.progress.stats;
        let caches: usize = self.progress.caches.iter().map(Tensor::byte_count).sum();
        let positions = stats.prompt_tokens + stats.decoded_tokens / 2;
        Some(self.session.borrow().read_bytes(positions)? + caches)
    }
}

impl<S: BorrowMut<Session>> Iterator for Generation<S> {
    type Item = Result<i64, Error>;

    fn next(&mut self) -> Option<Result<i64, Error>> {
        let progress = &mut self.progress;
        if progress.is_done {
            return None;
        }
        let token = progress.advance(self.session.borrow_mut()).transpose();
        progress.is_done |= !matches!(token, Some(Ok(_)));
        token
    }
}

impl Progress {
    /// Computes the next token. `None` after the last one.
    fn advance(&mut self, session: &mut Session) -> Result<Option<i64>, Error> {
        if self.capacity.is_some_and(|c| self.past + self.next.len() > c) {
            return match self.produced {
                0 => Err(session.make_error(self.too_long())),
                _ => Ok(None),
            };
        }
        let is_prompt = self.produced == 0;
        let tokens = std::mem::take(&mut self.next);
        let (start, compiled) = (Instant::now(), self.stats.compile);
        let scores = self.feed(session, &tokens)?;
        let calls = start.elapsed().saturating_sub(self.stats.compile - compiled);
        match is_prompt {
            true => self.stats.prefill += calls,
            false => {
                self.stats.decode += calls;
                self.stats.decoded_tokens += 1;
            }
        }
        let token = self.sampler.choose(&scores);
        let token = token.ok_or_else(|| session.make_error(cannot_generate("its scores are empty")))? as i64;
        if self.options.stop.contains(&token) {
            return Ok(None);
        }
        self.produced += 1;
        self.is_done = self.produced >= self.options.max_new_tokens;
        self.next.push(token);
        Ok(Some(token))
    }

    /// Calls the model with the tokens, in as many calls as it needs. Returns the scores after the last token.
    fn feed(&mut self, session: &mut Session, tokens: &[i64]) -> Result<Vec<f32>, Error> {
        let chunk = match self.signature.length {
            CallLength::Fixed(n) => n,
            CallLength::Between(_, most) => most,
        };
        if self.past > 0 && !self.has_memory(session) {
            return self.feed_all(session, tokens);
        }
        let mut scores = vec![];
        for (i, part) in tokens.chunks(chunk).enumerate() {
            if i > 0 && !self.has_memory(session) {
                return Err(session.make_error(self.too_many(chunk)));
            }
            scores = self.call(session, part)?;
            self.past += part.len();
        }
        self.all.extend(tokens);
        self.capacity = self.capacity.or_else(|| session.cached_positions());
        Ok(scores)
    }

    /// Calls a model without memory with all tokens so far.
    fn feed_all(&mut self, session: &mut Session, tokens: &[i64]) -> Result<Vec<f32>, Error> {
        self.all.extend(tokens);
        self.past = 0;
        let all = std::mem::take(&mut self.all);
        let scores = self.call(session, &all);
        self.past = all.len();
        self.all = all;
        scores
    }

    /// Whether the model remembers earlier tokens, in caches or in buffers.
    fn has_memory(&self, session: &Session) -> bool {
        !self.caches.is_empty() || session.has_state()
    }

    /// One call with tokens that come after those so far. Returns the scores after the last one.
    fn call(&mut self, session: &mut Session, tokens: &[i64]) -> Result<Vec<f32>, Error> {
        if let Some(d) = self.check_length(tokens.len()) {
            return Err(session.make_error(d));
        }
        let inputs = self.signature.inputs(tokens, self.past, &self.caches);
        // The inputs share the caches only for the call.
        self.caches.clear();
        let start = Instant::now();
        session.prepare_with(&inputs)?;
        self.stats.compile += start.elapsed();
        let outputs = session.run_with(&inputs)?;
        drop(inputs);
        let tensors = outputs.tensors();
        let count = self.signature.caches.len();
        if count > 0 && tensors.len() != count + 1 {
            let title = format!("it has {count} caches but {} results", tensors.len());
            return Err(session.make_error(cannot_generate(&title)));
        }
        self.caches
            .extend(tensors.iter().skip(1).take(count).map(|t| (*t).clone()));
        let scores = tensors.first().and_then(|t| last_row(t));
        scores.ok_or_else(|| session.make_error(cannot_generate("its first result are not the scores of tokens")))
    }

    fn check_length(&self, count: usize) -> Option<Diagnostic> {
        let (least, most) = match self.signature.length {
            CallLength::Fixed(n) => (n, n),
            CallLength::Between(least, most) => (least, most),
        };
        let name = &self.signature.tokens.name;
        if count < least {
            let reason = format!("`{name}` takes at least {least} tokens, but a call has {count}");
            return Some(cannot_generate(&reason).help("export the model with a dynamic number of tokens, from 1 on"));
        }
        (count > most).then(|| self.too_many(most))
    }

    fn too_many(&self, most: usize) -> Diagnostic {
        let name = &self.signature.tokens.name;
        cannot_generate(&format!(
            "`{name}` takes at most {most} tokens, and the model has no caches"
        ))
    }

    fn too_long(&self) -> Diagnostic {
        let (count, capacity) = (self.next.len(), self.capacity.unwrap_or_default());
        let title = format!("the prompt has {count} tokens, but the model's caches hold {capacity}");
        Diagnostic::new(Code::E0504, title).help("export the model with larger caches, or shorten the prompt")
    }
}

/// The last row of scores `[…, vocabulary]` as f32.
fn last_row(t: &Tensor) -> Option<Vec<f32>> {
    let size = *t.shape().last()?;
    let first = t.numel().checked_sub(size)?;
    Some(match t.dtype() {
        DType::F32 => t.as_slice::<f32>()[first..].to_vec(),
        DType::F64 => t.as_slice::<f64>()[first..].iter().map(|&x| x as f32).collect(),
        DType::BF16 => t.as_slice::<bf16>()[first..].iter().map(|x| x.to_f32()).collect(),
        DType::F16 => t.as_slice::<f16>()[first..].iter().map(|x| widen_f16(*x)).collect(),
        _ => return None,
    })
}
