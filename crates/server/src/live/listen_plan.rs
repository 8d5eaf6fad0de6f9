//! The changes that turn the open listeners into the listeners of another configuration.

use contract::ListenerId;

use crate::listen::ListenAt;

/// The changes that a reload makes to listeners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListenPlan {
    /// The listeners to open, which have no identifier yet.
    pub(super) new: Vec<ListenAt>,
    /// The listeners to close.
    pub(super) gone: Vec<ListenerId>,
    /// The listeners that stay and get another number.
    pub(super) renumbered: Vec<(ListenerId, u16)>,
}

impl ListenPlan {
    /// Returns the changes from open listeners to wanted ones. A listener whose URL stays the same
    /// stays open, even if its number is another one now. `is_named` returns `true` for the number
    /// of a listener for which an operator has set an ANA state.
    ///
    /// # Errors
    /// Only a restart can make the changes, for the reason returned.
    pub(super) fn of(
        open: &[ListenAt],
        wanted: &[ListenAt],
        is_named: impl Fn(u16) -> bool,
    ) -> Result<ListenPlan, String> {
        let mut left: Vec<&ListenAt> = open.iter().collect();
        let mut plan = ListenPlan::default();
        let is_kept = |own: &ListenAt, at: &ListenAt| own.number == at.number && is_same(own, at);
        let others = wanted.iter().filter(|at| take(&mut left, |own| is_kept(own, at)).is_none());
        for at in others.collect::<Vec<_>>() {
            match take(&mut left, |own| is_same(own, at)) {
                Some(own) => plan.renumbered.push((own.id, at.number)),
                None => plan.new.push(at.clone()),
            }
        }
        for at in &plan.new {
            if let Some(own) = left.iter().find(|own| own.endpoint == at.endpoint && is_fixed(own))
            {
                return Err(format!(
                    "listener {} at {} would lead elsewhere; remove it with `nearflash listener rm {}` \
                     and reload again",
                    own.number, own.endpoint, own.number
                ));
            }
        }
        plan.gone = left.iter().map(|own| own.id).collect();
        let is_wrong = |own: &&ListenAt| match plan.number_of(own) {
            Some(number) => number != own.number && (is_named(own.number) || is_named(number)),
            None => is_named(own.number) && wanted.iter().any(|at| at.number == own.number),
        };
        match open.iter().find(is_wrong) {
            Some(own) => Err(format!(
                "listener {} at {} would get another number or leave its number to another, and \
                 `nearflash listener ana` has named one of the two; give the listeners their `number`",
                own.number, own.endpoint
            )),
            None => Ok(plan),
        }
    }

    /// Returns the number of an open listener after the changes; `None` if it closes.
    fn number_of(&self, own: &ListenAt) -> Option<u16> {
        let other = self.renumbered.iter().find(|(id, _)| *id == own.id);
        let stays = !self.gone.contains(&own.id);
        stays.then(|| other.map_or(own.number, |(_, number)| *number))
    }
}

/// Removes the first listener for which `is_it` is true from a list, and returns it; `None` if
/// there is none.
fn take<'a>(
    left: &mut Vec<&'a ListenAt>,
    is_it: impl Fn(&ListenAt) -> bool,
) -> Option<&'a ListenAt> {
    left.iter().position(|at| is_it(at)).map(|n| left.remove(n))
}

/// Returns true if two listeners differ in nothing but their numbers.
fn is_same(one: &ListenAt, other: &ListenAt) -> bool {
    ListenAt { number: other.number, id: other.id, ..one.clone() } == *other
}

/// Returns `true` if a listener's configuration fixes its address: it is not port 0, for which the
/// system chooses a port.
fn is_fixed(at: &ListenAt) -> bool {
    at.endpoint.internet().is_none_or(|address| address.port() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns listeners at these ports, with numbers from 1 and identifiers from 0.
    fn at(ports: &[u16]) -> Vec<ListenAt> {
        let one = |(n, port): (usize, &u16)| {
            let parsed = ListenAt::parse(&format!("nvme-tcp://127.0.0.1:{port}")).unwrap();
            ListenAt { number: n as u16 + 1, id: ListenerId::new(n as u16, 0), ..parsed }
        };
        ports.iter().enumerate().map(one).collect()
    }

    fn plan(open: &[u16], wanted: &[u16]) -> (Vec<u16>, Vec<u32>, Vec<(u32, u16)>) {
        let plan = ListenPlan::of(&at(open), &at(wanted), |_| false).unwrap();
        let new = plan.new.iter().map(|at| at.endpoint.internet().unwrap().port());
        let renumbered = plan.renumbered.iter().map(|(id, number)| (id.0, *number));
        (new.collect(), plan.gone.iter().map(|id| id.0).collect(), renumbered.collect())
    }

    #[test]
    fn listeners_that_stay_get_the_numbers_of_the_file() {
        assert_eq!(plan(&[1, 2], &[1, 2]), (vec![], vec![], vec![]));
        assert_eq!(plan(&[1, 2, 3], &[1, 3]), (vec![], vec![1], vec![(2, 2)]));
        assert_eq!(plan(&[1, 2], &[2, 1]), (vec![], vec![], vec![(1, 1), (0, 2)]));
        assert_eq!(plan(&[1], &[2]), (vec![2], vec![0], vec![]));
        assert_eq!(plan(&[1, 2, 3], &[1, 3, 4]), (vec![4], vec![1], vec![(2, 2)]));
        // Any free port: the first stays the first.
        assert_eq!(plan(&[0, 0], &[0]), (vec![], vec![1], vec![]));
    }

    #[test]
    fn a_listener_that_leads_elsewhere_needs_its_address_free() {
        let mut wanted = at(&[1, 2]);
        wanted[1].tenant = Some("gold".to_owned());
        let refused = ListenPlan::of(&at(&[1, 2]), &wanted, |_| false).unwrap_err();
        assert!(refused.contains("listener 2 at 127.0.0.1:2 would lead elsewhere"), "{refused}");
        let any = ListenPlan::of(&at(&[1, 0]), &[at(&[1, 0])[0].clone()], |_| true);
        assert_eq!(any.unwrap().gone, [ListenerId(1)], "nobody inherits its number");
    }

    #[test]
    fn what_was_said_of_a_listener_is_not_said_of_another() {
        for (open, wanted, named) in
            [(&[1, 2, 3][..], &[1, 3][..], 3), (&[1, 2, 3], &[1, 3], 2), (&[1], &[2], 1)]
        {
            let refused = ListenPlan::of(&at(open), &at(wanted), |number| number == named);
            assert!(refused.unwrap_err().contains("give the listeners their `number`"));
            assert!(ListenPlan::of(&at(open), &at(wanted), |number| number == 7).is_ok());
        }
    }
}
