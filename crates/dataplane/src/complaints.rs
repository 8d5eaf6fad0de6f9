//! Complaints: the reasons why workers could not carry out orders, for the control plane.
//!
//! A worker puts its complaint into a queue and continues. Only the control plane locks the
//! complaints that it has taken out of the queue.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use contract::ListenerId;

/// The subject of an order that a worker could not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderSubject {
    /// A listener at which the worker cannot listen.
    Listener(ListenerId),
    /// The index of a device that the worker cannot open.
    Device(usize),
}

type OrderError = (OrderSubject, String);

/// The errors that workers reported about orders: the queue into which all workers put them, and
/// those that the control plane has taken out of the queue but no caller has fetched.
#[derive(Debug)]
pub(crate) struct OrderErrors {
    sender: Sender<OrderError>,
    /// The receiving end of the queue, and the complaints that no caller has taken yet.
    heard: Mutex<(Receiver<OrderError>, Vec<OrderError>)>,
}

impl Default for OrderErrors {
    fn default() -> OrderErrors {
        let (sender, receiver) = channel();
        OrderErrors { sender, heard: Mutex::new((receiver, Vec::new())) }
    }
}

impl OrderErrors {
    /// Adds a worker's complaint about an order to the queue, with its reason. Never waits.
    pub(crate) fn add(&self, about: OrderSubject, why: String) {
        self.sender.send((about, why)).expect("both ends live equally long");
    }

    /// Takes the complaints about a subject, and returns the first one; `None` if there is none.
    /// Complaints about other subjects stay.
    pub(crate) fn take(&self, about: OrderSubject) -> Option<String> {
        let mut heard = self.heard.lock().expect("no holder panics");
        let (receiver, kept) = &mut *heard;
        kept.extend(receiver.try_iter());
        let mut taken = kept.extract_if(.., |(subject, _)| *subject == about);
        let (_, why) = taken.next()?;
        taken.for_each(drop);
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a complaint that nobody waits for any more is not taken for one about another
    /// device.
    #[test]
    fn what_a_worker_says_of_a_device_is_taken_for_no_other() {
        let complaints = OrderErrors::default();
        let (three, four) = (OrderSubject::Device(3), OrderSubject::Device(4));
        complaints.add(three, "late".to_owned());
        assert_eq!(complaints.take(four), None);
        complaints.add(four, "why".to_owned());
        complaints.add(four, "why not".to_owned());
        assert_eq!(complaints.take(four), Some("why".to_owned()));
        assert_eq!((complaints.take(four), complaints.take(three)), (None, Some("late".into())));
        complaints.add(OrderSubject::Listener(ListenerId(4)), "deaf".to_owned());
        assert_eq!(complaints.take(four), None);
    }
}
