//! What is said of a file that cannot be understood: the line and what was expected, and nothing of
//! what stands there, which may be a token or a key.

/// The fields that are secret.
const SECRETS: [&str; 3] = ["token", "key", "controller_key"];

/// The place of a mistake and what it is.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let Some(span) = error.span() else { return message.to_owned() };
    let (start, end) = (span.start.min(text.len()), span.end.min(text.len()));
    let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let to = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let (line, column) = (text[..start].matches('\n').count() + 1, start - from + 1);
    match quotes_a_secret(&text[from..to], message) {
        true => format!(
            "line {line}, column {column}: this is not what was expected here, which is text in \
             quotes; it is not shown, as it may be secret"
        ),
        false => format!("line {line}, column {column}: {message}"),
    }
}

/// Whether a message about these lines may have a secret in it.
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
    use super::super::Config;

    fn said_of(text: &str) -> String {
        Config::parse(text).unwrap_err()
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
            assert!(!said.contains("hunter2") && said.contains("line "), "{secret_line}: {said}");
        }
        for number in ["4711", "0x1267", "4711.0", "4711-01-01"] {
            let said = said_of(&format!("[[access]]\nrights = \"read\"\ntoken = {number}\n"));
            assert!(!said.contains("4711") && said.contains("line 3, column 9"), "{said}");
        }
    }

    #[test]
    fn what_is_said_of_a_mistake_says_what_was_expected() {
        let said = said_of("[[listen]]\ntoken = \"a\"\n");
        assert!(said.contains("line 2") && said.contains("`token`, expected `url`"), "{said}");
        let said = said_of("[limits]\n\ntenants = \"many\"\n");
        assert!(said.contains("line 3, column 11") && said.contains("\"many\""), "{said}");
    }
}
