//! The terms of an SLO as operators write them: percentile, latency and rate.

/// Parses the percentile of an SLO, such as 95 or 99.9.
///
/// # Errors
/// Fails with what was expected.
pub fn parse_percentile(text: &str) -> Result<f64, String> {
    let percentile = text.trim_start_matches('p').parse().ok();
    let good = percentile.filter(|percentile| (0.1..=99.9).contains(percentile));
    good.ok_or_else(|| "expected a number from 0.1 to 99.9, such as 95".to_owned())
}

/// Parses a latency with its unit, such as 500us, into whole microseconds.
///
/// # Errors
/// Fails with what was expected.
pub fn parse_latency(text: &str) -> Result<u32, String> {
    let units = [("µs", 1.0), ("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let split = units.iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)));
    let micros =
        split.and_then(|(number, micros)| Some(number.trim().parse::<f64>().ok()? * micros));
    match micros {
        Some(us) if (1.0..=f64::from(u32::MAX)).contains(&us) => Ok(us.round() as u32),
        _ => Err("a time with its unit, from 1us: 500us, 2ms".to_owned()),
    }
}

/// Parses a rate in requests a second, such as 120k.
///
/// # Errors
/// Fails with what was expected.
pub fn parse_iops(text: &str) -> Result<u32, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>().map(|number| number * factor) {
        Ok(iops) if (1.0..=f64::from(u32::MAX)).contains(&iops) => Ok(iops.round() as u32),
        _ => Err("requests a second, from 1: 120000, 120k, 1.5M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        for (text, us) in
            [("500us", 500), ("500µs", 500), ("2ms", 2_000), ("0.5 ms", 500), ("1s", 1_000_000)]
        {
            assert_eq!(parse_latency(text), Ok(us), "{text}");
        }
        for bad in ["", "500", "ms", "0us", "-1ms", "1h", "9999999s", "nans"] {
            assert!(parse_latency(bad).is_err(), "{bad}");
        }
        assert_eq!(
            [parse_iops("120k"), parse_iops("1.5M"), parse_iops("7")],
            [Ok(120_000), Ok(1_500_000), Ok(7)]
        );
        for bad in ["", "k", "0", "-1", "1e12", "NaN", "5G"] {
            assert!(parse_iops(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_percentile_is_a_number_below_100() {
        assert_eq!(["95", "p99", "99.9"].map(parse_percentile), [Ok(95.0), Ok(99.0), Ok(99.9)]);
        for bad in ["NaN", "inf", "100", "0", "-1", "", "many"] {
            assert!(parse_percentile(bad).unwrap_err().contains("0.1 to 99.9"), "{bad}");
        }
    }
}
