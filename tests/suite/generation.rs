//! Text generation with the model of `tests/data/generation` (see make_generation.py): the command, the library, and the state of
//! sessions, beside what transformers generates.

use crate::docs::is_excerpt;
use crate::support::{Dir, fences, fxc, fxc_in, root};
use fxc::{GenerateOptions, Model, Options};
use serde_json::Value as Json;

/// What transformers generates for one prompt.
struct Case {
    prompt: String,
    prompt_tokens: Vec<i64>,
    tokens: Vec<i64>,
    text: String,
    stop: i64,
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(root().join("tests/data/generation/expected.json")).expect("the file exists");
    let cases: Vec<Json> = serde_json::from_str(&text).expect("valid JSON");
    let text = |c: &Json, key: &str| c[key].as_str().expect("a text").to_string();
    let tokens = |c: &Json, key: &str| {
        c[key]
            .as_array()
            .expect("a list")
            .iter()
            .map(|t| t.as_i64().expect("a token"))
            .collect()
    };
    let case = |c: &Json| Case {
        prompt: text(c, "prompt"),
        prompt_tokens: tokens(c, "prompt_tokens"),
        tokens: tokens(c, "tokens"),
        text: text(c, "text"),
        stop: c["stop"].as_i64().expect("a token"),
    };
    cases.iter().map(case).collect()
}

const MODEL: &str = "tests/data/generation/model.pt2";
const TOKENIZER: &str = "tests/data/generation/tokenizer.json";

fn list(tokens: &[i64]) -> String {
    tokens.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn the_command_generates_what_transformers_generates() {
    for c in cases() {
        let (prompt, stop) = (list(&c.prompt_tokens), c.stop.to_string());
        let limits = ["--max-new-tokens", "96", "--stop-tokens", &stop, "--threads", "1"];
        let by_number = fxc(&[&["generate", MODEL, "--prompt-tokens", &prompt], &limits[..]].concat());
        let tokens = list(&c.tokens).replace(',', " ");
        assert_eq!(
            (by_number.code, by_number.out.trim_end()),
            (0, &*tokens),
            "{}",
            by_number.err
        );
        assert!(
            by_number.err.contains("prompt: ") && by_number.err.contains("tokens/s"),
            "{}",
            by_number.err
        );
        let text = ["generate", MODEL, "--tokenizer", TOKENIZER, "--prompt", &c.prompt];
        let as_text = fxc(&[&text[..], &limits[..]].concat());
        assert_eq!(
            (as_text.code, as_text.out),
            (0, format!("{}\n", c.text)),
            "{}",
            as_text.err
        );
    }
}

#[test]
fn a_text_ends_before_a_stop_text() {
    let text = [
        "generate",
        MODEL,
        "--tokenizer",
        TOKENIZER,
        "--prompt",
        "Twinkle",
        "--max-new-tokens",
        "96",
    ];
    let ran = fxc(&[&text[..], &["--stop", "little", "--stop", "sky"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, ", twinkle, \n"), "{}", ran.err);
}

#[test]
fn sampling_follows_its_seed() {
    let command = |seed: &str| {
        let args = [
            "generate",
            MODEL,
            "--prompt-tokens",
            "40",
            "--max-new-tokens",
            "20",
            "--temperature",
            "30",
            "--seed",
            seed,
        ];
        fxc(&args).out
    };
    assert_eq!(command("5"), command("5"));
    assert_ne!(command("5"), command("6"));
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (&["--prompt", "a"][..], "--tokenizer"),
        (&[], "--prompt"),
        (&["--prompt-tokens", "1", "--temperature=-1"], "at least 0"),
        (&["--prompt-tokens", "1", "--top-p", "0"], "above 0"),
        (&["--prompt-tokens", "5000"], "E0502"),
        (&["--prompt-tokens", "1", "--tokenizer", MODEL], "E0701"),
    ] {
        let ran = fxc(&[&["generate", MODEL], args].concat());
        assert!(ran.code != 0 && ran.err.contains(message), "{args:?}: {}", ran.err);
    }
}

#[test]
fn compiled_models_generate_the_same_text() {
    let dir = Dir::new("generation");
    let (c, model) = (&cases()[0], root().join(MODEL));
    let model = model.to_string_lossy();
    // Prompts of other lengths are compiled from the graph in the file.
    let compiled = fxc_in(
        &dir.0,
        &["compile", &model, "--at", "input_ids[1]=1", "-o", "model.fxc"],
    );
    assert_eq!(compiled.code, 0, "{}", compiled.err);
    let (prompt, stop) = (list(&c.prompt_tokens), c.stop.to_string());
    let ran = fxc_in(
        &dir.0,
        &[
            "generate",
            "model.fxc",
            "--prompt-tokens",
            &prompt,
            "--max-new-tokens",
            "96",
            "--stop-tokens",
            &stop,
        ],
    );
    assert_eq!(
        (ran.code, ran.out.trim_end()),
        (0, &*list(&c.tokens).replace(',', " ")),
        "{}",
        ran.err
    );
}

/// The caches are written in place, yet what callers hold does not change.
#[test]
fn a_session_writes_its_caches_in_place() {
    let c = &cases()[0];
    let compiled = Model::open(root().join(MODEL))
        .unwrap()
        .compile(&Options::new())
        .unwrap();
    let mut session = compiled.session();
    let options = GenerateOptions::new().max_new_tokens(20);
    let generate = |session: &mut fxc::Session| -> Vec<i64> {
        let tokens = session.generate(&c.prompt_tokens, &options).unwrap();
        tokens.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(generate(&mut session), c.tokens[..20]);
    let addresses = |session: &fxc::Session| -> Vec<*const u8> {
        let state = session.state();
        let caches = state.values().filter(|t| t.rank() == 4);
        caches.map(|t| t.bytes().as_ptr()).collect()
    };
    let mut generation = session.generate(&c.prompt_tokens, &options).unwrap();
    generation.next().unwrap().unwrap();
    drop(generation);
    let (kept, first) = (session.state(), addresses(&session));
    let copies: Vec<Vec<u8>> = kept.values().map(|t| t.bytes().to_vec()).collect();
    let call = |session: &mut fxc::Session, token: i64, position: i64| {
        let token = fxc::Tensor::from_slice(&[1, 1], &[token]);
        let position = fxc::Tensor::from_slice(&[1], &[position]);
        session
            .run([("input_ids", token).into(), ("cache_position", position).into()])
            .map(drop)
    };
    // The test holds the state, so the next call writes to a copy, and later calls to that copy.
    call(&mut session, 7, 20).unwrap();
    let moved = addresses(&session);
    assert!(first.iter().zip(&moved).all(|(a, b)| a != b));
    call(&mut session, 8, 21).unwrap();
    assert_eq!(addresses(&session), moved);
    assert!(kept.values().zip(&copies).all(|(t, bytes)| t.bytes() == bytes));
    // A call that fails leaves the caches as they were, though some were written before it failed.
    let before: Vec<Vec<u8>> = session.state().values().map(|t| t.bytes().to_vec()).collect();
    assert!(call(&mut session, 9, 96).is_err());
    let after: Vec<Vec<u8>> = session.state().values().map(|t| t.bytes().to_vec()).collect();
    assert!(before == after);
    // The other session starts with empty caches, and the first one goes on.
    assert!(compiled.session().state().is_empty());
    assert_eq!(generate(&mut session), c.tokens[..20]);
}

/// Every command of the page prints what the page shows.
#[test]
fn the_page_of_generation_shows_what_is_written() {
    let dir = Dir::new("generation-page");
    for name in ["model.pt2", "tokenizer.json"] {
        std::fs::copy(root().join("tests/data/generation").join(name), dir.0.join(name)).unwrap();
    }
    let page = std::fs::read_to_string(root().join("docs/generation.md")).unwrap();
    let mut shown = 0;
    for (_, block) in fences(&page).iter().filter(|(info, _)| info == "console") {
        for command in format!("\n{block}").split("\n$ fxc ").skip(1) {
            let (command, text) = command.split_once('\n').unwrap();
            let ran = fxc_in(&dir.0, &words(command));
            assert!(is_excerpt(text, &ran.out), "{command}\n{}{}", ran.out, ran.err);
            shown += 1;
        }
    }
    assert_eq!(shown, 2);
}

/// The words of a command; quotes hold words together.
fn words(command: &str) -> Vec<&str> {
    let mut all = vec![];
    for (i, part) in command.split('"').enumerate() {
        match i % 2 {
            0 => all.extend(part.split_whitespace()),
            _ => all.push(part),
        }
    }
    all
}
