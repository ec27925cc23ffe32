//! `fxc generate`: continues a text with a language model.

mod bandwidth;
mod stop;
mod tokens;

use super::limits::parse_threads;
use super::{App, Outcome, Stop, output};
use crate::api::{self, GenerateOptions, GenerateStats, Generation, Model, Options, Session};
use crate::diag::{Code, Diagnostic, words};
use crate::math::contract::Precision;
use std::path::PathBuf;
use std::time::Duration;
use stop::StopTexts;
use tokens::Vocabulary;

/// Continue a text with a language model
///
/// The model takes tokens (`input_ids`), and optionally their positions, masks and caches of keys and values, and its first result
/// are the scores of the next token. `tools/export_llm.py` exports such models from transformers. The text goes to standard output as
/// it is generated, and the speed to standard error.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model: a .pt2 archive, a compiled model (.fxc), or FXIR
    model: String,
    /// The text to continue; requires --tokenizer
    #[arg(long, value_name = "TEXT", requires = "tokenizer", conflicts_with = "prompt_tokens")]
    prompt: Option<String>,
    /// The tokens to continue, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', required_unless_present = "prompt")]
    prompt_tokens: Vec<i64>,
    /// The vocabulary: a tokenizer.json of Hugging Face. Without it, tokens are printed as numbers
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// The maximum number of tokens to generate
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    max_new_tokens: usize,
    /// Divide the scores by this number and draw tokens at random; 0 always takes the most probable token
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = parse_temperature, help_heading = "Sampling")]
    temperature: f64,
    /// Draw among this many of the most probable tokens [default: all]
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Sampling"
    )]
    top_k: usize,
    /// Draw among the most probable tokens whose probabilities add up to this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = parse_probability, help_heading = "Sampling")]
    top_p: f64,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sampling")]
    seed: u64,
    /// End before this text; may be given several times; requires --tokenizer
    #[arg(long, value_name = "TEXT", requires = "tokenizer")]
    stop: Vec<String>,
    /// End before these tokens, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    stop_tokens: Vec<i64>,
    /// Number of threads to run on [default: all of the machine's]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = parse_threads)]
    threads: usize,
    /// What f32 products multiply: f32, or operands that are rounded to bf16, with f32 sums
    #[arg(long, value_name = "PRECISION", value_parser = Precision::parse, default_value = "f32", hide_default_value = true)]
    precision: Precision,
    /// Compile the model even if the cache has its code, and keep nothing in the cache (the same as FXC_CACHE=off)
    #[arg(long, help_heading = "Compiled models")]
    no_cache: bool,
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
        _ => Err("a temperature is a number, at least 0".into()),
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("a probability is a number above 0, at most 1".into()),
    }
}

/// `fxc generate`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    let mut vocabulary = Vocabulary::open(args.tokenizer.as_deref())?;
    let prompt = match &args.prompt {
        Some(text) => vocabulary.encode(text)?,
        None => args.prompt_tokens.clone(),
    };
    let options = Options::new()
        .threads(args.threads)
        .precision(args.precision)
        .cache(!args.no_cache);
    let model = Model::open_with(&args.model, &options).map_err(|e| stop_with(app, &e))?;
    let compiled = model.compile(&options).map_err(|e| stop_with(app, &e))?;
    let mut session = compiled.session();
    let generation = session.generate(&prompt, &args.generate_options());
    let mut generation = generation.map_err(|e| stop_with(app, &e))?;
    let mut stops = StopTexts::new(&args.stop);
    let written = write_text(&mut generation, &mut vocabulary, &mut stops);
    let (stats, bytes) = (generation.stats(), generation.bytes_per_token());
    match written {
        Ok(()) => report_speed(app, &stats, bytes, args.threads),
        Err(EarlyEnd::Model(e)) => return Err(stop_with(app, &e)),
        Err(EarlyEnd::Other(stop)) => return Err(stop),
    }
    Ok(())
}

impl Args {
    fn generate_options(&self) -> GenerateOptions {
        GenerateOptions::new()
            .max_new_tokens(self.max_new_tokens)
            .temperature(self.temperature)
            .top_k(self.top_k)
            .top_p(self.top_p)
            .seed(self.seed)
            .stop(self.stop_tokens.iter().copied())
    }
}

/// Why a text ends early.
enum EarlyEnd {
    Model(api::Error),
    Other(Stop),
}

impl From<Stop> for EarlyEnd {
    fn from(stop: Stop) -> EarlyEnd {
        EarlyEnd::Other(stop)
    }
}

/// Writes the text as it is generated, up to a stop text.
fn write_text(
    generation: &mut Generation<&mut Session>,
    vocabulary: &mut Vocabulary,
    stops: &mut StopTexts,
) -> Result<(), EarlyEnd> {
    let mut ended = false;
    for token in generation {
        let token = token.map_err(EarlyEnd::Model)?;
        let piece = vocabulary.decode(token)?;
        let text = stops.push(&piece);
        output::write_stdout(text.as_bytes())?;
        if stops.is_found() {
            ended = true;
            break;
        }
    }
    if !ended {
        output::write_stdout(stops.take_rest().as_bytes())?;
    }
    output::write_stdout(b"\n")?;
    Ok(())
}

/// Reports the errors of the library as findings of the command.
fn stop_with(app: &mut App, e: &api::Error) -> Stop {
    app.session.sources = e.sources().clone();
    app.session.diagnostics.extend(e.diagnostics().iter().cloned());
    Stop::Reported
}

/// Shows the speed on standard error.
fn report_speed(app: &App, stats: &GenerateStats, bytes: Option<usize>, threads: usize) {
    app.show_progress(&format!("compilation: {:.1} ms", stats.compile.as_secs_f64() * 1e3));
    app.show_progress(&format!("prompt: {}", speed(stats.prompt_tokens, stats.prefill)));
    if stats.decoded_tokens == 0 {
        return;
    }
    let mut line = format!("generation: {}", speed(stats.decoded_tokens, stats.decode));
    let seconds = stats.decode.as_secs_f64();
    if let Some(bytes) = bytes.filter(|b| *b >= bandwidth::SMALLEST && seconds > 0.0) {
        let rate = (bytes * stats.decoded_tokens) as f64 / seconds;
        line.push_str(&format!(", {:.1} GB/s of weights and caches", rate / 1e9));
        if let Some(plain) = bandwidth::measure_read(threads) {
            let share = 100.0 * rate / plain;
            line.push_str(&format!(" ({share:.0} % of a plain read's {:.1} GB/s)", plain / 1e9));
        }
    }
    app.show_progress(&line);
}

/// `12 tokens in 35.1 ms (341.9 tokens/s)`
fn speed(tokens: usize, time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    let rate = tokens as f64 / time.as_secs_f64().max(1e-9);
    format!("{} in {ms:.1} ms ({rate:.1} tokens/s)", words::count(tokens, "token"))
}

/// The error for a tokenizer's file.
fn unusable_tokenizer(file: &std::path::Path, reason: &str) -> Diagnostic {
    Diagnostic::new(
        Code::E0701,
        format!("cannot use the tokenizer {}: {reason}", file.display()),
    )
}
