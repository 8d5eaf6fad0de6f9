//! `[[listen]]`: the listeners' addresses and numbers.

use contract::ListenerId;

use spec::Listener;

use super::{Config, Mistakes, Place};
use crate::listen::{DEFAULT_URL, ListenAt, NUMBER_MAX};

/// The URL of the stand-in for a listener whose URL is invalid. References to the listener stay
/// valid.
const NOWHERE: &str = "nvme-tcp://127.0.0.1:0";

impl Config {
    /// Returns the listeners, sorted by number.
    ///
    /// # Errors
    /// Fails with all URLs and numbers that are invalid.
    pub(crate) fn listeners(&self) -> Result<Vec<ListenAt>, Mistakes> {
        Mistakes::collect(|mistakes| self.listeners_or(mistakes))
    }

    /// Returns the listeners, sorted by number. An invalid URL or number adds to `mistakes`; a
    /// loopback listener stands in for an invalid URL.
    pub(crate) fn listeners_or(&self, mistakes: &mut Mistakes) -> Vec<ListenAt> {
        let mut all: Vec<ListenAt> = Vec::new();
        for (config, position) in self.numbered_listeners(&[]).iter().zip(1..) {
            let number = config.number.expect("it was numbered");
            let parsed =
                ListenAt::parse(&config.url).map_err(|error| format!("listen {position}: {error}"));
            let at = mistakes.take(config.nth.key("listen", "url"), parsed);
            let at = at.unwrap_or_else(|| ListenAt::parse(NOWHERE).expect("it is a URL"));
            let of_number = config.nth.key("listen", "number");
            if let Err((_, error)) = config.validate() {
                mistakes.add(of_number, format!("listen {position}: {error}"));
            } else if let Some(other) = all.iter().find(|other| other.number == number) {
                let other = &other.endpoint;
                mistakes.add(
                    of_number,
                    format!(
                        "listen {position}: number {number} is that of {other}; expected one that no \
                         other listener has"
                    ),
                );
            } else {
                all.push(ListenAt { number, id: ListenerId(number - 1), ..at });
            }
        }
        all.sort_by_key(|at| at.number);
        all
    }

    /// Returns the place in the file of the listener that has this number in its entry.
    pub(crate) fn place_of_listener(&self, number: u16) -> Option<Place> {
        let found = self.listen.iter().find(|one| one.number == Some(number))?;
        found.nth.key("listen", "url")
    }

    /// Returns the listeners with their numbers, in their order, or the default listener if none is
    /// configured. A listener without a number gets its position as its number. If another listener
    /// has that number, or it is among the numbers `added` while servers ran, the listener gets the
    /// next free number after all positions.
    pub(crate) fn numbered_listeners(&self, added: &[u16]) -> Vec<Listener> {
        let mut all = match self.listen.is_empty() && !self.is_settled {
            true => vec![Listener::from_argument(DEFAULT_URL)],
            false => self.listen.clone(),
        };
        let mut taken: Vec<u16> = added.to_vec();
        taken.extend(all.iter().filter_map(|one| one.number));
        let mut behind = all.len() as u16;
        for (one, place) in all.iter_mut().zip(1..).filter(|(one, _)| one.number.is_none()) {
            let mut number = place;
            while taken.contains(&number) {
                behind = behind.saturating_add(1);
                number = behind;
                if behind > NUMBER_MAX {
                    break;
                }
            }
            one.number = Some(number);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str, added: &[u16]) -> Vec<u16> {
        let config = Config::parse(text).unwrap();
        config.numbered_listeners(added).iter().filter_map(|one| one.number).collect()
    }

    const THREE: &str = "[[listen]]\nurl = \"reflex://127.0.0.1:1\"\n\
                         [[listen]]\nurl = \"reflex://127.0.0.1:2\"\n\
                         [[listen]]\nurl = \"reflex://127.0.0.1:3\"\n";

    #[test]
    fn a_number_is_told_or_its_place() {
        assert_eq!(numbers("", &[]), [1]);
        assert_eq!(numbers(THREE, &[]), [1, 2, 3]);
        assert_eq!(numbers(THREE, &[2, 4]), [1, 5, 3], "whoever was added keeps its number");
        let told = THREE.replacen("127.0.0.1:1\"", "127.0.0.1:1\"\nnumber = 3", 1);
        assert_eq!(numbers(&told, &[]), [3, 2, 4]);
        let order: Vec<u16> =
            Config::parse(&told).unwrap().listeners().unwrap().iter().map(|at| at.number).collect();
        assert_eq!(order, [2, 3, 4]);
    }

    #[test]
    fn a_number_that_cannot_be_is_explained() {
        for (number, word) in [("0", "from 1 to"), ("5000", "from 1 to 4096"), ("2", "that of")] {
            let text = THREE
                .replacen("127.0.0.1:1\"", &format!("127.0.0.1:1\"\nnumber = {number}"), 1)
                .replacen("127.0.0.1:2\"", "127.0.0.1:2\"\nnumber = 2", 1);
            let error = Config::parse(&text).unwrap().listeners().unwrap_err().to_string();
            assert!(error.starts_with("listen ") && error.contains(word), "{number}: {error}");
        }
    }
}
