//! Responses to challenges (Base 8.13.5.4 and 8.13.5.5).

use alloc::vec::Vec;

use super::hash::Hash;
use super::secret::Secret;

/// The end that responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responder {
    /// The host responds, with its own key.
    Host,
    /// The controller responds, with its key for the host.
    Controller,
}

/// The input from which an end's response to a challenge is computed, except its key.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The end that responds.
    pub end: Responder,
    /// The negotiated hash.
    pub hash: Hash,
    /// The challenge, augmented with the shared secret if a Diffie-Hellman group was negotiated.
    pub challenge: &'a [u8],
    /// The sequence number that came with the challenge.
    pub sequence: u32,
    /// The identifier of the authentication transaction, which all its messages carry.
    pub transaction: u16,
    /// The host's qualified name (NQN).
    pub host: &'a str,
    /// The subsystem's qualified name (NQN).
    pub subsystem: &'a str,
}

impl Response<'_> {
    /// Returns the response of an end that has the key `secret`.
    pub fn with(&self, secret: &Secret) -> Vec<u8> {
        let (label, own, other): (&[u8], _, _) = match self.end {
            Responder::Host => (b"HostHost", self.host, self.subsystem),
            Responder::Controller => (b"Controller", self.subsystem, self.host),
        };
        // No secure channel is created from it.
        const CONCATENATION: [u8; 1] = [0];
        self.hash.keyed(
            &secret.transformed(own),
            &[
                self.challenge,
                &self.sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &CONCATENATION,
                label,
                own.as_bytes(),
                &[0],
                other.as_bytes(),
            ],
        )
    }
}

/// Returns the augmented challenge, which only the ends that share the value `shared` can compute
/// (Base 8.13.5.5). An empty value stands for no group and leaves the challenge unchanged.
pub fn augmented(hash: Hash, challenge: &[u8], shared: &[u8]) -> Vec<u8> {
    match shared {
        [] => challenge.to_vec(),
        _ => hash.keyed(&hash.digest(shared), &[challenge]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| std::format!("{byte:02x}")).collect()
    }

    /// Compares with values from an implementation of the formulas in another language.
    #[test]
    fn responses_are_those_of_the_formulas() {
        let key: Vec<u8> = (0..48).collect();
        let secret = Secret::new(&key, Some(Hash::Sha384)).unwrap();
        let response = |end| Response {
            end,
            hash: Hash::Sha256,
            challenge: &[0x11; 32],
            sequence: 0x0102_0304,
            transaction: 0x0506,
            host: "nqn.2026-01.io.nearflash:host1",
            subsystem: "nqn.2026-01.io.nearflash:disks",
        };
        assert_eq!(
            hex(&response(Responder::Host).with(&secret)),
            "312e08e24a545099705fcecc0814e2c2599e2fd85b1e93d1a450f98ed7567484"
        );
        assert_eq!(
            hex(&response(Responder::Controller).with(&secret)),
            "cfc4e41d8f358d8787e60b2b657a533c6aa93cc50f26baa10623f1bbd40daa1b"
        );
        assert_eq!(
            hex(&augmented(Hash::Sha256, &[0x11; 32], &[0x77; 256])),
            "4a6063f622b6ad4496b0084e6ce0f86b35c84f32476178a085ed8084f4d22545"
        );
        assert_eq!(augmented(Hash::Sha256, &[0x11; 32], &[]), [0x11; 32]);
    }
}
