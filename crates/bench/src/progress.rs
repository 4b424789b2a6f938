//! What is going on, on standard error, where somebody looks.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for the whole run, its message the part that runs now.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// On a terminal.
    #[must_use]
    pub fn shown() -> Progress {
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Nowhere.
    #[must_use]
    pub fn hidden() -> Progress {
        Progress(ProgressBar::hidden())
    }

    /// A part begins, with so many steps.
    pub fn begin(&self, what: &str, steps: usize) {
        self.0.set_length(steps as u64);
        self.0.set_position(0);
        self.0.set_message(what.to_owned());
    }

    /// Steps that are done.
    pub fn step(&self, steps: usize) {
        self.0.inc(steps as u64);
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        if self.0.is_hidden() {
            eprintln!("{text}");
        } else {
            self.0.println(text);
        }
    }

    /// The end.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
