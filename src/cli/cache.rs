//! `fxc cache`: shows and clears the cache of compiled models. Options of the commands that use it.

use super::model::ModelArgs;
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic, words};
use crate::driver::describe::{cache_entries, describe_cache};
use crate::driver::{Cache, NoCache};
use crate::tensor::shown_bytes;
use std::fmt::Write;

/// Whether a command uses the cache.
#[derive(clap::Args)]
pub(super) struct CacheArgs {
    /// Compile the model even if the cache has its code, and keep nothing in the cache (the same as FXC_CACHE=off)
    #[arg(long, help_heading = "Compiled models")]
    no_cache: bool,
}

impl CacheArgs {
    /// Enables the cache for models that are loaded from now on, unless options that show the passes require them to
    /// run.
    pub(super) fn apply(&self, app: &mut App, model: &ModelArgs) {
        if self.no_cache || model.shows_passes() {
            return;
        }
        match Cache::of_user() {
            Ok(cache) => app.session.cache = Some(cache),
            Err(NoCache::Off) => {}
            Err(NoCache::Unusable(reason)) => {
                app.say_once(&format!("note: the cache of compiled models is not used: {reason}"))
            }
        }
    }
}

/// Show the cache of compiled models, or clear it
///
/// `fxc run`, `fxc bench` and the Python package keep compiled models in this folder, so that a model compiles only once. The
/// environment sets the folder (FXC_CACHE_DIR) and its size (FXC_CACHE_SIZE, such as 512MiB; the default is 4GiB), or turns the cache
/// off (FXC_CACHE=off).
#[derive(clap::Args)]
pub(super) struct Args {
    /// Remove all compiled models from the cache
    #[arg(long)]
    clear: bool,
    /// Print a JSON object
    #[arg(long, conflicts_with = "clear")]
    json: bool,
}

/// `fxc cache`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    let cache = match Cache::of_user() {
        Ok(cache) => cache,
        Err(NoCache::Off) => {
            app.show_progress("the cache is turned off");
            return Ok(());
        }
        Err(NoCache::Unusable(reason)) => {
            let title = format!("the cache of compiled models cannot be used: {reason}");
            return Err(Diagnostic::new(Code::E0701, title).into());
        }
    };
    if args.clear {
        return clear(app, &cache);
    }
    let text = if args.json {
        format!("{}\n", describe_cache(&cache))
    } else {
        as_text(&cache)
    };
    output::write_stdout(text.as_bytes())
}

fn clear(app: &mut App, cache: &Cache) -> Outcome {
    let freed = cache.clear().map_err(|e| {
        let title = format!("cannot clear `{}`: {e}", cache.folder().display());
        Stop::from(Diagnostic::new(Code::E0702, title))
    })?;
    app.show_progress(&format!(
        "{}: removed {}",
        cache.folder().display(),
        shown_bytes(freed as usize)
    ));
    Ok(())
}

fn as_text(cache: &Cache) -> String {
    let entries = cache_entries(cache);
    let total: u64 = entries.iter().map(|d| d.file.bytes).sum();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: {}, {} of at most {}",
        cache.folder().display(),
        words::count(entries.len(), "compiled model"),
        shown_bytes(total as usize),
        shown_bytes(cache.limit() as usize)
    );
    for d in entries {
        let size = shown_bytes(d.file.bytes as usize);
        let model = match &d.model {
            Some((name, inputs)) => format!("{name}({})", inputs.join(", ")),
            None => "unreadable".to_string(),
        };
        let _ = writeln!(out, "{size:>10}  {:>12}  {model}", shown_age(d.seconds_unused()));
    }
    out
}

fn shown_age(seconds: u64) -> String {
    let units = [(86400, "day"), (3600, "hour"), (60, "minute")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} ago", words::count((seconds / unit) as usize, name)),
        None => "just now".to_string(),
    }
}
