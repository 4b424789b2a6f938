//! Logins: a new TLS connection, LOGIN, LOGOUT.
//!
//! The first login of an account costs what the server's scheme of passwords costs (argon2, or a comparison); a server may remember that.

use super::Context;
use crate::{
    error::Result,
    measure::Samples,
    target::{WRITERS, threads},
};

/// At once.
const THREADS: usize = 4;

pub(super) fn run(context: &mut Context) -> Result<()> {
    let each = context.sizes.logins.min(WRITERS);
    let row = load(context, "logins: each account once", each)?;
    context.add(row);
    let row = load(context, "logins: again", context.sizes.logins)?;
    context.add(row);
    Ok(())
}

fn load(context: &Context, name: &str, count: usize) -> Result<crate::measure::Row> {
    let (target, progress) = (&context.target, &context.progress);
    progress.begin(name, count);
    context.meter.measure(name, "login", || {
        let samples = threads(THREADS, |thread, threads| {
            let mut samples = Samples::default();
            for number in (thread..count).step_by(threads) {
                let imap = samples.time(|| target.login(number % WRITERS + 1))?;
                imap.logout()?;
                progress.step(1);
            }
            Ok(samples)
        })?;
        Ok(Samples::joined(samples))
    })
}
