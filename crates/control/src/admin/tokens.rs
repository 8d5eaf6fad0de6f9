//! Tokens by which operators elsewhere say who they are: a name, what it may do, and the token.
//!
//! A line each: `NAME read|change TOKEN`, or `sha256:` and the digest of the token in hexadecimal
//! instead of it; `#` begins a comment. Of a token only the digest is kept, so that none is in memory.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Tokens at most.
const TOKENS_MAX: usize = 256;

/// Bytes of a token: fewer can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Bytes of a token at most.
const TOKEN_BYTES_MAX: usize = 256;

/// What whoever has a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// See everything that the API shows.
    Read,
    /// And change it.
    Change,
}

/// See the module.
pub struct Tokens(Vec<Token>);

struct Token {
    name: String,
    right: Right,
    digest: [u8; 32],
}

impl fmt::Debug for Tokens {
    /// Digests of weak tokens can be guessed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| &token.name)).finish()
    }
}

impl Tokens {
    /// Understands a file.
    ///
    /// # Errors
    /// Names the line, and never what stands in it.
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
                return Err(format!("line {number}: its name or its token is there already"));
            }
            tokens.push(token);
        }
        match tokens.len() {
            0 => Err(format!("there is no token; expected {FORM}")),
            1..=TOKENS_MAX => Ok(Tokens(tokens)),
            more => Err(format!("{more} tokens; at most {TOKENS_MAX}")),
        }
    }

    /// Whose token this is, and what it may do. Takes as long for every token of its length.
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

/// How a line has to be.
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
