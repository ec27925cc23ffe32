//! Language models of all forms that generate known texts.
//!
//! The models are counters: the next token is the sum of all tokens so far, modulo the size of the vocabulary. So a model that
//! forgets a token, or gets a wrong position or mask, generates another text.

use super::*;
use crate::api::Options;
use crate::api::model::Model;

const VOCABULARY: i64 = 11;

/// The text that a prompt generates.
fn expected(prompt: &[i64], count: usize) -> Vec<i64> {
    let mut all = prompt.to_vec();
    for _ in 0..count {
        all.push(all.iter().sum::<i64>() % VOCABULARY);
    }
    all.split_off(prompt.len())
}

fn generate(text: &str, prompt: &[i64], options: &GenerateOptions) -> Result<Vec<i64>, Error> {
    let compiled = Model::from_text(text)?.compile(&Options::new().threads(1))?;
    let mut session = compiled.session();
    let first: Result<Vec<i64>, Error> = session.generate(prompt, options)?.collect();
    let first = first?;
    // A session starts again with an empty cache.
    let second: Result<Vec<i64>, Error> = session.generate(prompt, options)?.collect();
    assert_eq!(second?, first);
    Ok(first)
}

fn first_tokens(count: usize) -> GenerateOptions {
    GenerateOptions::new().max_new_tokens(count)
}

/// Scores from the sum of all tokens, `%sum : i64[1, N]`.
const SCORES: &str = "
    %rest = call_function torch.remainder(%sum, 11)
    %hot = call_function torch.nn.functional.one_hot(%rest, 11)
    %scores = call_method float(%hot)";

/// Without memory: each call gets all tokens.
fn stateless() -> String {
    format!(
        "dim N in 1..64
graph main {{
    %input_ids : i64[1, N] = placeholder input_ids
    %sum = call_function torch.cumsum(%input_ids, 1){SCORES}
    output (%scores,)
}}"
    )
}

/// A buffer as a static cache: tokens are written at their positions, and a mask hides what follows.
fn static_cache(length: &str) -> String {
    let tokens = if length == "N" { "dim N in 1..7\n" } else { "" };
    format!(
        "const cache : f32[1, 1, 8, 1] = [[[[0], [0], [0], [0], [0], [0], [0], [0]]]]
{tokens}
graph main {{
    %input_ids : i64[1, {length}] = placeholder input_ids
    %cache_position : i64[{length}] = placeholder cache_position
    %cache = get_attr cache
    %x = call_method float(%input_ids)
    %rows = call_method view(%x, 1, 1, -1, 1)
    %new = call_method index_copy_(%cache, 2, %cache_position, %rows)
    %all = call_method view(%new, 1, 8)
    %places = call_function torch.arange(8)
    %row = call_method unsqueeze(%cache_position, 1)
    %seen = call_function operator.le(%places, %row)
    %weights = call_method float(%seen)
    %columns = call_method transpose(%all, 0, 1)
    %product = call_function torch.matmul(%weights, %columns)
    %flat = call_method view(%product, 1, -1)
    %sum = call_method long(%flat){SCORES}
    output (%scores,)
}}"
    )
}

/// A cache that is an input and a result, and grows.
const GROWING: &str = "dim N in 1..64
dim P in 0..64
graph main {
    %input_ids : i64[1, N] = placeholder input_ids
    %past_keys : f32[1, 1, P, 1] = placeholder past_keys
    %x = call_method float(%input_ids)
    %rows = call_method view(%x, 1, 1, -1, 1)
    %keys = call_function torch.cat((%past_keys, %rows), 2)
    %old = call_method sum(%past_keys)
    %new = call_function torch.cumsum(%x, 1)
    %total = call_function operator.add(%new, %old)
    %sum = call_method long(%total)
    %rest = call_function torch.remainder(%sum, 11)
    %hot = call_function torch.nn.functional.one_hot(%rest, 11)
    %scores = call_method float(%hot)
    output (%scores, %keys)
}";

#[test]
fn models_of_all_forms_generate_the_same_text() -> Result<(), Error> {
    for (name, text, room) in [
        ("stateless", stateless(), 12),
        ("static cache", static_cache("N"), 5),
        ("static cache, one token at a time", static_cache("1"), 5),
        ("growing cache", GROWING.to_string(), 12),
    ] {
        let prompt = [3, 1, 4];
        assert_eq!(
            generate(&text, &prompt, &first_tokens(room))?,
            expected(&prompt, room),
            "{name}"
        );
    }
    Ok(())
}

#[test]
fn a_text_ends_at_a_stop_token_and_at_the_end_of_the_cache() -> Result<(), Error> {
    let text = expected(&[3, 1, 4], 12);
    let stop = text[4];
    let until_stop = first_tokens(12).stop([stop]);
    assert_eq!(generate(&stateless(), &[3, 1, 4], &until_stop)?, text[..4]);
    // The last token need not be in the cache.
    assert_eq!(generate(&static_cache("N"), &[3, 1, 4], &first_tokens(12))?, text[..6]);
    assert!(generate(&stateless(), &[3], &first_tokens(0))?.is_empty());
    Ok(())
}

#[test]
fn prompts_that_do_not_fit_are_errors() {
    let empty = generate(&stateless(), &[], &first_tokens(1)).unwrap_err();
    assert_eq!(empty.code(), Some(Code::E0501));
    let long = generate(&static_cache("N"), &[1; 9], &first_tokens(1)).unwrap_err();
    assert_eq!(long.code(), Some(Code::E0502), "{long:#}");
    let long = generate(&stateless(), &[1; 65], &first_tokens(1)).unwrap_err();
    assert_eq!(long.code(), Some(Code::E0514), "{long:#}");
}

#[test]
fn sampling_is_reproducible() -> Result<(), Error> {
    let options = |seed| first_tokens(12).temperature(5.0).top_k(5).seed(seed);
    let texts: Vec<Vec<i64>> = [1, 1, 2]
        .map(|seed| generate(&stateless(), &[3, 1, 4], &options(seed)))
        .into_iter()
        .collect::<Result<_, _>>()?;
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
    Ok(())
}

#[test]
fn calls_are_counted() -> Result<(), Error> {
    let compiled = Model::from_text(&static_cache("N"))?.compile(&Options::new())?;
    let mut session = compiled.session();
    let mut generation = session.generate(&[3, 1], &first_tokens(4))?;
    assert_eq!(generation.by_ref().count(), 4);
    let stats = generation.stats();
    assert_eq!((stats.prompt_tokens, stats.decoded_tokens), (2, 3));
    assert!(stats.prefill > Duration::ZERO && stats.decode > Duration::ZERO);
    Ok(())
}
