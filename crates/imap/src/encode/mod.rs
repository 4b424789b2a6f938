//! Responses, appended to a buffer.
//!
//! Plain functions and small writers over `&mut Vec<u8>`, so that a session can flush between any two of them. What differs
//! between revisions is a parameter (`utf8`) or another function ([`search`] and [`ESearch`]); the session decides.
//!
//! Reading order: [`strings`], [`status`] (OK, NO, BAD, BYE and codes), [`data`], [`list`], [`search`](mod@search), [`sort`], [`fetch`], [`structure`].

pub mod data;
pub mod fetch;
pub mod list;
pub mod quota;
pub mod search;
pub mod sort;
pub mod status;
pub mod strings;
pub mod structure;

pub use data::{
    NamespaceEntry, StatusValues, capability, continuation, enabled, exists, expunge, flags, id,
    namespace, recent, sasl_continuation, status_data, vanished_begin,
};
pub use fetch::{BodyAnswer, FetchWriter};
pub use list::{ListData, ListResponse, list, lsub};
pub use quota::{Resource, ResourceUse, quota, quota_root};
pub use search::{ESearch, search};
pub use sort::ThreadWriter;
pub use status::{Code, Kind, greeting, tagged, untagged};
