//! How a number is written in tables and drawings.

/// With three significant digits, or more in front of the point.
#[must_use]
pub fn short(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value.abs() >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let check = |value, expected: &str| assert_eq!(short(value), expected);
        check(0.0, "0");
        check(0.01234, "0.012");
        check(1.234, "1.23");
        check(12.34, "12.3");
        check(1234.5, "1234");
        check(1235.5, "1236");
    }
}
