//! POP3: a whole mailbox is taken, message by message.

use super::{Context, POP3_USER};
use crate::{
    error::{Result, expect_equal},
    mail,
    pop3::check_bytes,
    random::Random,
};

/// Each message.
const MESSAGE_BYTES: usize = 10_240;

pub(super) fn run(context: &mut Context) -> Result<()> {
    let count = context.sizes.pop3_messages;
    let (target, progress) = (context.target.clone(), context.progress.clone());
    progress.begin("POP3: fill", count);
    let make = |number| mail::sized(&mut Random::part(3, number as u64), number, MESSAGE_BYTES);
    target.fill(POP3_USER, "INBOX", count, &make, &|steps| {
        progress.step(steps)
    })?;
    for (name, pipelined) in [
        ("POP3 RETR of all", false),
        ("POP3 RETR of all, pipelined", true),
    ] {
        progress.begin(name, 0);
        let row = context.meter.repeat(name, "mailbox", || {
            let mut pop = target.pop3(POP3_USER)?;
            let (messages, bytes) = pop.stat()?;
            expect_equal("STAT", messages as usize, count)?;
            let got = pop.retrieve(messages, pipelined)?;
            check_bytes(name, bytes, got)?;
            pop.quit()?;
            Ok(got)
        })?;
        context.add(row);
    }
    Ok(())
}
