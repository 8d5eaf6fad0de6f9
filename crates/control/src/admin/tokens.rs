//! The tokens of operators on other machines: each has a name and a right.
//!
//! The file has one line per token: `NAME read|change TOKEN`, or `sha256:` and the token's digest
//! in hexadecimal instead of the token. A line that begins with `#` is a comment. Only digests are
//! kept, so that memory holds no token.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Maximum number of tokens.
const TOKENS_MAX: usize = 256;

/// Minimum length of a token in bytes: shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Maximum length of a token in bytes.
const TOKEN_BYTES_MAX: usize = 256;

/// The right of a token's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Reads everything that the API shows.
    Read,
    /// Reads and changes.
    Change,
}

/// The operators' tokens of one file, as digests with names and rights.
pub struct Tokens(Vec<Token>);

struct Token {
    name: String,
    right: Right,
    digest: [u8; 32],
}

impl fmt::Debug for Tokens {
    /// Omits the digests, since digests of weak tokens can be guessed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| &token.name)).finish()
    }
}

impl Tokens {
    /// Parses the text of a file of tokens.
    ///
    /// # Errors
    /// Fails with the number of a faulty line and the fault, never with the line's text.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens: Vec<Token> = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = Token::parse(line).map_err(|error| format!("line {number}: {error}"))?;
            let is_same = |other: &Token| other.name == token.name || other.digest == token.digest;
            if tokens.iter().any(is_same) {
                return Err(format!("line {number}: its name or its token is used already"));
            }
            tokens.push(token);
        }
        match tokens.len() {
            0 => Err(format!("there is no token; expected {FORM}")),
            1..=TOKENS_MAX => Ok(Tokens(tokens)),
            more => Err(format!("{more} tokens; at most {TOKENS_MAX}")),
        }
    }

    /// Returns the name and the right of a token; `None` if the token is unknown. Takes equal time
    /// for all tokens of the same length.
    pub(super) fn find(&self, token: &[u8]) -> Option<(&str, Right)> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for token in &self.0 {
            if token.digest.ct_eq(&digest).into() {
                found = Some((token.name.as_str(), token.right));
            }
        }
        found
    }
}

/// The form of a line, for messages.
const FORM: &str = "lines of NAME read|change TOKEN, or sha256:DIGEST for the token";

impl Token {
    fn parse(line: &str) -> Result<Token, String> {
        let form = || format!("expected {FORM}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, right, token] = words[..] else { return Err(form()) };
        if name.len() > 64 {
            return Err("a name has at most 64 bytes".to_owned());
        }
        let right = match right {
            "read" => Right::Read,
            "change" => Right::Change,
            _ => return Err(form()),
        };
        let digest = match token.strip_prefix("sha256:") {
            Some(text) => hexadecimal(text).ok_or("a SHA-256 has 64 hexadecimal digits")?,
            None if (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) => {
                Sha256::digest(token).into()
            }
            None => {
                return Err(format!("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes"));
            }
        };
        Ok(Token { name: name.to_owned(), right, digest })
    }
}

fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# who\n\nann change a-token-of-ann-0123\n\
        bob read sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\n";

    #[test]
    fn tokens_are_found_by_their_digests() {
        let tokens = Tokens::parse(FILE).unwrap();
        assert_eq!(tokens.find(b"a-token-of-ann-0123"), Some(("ann", Right::Change)));
        assert_eq!(tokens.find(b"password"), Some(("bob", Right::Read)));
        assert_eq!(tokens.find(b"a-token-of-ann-0124"), None);
        assert_eq!(tokens.find(b""), None);
        assert_eq!(format!("{tokens:?}"), "[\"ann\", \"bob\"]");
    }

    #[test]
    fn mistakes_name_the_line_and_no_token() {
        for (text, words) in [
            ("", "there is no token"),
            ("ann change", "line 1: expected"),
            ("\nann write a-token-of-ann-0123", "line 2: expected"),
            ("ann read short-secret", "16 to 256"),
            ("ann read sha256:00ff", "64 hexadecimal"),
            ("a read a-token-of-ann-0123\nb change a-token-of-ann-0123", "line 2: its name"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("secret") && !error.contains("a-token"), "{error}");
        }
    }
}
