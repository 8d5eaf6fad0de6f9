//! `[[listen]]`: where a server listens, and the listeners' numbers.

use contract::ListenerId;

use super::{Config, ListenConfig};
use crate::listen::{DEFAULT_URL, ListenAt, NUMBER_MAX};

impl Config {
    /// Where to listen, by number.
    ///
    /// # Errors
    /// What is wrong with a URL or a number.
    pub(crate) fn listeners(&self) -> Result<Vec<ListenAt>, String> {
        let mut all: Vec<ListenAt> = Vec::new();
        for (config, position) in self.numbered_listeners(&[]).iter().zip(1..) {
            let number = config.number.expect("it was numbered");
            if !(1..=NUMBER_MAX).contains(&number) {
                return Err(format!(
                    "listen {position}: number {number}; expected a number from 1 to {NUMBER_MAX}"
                ));
            }
            if let Some(other) = all.iter().find(|other| other.number == number) {
                let other = &other.endpoint;
                return Err(format!("listen {position}: number {number} is that of {other}"));
            }
            let id = ListenerId(number - 1);
            all.push(ListenAt { number, id, ..ListenAt::parse(&config.url)? });
        }
        all.sort_by_key(|at| at.number);
        Ok(all)
    }

    /// The listeners with their numbers, in their order; the default one unless told. Whose place is
    /// the number of another one, or of one of those that were `added` while servers ran, has the next
    /// number behind them that is free.
    pub(crate) fn numbered_listeners(&self, added: &[u16]) -> Vec<ListenConfig> {
        let mut all = match self.listen.is_empty() && !self.is_settled {
            true => vec![ListenConfig::from_argument(DEFAULT_URL)],
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
            let error = Config::parse(&text).unwrap().listeners().unwrap_err();
            assert!(error.starts_with("listen ") && error.contains(word), "{number}: {error}");
        }
    }
}
