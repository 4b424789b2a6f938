#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod cache;
pub mod fuzz;
mod message;
mod mutants;
mod name;
mod random;
mod resolv_conf;
mod resolver;

pub use api::{
    ALIASES_MAX, Answer, Config, Counters, DATAGRAM_BYTES_MAX, Failure, Found, GUESSES_MAX, Input,
    Kind, Mx, Output, RECORDS_MAX, Records, SERVERS_MAX, Socket, Stream, Ticket, Tlsa,
    UDP_PAYLOAD_BYTES,
};
pub use name::{LABEL_BYTES_MAX, NAME_BYTES_MAX, Name, NameError};
pub use resolv_conf::ResolvConf;
pub use resolver::Resolver;
