//! What goes into the machine and what comes out of it. Times are since any start, by a clock that never goes back.

use core::time::Duration;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;

use crate::{name::Name, resolv_conf::ResolvConf};

/// Servers that are used of a longer list. One more makes a failure later, and hardly rarer: resolv.conf(5) has three.
pub const SERVERS_MAX: usize = 8;

/// Aliases (CNAME) that a lookup follows. RFC 1034 3.6.2 wants none behind another; real chains have two or three.
pub const ALIASES_MAX: usize = 8;

/// Records of the wanted kind, and aliases, in one message. No host has so many addresses, and no domain so many mail servers, that are of use.
pub const RECORDS_MAX: usize = 256;

/// Octets of an answer that a server may send by UDP (RFC 6891 6.2.5): what passes every link unfragmented (`dnsflagday.net`, 2020).
pub const UDP_PAYLOAD_BYTES: u16 = 1232;

/// Octets of a datagram that are read. Some servers go by a limit of their own, 4,096 for most; what is longer is no answer.
pub const DATAGRAM_BYTES_MAX: usize = 4096;

/// Datagrams with a wrong id or question, from the server's address and to the port of the question, before the question is asked by TCP: each port has
/// one question, so somebody guesses (RFC 5452 9.1).
pub const GUESSES_MAX: u32 = 16;

/// Rules and bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Recursive name servers, in order of preference: at most [`SERVERS_MAX`] of them are used.
    pub servers: Vec<SocketAddr>,
    /// How often a server that says nothing is asked the same. At least once.
    pub attempts: u32,
    /// How long the first answer is waited for; with each further round over the servers twice as long. A TCP connection has so much time, too.
    pub timeout: Duration,
    /// The longest of these times.
    pub timeout_max: Duration,
    /// How long a lookup may take in all, with every alias and all waiting for others.
    pub patience: Duration,
    /// Whether servers are asked to say what they have validated (RFC 6840 5.7). What that is worth depends on the way to them.
    pub authentic: bool,
    /// Whether letters of a question are upper or lower case at random, and compared in the answer: some bits more that must be guessed
    /// (draft-vixie-dnsext-dns0x20). A server that does not keep the case is found out by TCP, and is asked in lower case from then on.
    pub mixed_case: bool,
    /// Lookups at a time: beyond, they fail as [`Failure::Busy`]. Each has 1 KiB to 3 KiB.
    pub lookups_max: usize,
    /// Questions on the way at a time, each with a socket of its own: beyond, they wait.
    pub questions_max: usize,
    /// TCP connections at a time, each with at most 64 KiB of an answer: beyond, questions wait.
    pub streams_max: usize,
    /// Answers in the cache.
    pub cache_entries_max: usize,
    /// Bytes in the cache. A single answer may have an eighth of it.
    pub cache_bytes_max: usize,
    /// The longest time for which an answer is kept, whatever its TTL: a mistake of another's must end some day.
    pub ttl_max: Duration,
    /// The same for answers that say no. The recursive server keeps them, too, and a domain that comes to be should be found soon.
    pub negative_ttl_max: Duration,
    /// For so long a question that has failed is not asked again; twice as long with each failure. RFC 9520 3.2 wants 1 s at least.
    pub failure_hold: Duration,
    /// The longest of these times. RFC 9520 3.2 wants 5 min at most.
    pub failure_hold_max: Duration,
}

impl Config {
    /// What a mail server wants of these name servers.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Config {
            servers,
            attempts: 2,
            timeout: Duration::from_secs(5),
            timeout_max: Duration::from_secs(20),
            patience: Duration::from_secs(60),
            authentic: true,
            mixed_case: true,
            lookups_max: 10_000,
            questions_max: 256,
            streams_max: 16,
            cache_entries_max: 20_000,
            cache_bytes_max: 16 << 20,
            ttl_max: Duration::from_secs(24 * 3600),
            negative_ttl_max: Duration::from_secs(15 * 60),
            failure_hold: Duration::from_secs(5),
            failure_hold_max: Duration::from_secs(300),
        }
    }
}

impl From<&ResolvConf> for Config {
    fn from(conf: &ResolvConf) -> Self {
        let mut config = Config::new(conf.servers.clone());
        config.attempts = conf.attempts;
        config.timeout = conf.timeout;
        config
    }
}

/// Names a lookup.
pub type Ticket = u64;

/// Names a UDP socket. Each is used for one datagram out, and for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Socket(pub u64);

/// Names a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// Which records are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// The alias itself, which is not followed. DANE asks so whether an alias is authentic, whatever is behind it (RFC 7672 2.2.2).
    Cname,
    /// Mail servers.
    Mx,
    /// Host names of an address.
    Ptr,
    /// Certificates (RFC 6698).
    Tlsa,
    /// Texts.
    Txt,
}

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mx {
    /// The lowest is tried first.
    pub preference: u16,
    /// The host. The root in a null MX (RFC 7505). It may be no host name: [`Name::is_host_name`].
    pub exchange: Name,
}

/// What a certificate is to match (RFC 6698 2.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tlsa {
    /// 0 PKIX-TA, 1 PKIX-EE, 2 DANE-TA, 3 DANE-EE.
    pub usage: u8,
    /// 0 the certificate, 1 its public key.
    pub selector: u8,
    /// 0 exactly, 1 SHA-256, 2 SHA-512.
    pub matching: u8,
    /// What it is compared with.
    pub data: Box<[u8]>,
}

/// Records of one kind, at least one, in the order of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Records {
    /// Of [`Kind::A`].
    A(Vec<Ipv4Addr>),
    /// Of [`Kind::Aaaa`].
    Aaaa(Vec<Ipv6Addr>),
    /// Of [`Kind::Cname`].
    Cname(Vec<Name>),
    /// Of [`Kind::Mx`].
    Mx(Vec<Mx>),
    /// Of [`Kind::Ptr`].
    Ptr(Vec<Name>),
    /// Of [`Kind::Tlsa`].
    Tlsa(Vec<Tlsa>),
    /// Of [`Kind::Txt`]. The strings of a record are put together without spaces, as SPF, DKIM and MTA-STS want it (RFC 7208 3.3, RFC 6376 3.6.2.2, RFC
    /// 8461 3.1).
    Txt(Vec<Box<[u8]>>),
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It has such records.
    Records(Arc<Records>),
    /// There is no such name (NXDOMAIN).
    NoName,
    /// The name has no such records.
    NoData,
}

/// An answer of the name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What the last of the names has.
    pub found: Found,
    /// Where the name that was asked for leads, alias by alias (CNAME). Empty: it is no alias.
    pub aliases: Vec<Name>,
    /// The servers have validated all of it, or say so (the bit AD).
    pub authentic: bool,
    /// For so long it may be used.
    pub ttl: Duration,
}

/// Why there is no answer. Each of these is temporary: nothing was learnt of the name, and a message for it must not be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Too many lookups at a time.
    #[error("too many lookups at a time")]
    Busy,
    /// None is configured.
    #[error("no name server is configured")]
    NoServers,
    /// Nobody has answered, or the lookup has taken too long.
    #[error("no name server has answered in time")]
    Timeout,
    /// SERVFAIL: among other causes, the zone's servers do not answer, or a signature is wrong.
    #[error("the name server could not find out (SERVFAIL)")]
    ServFail,
    /// REFUSED.
    #[error("the name server refuses to answer (REFUSED)")]
    Refused,
    /// The server answers by naming other servers: it is not a recursive one.
    #[error("the name server does not resolve names for others")]
    NotRecursive,
    /// Another response code (RFC 6895 2.3).
    #[error("the name server has answered with the code {0}")]
    Code(u16),
    /// It cannot be read, or contradicts itself.
    #[error("the name server's answer makes no sense")]
    Malformed,
    /// More than [`RECORDS_MAX`] records.
    #[error("the name server's answer has too many records")]
    TooLarge,
    /// An alias leads back to a name before it.
    #[error("the name is an alias that leads in a circle")]
    AliasLoop,
    /// More than [`ALIASES_MAX`].
    #[error("the name leads over too many aliases")]
    TooManyAliases,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Only the time has passed. Due at [`crate::Resolver::deadline`].
    Time,
    /// Somebody wants to know something. Each ticket is answered once, by [`Output::Answer`].
    Ask {
        /// Not in use: a lookup that has it is cancelled.
        ticket: Ticket,
        /// Of which name.
        name: Name,
        /// Which records.
        kind: Kind,
    },
    /// Nobody waits for the answer any more: there will be none.
    Cancel(Ticket),
    /// A datagram has arrived.
    Datagram {
        /// At this socket.
        socket: Socket,
        /// From whom.
        from: SocketAddr,
        /// The whole of it.
        bytes: Bytes,
    },
    /// The socket could not be opened, or what it has sent has not reached the server.
    Unreachable(Socket),
    /// The connection is made.
    Connected(Stream),
    /// Bytes have arrived, in any split.
    Bytes(Stream, Bytes),
    /// The connection could not be made, or has ended.
    Closed(Stream),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Open a socket, bound to a port that nobody can guess, and send a datagram. The socket is never used for another one.
    Send {
        /// The new socket.
        socket: Socket,
        /// To whom.
        server: SocketAddr,
        /// The question.
        bytes: Bytes,
    },
    /// The socket is needed no longer.
    Shut(Socket),
    /// Open a connection: [`Input::Connected`] or [`Input::Closed`] tells how it went.
    Connect {
        /// The new connection.
        stream: Stream,
        /// To whom.
        server: SocketAddr,
    },
    /// Send bytes. They follow no other bytes on this connection.
    Write(Stream, Bytes),
    /// The connection is needed no longer. Not for one that [`Input::Closed`] has ended.
    Close(Stream),
    /// What became of a lookup.
    Answer {
        /// Which.
        ticket: Ticket,
        /// An answer, or why there is none.
        result: Result<Answer, Failure>,
    },
}

/// What has been done since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups.
    pub lookups: u64,
    /// Lookups that failed.
    pub failed: u64,
    /// Parts of lookups that the cache had: an answer, or a failure that is held.
    pub cached: u64,
    /// Parts of lookups that waited for a question of others.
    pub joined: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Connections begun.
    pub connections: u64,
    /// Times that a server was silent or could not be reached.
    pub timeouts: u64,
    /// Answers that had no room in a datagram (TC).
    pub truncated: u64,
    /// Questions that were asked again without EDNS.
    pub without_edns: u64,
    /// Datagrams that answer no question on the way: late ones, and forged ones.
    pub unmatched: u64,
    /// Datagrams that answer a question in another case of letters.
    pub other_case: u64,
    /// Answers that failed the question: a response code, or no sense.
    pub bad_answers: u64,
}
