//! Types of keys: how they are read from TOML and bounded by a range.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use toml::de::DeValue;
use whimbrel_replication::placement::Role;

/// A type of a configuration value.
pub(super) trait Value: Sized {
    /// For the documentation: `a number`, `a duration`.
    const KIND: &'static str;

    /// Reads the value; the error says what is wrong with it.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;

    /// The number that is compared with a range.
    fn magnitude(&self) -> Option<u64> {
        None
    }
}

fn expected<T>(kind: &str, value: &DeValue<'_>) -> Result<T, String> {
    Err(format!("expected {kind}, found {}", value.type_str()))
}

macro_rules! numbers {
    ($($type:ty),+) => { $(
        impl Value for $type {
            const KIND: &'static str = "a number";

            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                let Some(integer) = value.as_integer() else {
                    return expected(Self::KIND, value);
                };
                let digits = integer.as_str().replace('_', "");
                <$type>::from_str_radix(&digits, integer.radix())
                    .map_err(|_| format!("expected {} from 0 to {}", Self::KIND, <$type>::MAX))
            }

            fn magnitude(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }
        }
    )+ };
}

numbers!(u32, u64, usize);

impl Value for bool {
    const KIND: &'static str = "true or false";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value
            .as_bool()
            .map_or_else(|| expected(Self::KIND, value), Ok)
    }
}

impl Value for String {
    const KIND: &'static str = "a string";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value
            .as_str()
            .map_or_else(|| expected(Self::KIND, value), |text| Ok(text.to_owned()))
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "a path";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        String::read(value).map(PathBuf::from)
    }
}

impl Value for Vec<SocketAddr> {
    const KIND: &'static str = "a list of addresses with ports";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let Some(list) = value.as_array() else {
            return expected(Self::KIND, value);
        };
        list.iter()
            .map(|item| {
                let Some(text) = item.get_ref().as_str() else {
                    return expected("an address with a port", item.get_ref());
                };
                text.parse().map_err(|_| {
                    format!(
                        "{text:?} is not an address with a port, such as \"127.0.0.1:143\" or \"[::]:143\". Give an IP address: names are not looked up"
                    )
                })
            })
            .collect()
    }
}

impl Value for Vec<String> {
    const KIND: &'static str = "a list of strings";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let Some(list) = value.as_array() else {
            return expected(Self::KIND, value);
        };
        list.iter()
            .map(|item| String::read(item.get_ref()))
            .collect()
    }
}

/// A number with one of a few units, longest unit names first so that `MiB` is not taken for `B`.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let digits = text[..text.len() - unit.len()].trim_end();
    // `+5` is a number to the parser, but not to us.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A duration from its text in the file.
///
/// # Errors
/// What it would have to look like.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, u64)] = &[
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    with_unit(text, UNITS)
        .map(Duration::from_millis)
        .ok_or_else(|| {
            format!(
                "{text:?} is not a duration such as \"250ms\", \"30s\", \"5m\", \"1h\" or \"2d\""
            )
        })
}

impl Value for Duration {
    const KIND: &'static str = "a duration";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => duration(text),
            None => expected("a duration such as \"30s\"", value),
        }
    }

    fn magnitude(&self) -> Option<u64> {
        u64::try_from(self.as_millis()).ok()
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// From its text in the file.
    ///
    /// # Errors
    /// What it would have to look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        const UNITS: &[(&str, u64)] = &[
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("B", 1),
        ];
        with_unit(text, UNITS).map(Size).ok_or_else(|| {
            format!("{text:?} is not a size such as \"512B\", \"16KiB\", \"64MiB\" or \"2GiB\"")
        })
    }

    /// The size for memory. A size that the address space does not hold is as good as no limit.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Value for Size {
    const KIND: &'static str = "a size";

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => Size::parse(text),
            None => expected("a size such as \"64MiB\"", value),
        }
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }
}

macro_rules! choices {
    ($(#[doc = $doc:literal])+ $name:ident: $kind:literal { $($variant:ident = $text:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)+
        }

        impl $name {
            /// As in the file.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl Value for $name {
            const KIND: &'static str = $kind;

            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                match value.as_str() {
                    $(Some($text) => Ok($name::$variant),)+
                    _ => Err(format!("expected {}", Self::KIND)),
                }
            }
        }
    };
}

choices! {
    /// How much is logged.
    LogLevel: "one of \"error\", \"warn\", \"info\", \"debug\", \"trace\"" {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

choices! {
    /// What a node of a cluster is there for.
    NodeRole: "\"worker\" or \"storage\"" {
        Worker = "worker",
        Storage = "storage",
    }
}

impl NodeRole {
    /// The role that is announced to other nodes.
    pub fn placed(self) -> Role {
        match self {
            NodeRole::Worker => Role::Worker,
            NodeRole::Storage => Role::Storage,
        }
    }
}

choices! {
    /// How a line of the log looks.
    LogFormat: "\"text\" or \"json\"" {
        Text = "text",
        Json = "json",
    }
}
