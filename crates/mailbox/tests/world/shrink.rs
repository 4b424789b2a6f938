//! From a history that fails to a short one that does.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs, and makes a panic an error.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// The shortest history found that still fails, and how. `error` tries one.
pub(crate) fn shrink<A: Clone>(
    actions: &[A],
    mut error: impl FnMut(&[A]) -> Option<String>,
) -> (Vec<A>, String) {
    let mut best = actions.to_vec();
    let mut last = error(&best).unwrap_or_default();
    let mut chunk = best.len().div_ceil(2);
    while chunk >= 1 {
        let mut at = 0;
        let mut progress = false;
        while at < best.len() {
            let mut shorter = best.clone();
            shorter.drain(at..(at + chunk).min(best.len()));
            match error(&shorter) {
                Some(new) => {
                    best = shorter;
                    last = new;
                    progress = true;
                }
                None => at += chunk,
            }
        }
        if chunk == 1 && !progress {
            break;
        }
        chunk = (chunk / 2).max(1);
    }
    (best, last)
}
