//! Formats in which other programs keep mail, for `whimbrel import` and `whimbrel export`: Maildir (with the folders of Maildir++) and mbox.
//!
//! Nothing here opens a file: names and bytes in, values and bytes out. What reads messages takes them in chunks of any size and gives the
//! same whatever the cut; it holds one line's beginning, of [`mbox::LINE_HEAD_BYTES_MAX`] at the most. Flags are spelled as in IMAP: `\Seen`, or a keyword.
//!
//! Reading order: [`lines`], [`maildir`], [`courier`], [`mbox`], [`names`], [`known`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod courier;
pub mod fuzz;
pub mod known;
pub mod lines;
pub mod maildir;
pub mod mbox;
pub mod names;
