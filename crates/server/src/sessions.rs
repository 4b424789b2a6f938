//! Makes the sessions of each protocol from the configuration.

use std::sync::Arc;

use whimbrel_frontend::{
    imap::{self, ImapSession},
    pop3::{self, Pop3Session},
    session::Resume,
    smtp::{self, SmtpSession},
};
use whimbrel_smtp::{Domain, Role};

use crate::{
    admin,
    clock::Clock,
    config::Config,
    listen::{MakeSession, Protocol, ResumeSession},
};

/// Makes sessions of `protocol`.
#[must_use]
pub fn factory(config: &Config, clock: Clock, protocol: Protocol) -> MakeSession {
    match protocol {
        Protocol::Imap => {
            let limits = Arc::new(imap_limits(config));
            Arc::new(move |peer| Box::new(ImapSession::new(peer, Arc::clone(&limits), clock.now())))
        }
        Protocol::Pop3 => {
            let limits = Arc::new(pop3_limits(config));
            Arc::new(move |peer| Box::new(Pop3Session::new(peer, Arc::clone(&limits), clock.now())))
        }
        Protocol::Smtp | Protocol::Submission | Protocol::Lmtp => {
            let role = match protocol {
                Protocol::Submission => Role::Submission,
                Protocol::Lmtp => Role::Lmtp,
                _ => Role::Smtp,
            };
            let limits = Arc::new(smtp_limits(config));
            let smtp = Arc::new(smtp_config(config, role));
            Arc::new(move |peer| {
                Box::new(SmtpSession::new(
                    role,
                    Arc::clone(&smtp),
                    Arc::clone(&limits),
                    &peer,
                    clock.now(),
                ))
            })
        }
    }
}

/// Makes sessions that go on after a login, or after MAIL, at another session. They end with their login: no UNAUTHENTICATE.
#[must_use]
pub(crate) fn resumed(config: &Config, clock: Clock) -> ResumeSession {
    let imap = Arc::new(imap::Limits {
        unauthenticate: false,
        ..imap_limits(config)
    });
    let pop3 = Arc::new(pop3_limits(config));
    let smtp = Arc::new(smtp_limits(config));
    let (stranger, user) = (
        Arc::new(smtp_config(config, Role::Smtp)),
        Arc::new(smtp_config(config, Role::Submission)),
    );
    Arc::new(move |peer, account, at| {
        let (imap, pop3, now) = (Arc::clone(&imap), Arc::clone(&pop3), clock.now());
        Some(match at {
            Resume::Imap { tag } => Box::new(ImapSession::resumed(peer, imap, account?, tag, now)?),
            Resume::Pop3 { mailbox, utf8 } => Box::new(Pop3Session::resumed(
                peer,
                pop3,
                account?,
                (mailbox, *utf8),
                now,
            )?),
            Resume::Mail { role, helo, basic } => {
                let config = match role {
                    Role::Submission => &user,
                    Role::Smtp | Role::Lmtp => &stranger,
                };
                let of = (Arc::clone(config), Arc::clone(&smtp));
                let hello = (helo.clone(), *basic);
                Box::new(SmtpSession::resumed(*role, of, &peer, account, hello, now)?)
            }
        })
    })
}

/// Makes the administrator's IMAP sessions.
#[must_use]
pub fn of_administrators(config: &Config, clock: Clock) -> admin::session::MakeSession {
    let limits = Arc::new(imap_limits(config));
    Arc::new(move |peer, account| {
        let limits = Arc::clone(&limits);
        Box::new(ImapSession::of_administrator(
            peer,
            limits,
            account,
            clock.now(),
        ))
    })
}

fn imap_limits(config: &Config) -> imap::Limits {
    let of = &config.imap;
    imap::Limits {
        syntax: whimbrel_imap::Limits {
            command_bytes_max_before_login: of.command_bytes_max_before_login.bytes(),
            command_bytes_max: of.command_bytes_max.bytes(),
            sequence_set_bytes_max: of.sequence_set_bytes_max.bytes(),
            sequence_set_ranges_max: of.sequence_set_ranges_max,
            literal_bytes_max_before_login: of.literal_bytes_max_before_login.bytes(),
            literal_bytes_max: of.literal_bytes_max.bytes(),
            literal_count_max: of.literal_count_max,
            append_bytes_max: of.append_bytes_max.0,
            skip_bytes_max: of.skip_bytes_max.0,
            nesting_depth_max: of.nesting_depth_max,
            search_keys_max: of.search_keys_max,
            fetch_items_max: of.fetch_items_max,
            header_fields_max: of.header_fields_max,
            section_depth_max: of.section_depth_max,
            flags_max: of.flags_max,
            list_patterns_max: of.list_patterns_max,
            list_pattern_bytes_max: of.list_pattern_bytes_max.bytes(),
        },
        mime: mime_limits(config),
        login_seconds_max: of.login_timeout.as_secs(),
        idle_seconds_max: of.idle_timeout.as_secs(),
        stall_seconds_max: config.limits.write_timeout.as_secs(),
        login_failures_max: of.login_failures_max,
        bad_commands_max: of.bad_commands_max,
        keywords_max: of.keywords_max,
        saved_ranges_max: of.saved_ranges_max,
        sort_messages_max: of.sort_messages_max,
        sort_key_bytes_max: of.sort_key_bytes_max.bytes(),
        thread_references_max: of.thread_references_max,
        append_messages_max: of.append_messages_max,
        append_summary_bytes_max: of.append_summary_bytes_max.bytes(),
        ascii_headers: of.append_ascii_headers_only,
        unauthenticate: of.unauthenticate,
        compress: of.compress,
        inflate_ratio_max: of.inflate_ratio_max,
        inflate_slack_bytes: of.inflate_slack_bytes.0,
        other_nodes: of.other_nodes,
        scram: config.auth.scram_iterations > 0,
    }
}

fn pop3_limits(config: &Config) -> pop3::Limits {
    let of = &config.pop3;
    pop3::Limits {
        syntax: whimbrel_pop3::Limits {
            command_line_bytes_max: of.command_line_bytes_max.bytes(),
            auth_line_bytes_max: of.auth_line_bytes_max.bytes(),
        },
        other_nodes: of.other_nodes,
        scram: config.auth.scram_iterations > 0,
        login_seconds_max: of.login_timeout.as_secs(),
        idle_seconds_max: of.idle_timeout.as_secs(),
        stall_seconds_max: config.limits.write_timeout.as_secs(),
        login_failures_max: of.login_failures_max,
        bad_commands_max: of.bad_commands_max,
    }
}

fn mime_limits(config: &Config) -> whimbrel_mime::Limits {
    let of = &config.mime;
    whimbrel_mime::Limits {
        nesting_max: of.nesting_max,
        parts_max: of.parts_max,
        header_bytes_max: of.header_bytes_max.bytes(),
        header_fields_max: of.header_fields_max,
        addresses_max: of.addresses_max,
        params_max: of.params_max,
        summary_bytes_max: of.summary_bytes_max.bytes(),
        preview_bytes_max: of.preview_bytes_max.bytes(),
    }
}

fn smtp_limits(config: &Config) -> smtp::Limits {
    smtp::Limits {
        targets_max: config.smtp.targets_max,
        mime: mime_limits(config),
        submission: smtp::Submission {
            header_bytes_max: config.submission.header_bytes_max.bytes(),
            save_sent: config.submission.save_sent,
        },
        scram: config.auth.scram_iterations > 0,
        ..smtp::Limits::default()
    }
}

fn smtp_config(config: &Config, role: Role) -> whimbrel_smtp::Config {
    let of = &config.smtp;
    let mut smtp = whimbrel_smtp::Config::new(domain(&config.hostname()));
    smtp.starttls = true;
    // In submission MAIL needs a login, and a login needs TLS: this only reports it earlier.
    smtp.require_tls = role == Role::Submission;
    smtp.limits = whimbrel_smtp::Limits {
        command_line_bytes_max: of.command_line_bytes_max.bytes(),
        auth_line_bytes_max: of.auth_line_bytes_max.bytes(),
        input_buffer_bytes_max: of.input_buffer_bytes_max.bytes(),
        recipients_max: of.recipients_max,
        recipients_refused_max: of.recipients_refused_max,
        message_bytes_max: of.message_bytes_max.0,
        discard_bytes_max: of.discard_bytes_max.0,
        text_line_bytes_max: of.text_line_bytes_max.bytes(),
        bdat_chunk_bytes_max: of.bdat_chunk_bytes_max.0,
        received_hops_max: of.received_hops_max,
        commands_max: of.commands_max,
        idle_commands_max: of.idle_commands_max,
        errors_max: of.errors_max,
        transactions_max: of.transactions_max,
        unknown_recipients_max: of.unknown_recipients_max,
        auth_failures_max: config.submission.login_failures_max,
        login_wait_max: config.submission.login_timeout,
        command_wait_max: of.command_wait_max,
        command_line_wait_max: of.command_line_wait_max,
        data_block_wait_max: of.data_block_wait_max,
        data_wait_max: of.data_wait_max,
        data_rate_bytes_per_second_min: of.data_rate_bytes_per_second_min,
        ..whimbrel_smtp::Limits::default()
    };
    smtp
}

/// The server's name as SMTP allows names. A name that it does not allow (a label of the machine's own name is too long) becomes `localhost`.
fn domain(hostname: &str) -> Domain {
    Domain::new(hostname).unwrap_or_else(|_| Domain::new("localhost").expect("it is a domain"))
}
