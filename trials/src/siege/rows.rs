//! The attacks of the table, as connections of each kind of attack.

use super::attack_kind::AttackKind::{
    self, Greeter, HalfHello, HalfPayload, Huge, Noise, NvmeConnect, NvmeHalf, NvmeSilent, Reset,
    Silent, Slow, Unread, UnreadOld,
};

/// An attack: so many connections of each kind of attack, all of one tenant without a promise.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) attacks: &'static [(AttackKind, usize)],
}

#[rustfmt::skip]
pub(super) const ALL: &[Row] = &[
    Row { name: "unread-800-half-800", attacks: &[(Unread, 800), (HalfPayload, 800)] },
    Row { name: "unread-60-half-400", attacks: &[(Unread, 60), (HalfPayload, 400)] },
    Row { name: "unread-200-half-200", attacks: &[(Unread, 200), (HalfPayload, 200)] },
    Row { name: "unread-800", attacks: &[(Unread, 800)] },
    Row { name: "half-800", attacks: &[(HalfPayload, 800)] },
    Row { name: "unread-400-half-60", attacks: &[(Unread, 400), (HalfPayload, 60)] },
    Row { name: "unread-50-half-50", attacks: &[(Unread, 50), (HalfPayload, 50)] },
    Row { name: "mix", attacks: &[
        (Silent, 1500), (Greeter, 1500), (Slow, 1500), (HalfHello, 1200),
        (HalfPayload, 800), (Unread, 800), (UnreadOld, 400), (Noise, 500), (Huge, 500),
        (NvmeSilent, 700), (NvmeHalf, 500), (NvmeConnect, 400), (Reset, 400),
    ] },
];

impl Row {
    /// Returns the number of connections.
    pub(super) fn connections(&self) -> usize {
        self.attacks.iter().map(|(_, count)| count).sum()
    }

    /// Returns the attack in words.
    pub(super) fn about(&self) -> String {
        match self.attacks {
            [one] => format!("{} {}", one.1, one.0.word()),
            [one, other] => {
                format!("{} {}, {} {}", one.1, one.0.word(), other.1, other.0.word())
            }
            _ => format!("{} connections of {} kinds", self.connections(), self.attacks.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_attacks() {
        let words: Vec<String> = ALL.iter().map(Row::about).collect();
        assert_eq!(words[1], "60 unread, 400 half payloads");
        assert_eq!(words[3], "800 unread");
        assert_eq!(words[7], "10700 connections of 13 kinds");
    }
}
