//! Messages about a file that cannot be parsed. They say what was expected, and quote nothing that
//! may be a token or a key.

use qos::WORKERS_MAX;

use super::ranges;

/// The keys of configuration files whose values are secret.
const SECRETS: [&str; 6] =
    ["token", "key", "former_key", "controller_key", "tls_key", "former_tls_key"];

/// Returns the message for a parser's error. `names` are the table and the key that the error is
/// about, each empty if unknown.
pub(super) fn explain(text: &str, error: &toml::de::Error, names: &(String, String)) -> String {
    let message = error.message();
    let Some(span) = error.span() else { return message.to_owned() };
    let (start, end) = (span.start.min(text.len()), span.end.min(text.len()));
    let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let to = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let (table, key) = (names.0.as_str(), names.1.as_str());
    // An entry that misses something is named by its table.
    let subject = match (table, key) {
        _ if message.starts_with("unknown field") => String::new(),
        // What is wrong with an entry as a whole names the entry.
        (_, noun) if message.starts_with(&format!("{noun} \"")) => String::new(),
        ("", "") => String::new(),
        ("", key) => format!("{key}: "),
        (table, key) => format!("{table}.{key}: "),
    };
    if quotes_a_secret(&text[from..to], message) {
        return format!(
            "{subject}this is not what was expected here, which is text in quotes; it is not shown, \
             as it may be secret"
        );
    }
    let (said, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    match expected_of(table, key, expected) {
        _ if message.contains("untagged enum") => {
            format!("{subject}this is none; expected {}", forms_of(table, key))
        }
        Some(words) => format!("{subject}{said}; expected {words}"),
        None => format!("{subject}{message}"),
    }
}

/// Returns the range that a key expects, in words, where a parser's error names a Rust type; `None`
/// if `expected` names no type of numbers.
fn expected_of(table: &str, key: &str, expected: &str) -> Option<String> {
    let most = match expected {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => u64::MAX,
        "f64" => return Some("a number".to_owned()),
        _ => return None,
    };
    Some(ranges::words(&ranges::of(table, key).unwrap_or(0..=most)))
}

/// Describes the forms of a key's value, for keys that take values of more than one form.
fn forms_of(table: &str, key: &str) -> String {
    match (table, key) {
        ("", "workers") => {
            format!(
                "a number from 1 to {WORKERS_MAX}, or two in quotes with .. between them, such as \"1..4\""
            )
        }
        ("subsystem", "namespaces") => {
            "the number or the name of a namespace, or { nsid = NUMBER, namespace = NUMBER }"
                .to_owned()
        }
        _ => "another form (docs/reference/configuration.md)".to_owned(),
    }
}

/// Returns `true` if a parser's message about these lines of a configuration may quote a secret.
fn quotes_a_secret(lines: &str, message: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if !lines.split(|c| !is_of_word(c)).any(|word| SECRETS.contains(&word)) {
        return false;
    }
    // As people wrote it or in other words, as a number may be.
    let has_value = ["invalid type", "invalid value"].iter().any(|kind| message.contains(kind));
    let mut quoted = message.split(['`', '"']).skip(1).step_by(2).filter(|word| !word.is_empty());
    has_value || quoted.any(|word| !SECRETS.contains(&word) && lines.contains(word))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;

    fn said_of(text: &str) -> String {
        Config::parse(text).unwrap_err().told(Some((Path::new("a.toml"), text)))
    }

    #[test]
    fn what_is_said_of_a_mistake_has_no_secret() {
        for secret_line in [
            "[[access]]\nrights = \"read\"\ntoken = \"hunter2\" x",
            "[[access]]\nrights = \"read\"\ntoken = hunter2",
            "[[access]]\nrights = \"read\"\ntoken = [\"hunter2\"]",
            "[[access]]\nrights = \"read\"\ntokn = \"hunter2\"",
            "[[access]]\nrights = \"read\"\ntoken = \"hunter2\ntenant = \"a\"",
            "access = [{ rights = \"read\", token = \"hunter2\", \"hunter2\" }]",
            "[[host]]\nnqn = \"nqn.a\"\nkey = \"DHHC-1:00:hunter2\"\nkey = \"hunter2\"",
            "[[host]]\nnqn = \"nqn.a\"\ncontroller_key = {hunter2 = \"hunter2\"}",
            "[[host]]\nnqn = \"nqn.a\"\nkey = '''\nhunter2\n",
        ] {
            let said = said_of(secret_line);
            assert!(!said.contains("hunter2") && said.contains("a.toml:"), "{secret_line}: {said}");
        }
        for number in ["4711", "0x1267", "4711.0", "4711-01-01"] {
            let said = said_of(&format!("[[access]]\nrights = \"read\"\ntoken = {number}\n"));
            assert!(!said.contains("4711") && said.starts_with("a.toml:3: "), "{said}");
        }
    }

    #[test]
    fn what_is_said_of_a_mistake_says_what_was_expected() {
        let said = said_of("[[listen]]\ntoken = \"a\"\n");
        assert!(said.contains("a.toml:2: ") && said.contains("`token`, expected `url`"), "{said}");
        // What is wrong with an entry as a whole names the entry, and once.
        let both = said_of("[[tenant]]\nname = \"gold\"\nlatency_us = 5\niops = 1\nweight = 2\n");
        assert!(both.starts_with("a.toml:1: tenant \"gold\": weight and cap_tokens are"), "{both}");
        let said = said_of("[limits]\n\ntenants = \"many\"\n");
        assert!(said.contains("a.toml:3: ") && said.contains("\"many\""), "{said}");
    }
}
