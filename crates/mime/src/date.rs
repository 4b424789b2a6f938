//! Dates of header fields (RFC 5322 3.3, with the obsolete forms of 4.3).

/// A date as a header field has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year as written, in four digits.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// The moment, in seconds since 1970 UTC.
    pub utc_seconds: i64,
}

/// Reads the raw value of a Date field. SENTSINCE and its kin disregard time and zone, so they want `year`, `month`, `day`.
pub fn parse(raw: &[u8]) -> Option<Date> {
    let _ = raw;
    None
}
