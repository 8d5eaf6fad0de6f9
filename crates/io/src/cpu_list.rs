//! Lists of processors, as the kernel writes them.

use std::collections::BTreeSet;

/// A set of processors, by number.
pub type Cpus = BTreeSet<u32>;

/// Parses processors in the kernel's list format, such as `0-3,8`; `None` if the text has another
/// format.
pub fn parse_cpus(text: &str) -> Option<Cpus> {
    let mut all = Cpus::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?);
    }
    Some(all)
}

/// Formats processors as the kernel does, such as `0-3,8`.
pub fn show_cpus(cpus: &Cpus) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let shown = runs.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_written() {
        for text in ["0", "0-3", "0-1,4,6-7"] {
            assert_eq!(show_cpus(&parse_cpus(text).unwrap()), text);
        }
        assert_eq!(parse_cpus("0-1,x"), None);
        assert_eq!(parse_cpus(""), None);
    }
}
