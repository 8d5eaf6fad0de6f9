//! The switch between the worker that serves a volume and the thread that hands the volume over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// The state that a volume should be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DesiredState {
    /// A worker serves the volume.
    Service,
    /// The volume comes to rest and takes no requests.
    Rest,
    /// Another process has the volume: this one begins nothing at it any more.
    Nothing,
    /// Another process will hand the volume over.
    Arrival,
}

/// The progress of a volume that should rest.
const AWAITED: u8 = 0;
const REACHED: u8 = 1;
const NEVER: u8 = 2;

/// The switch of a volume.
#[derive(Debug)]
pub(crate) struct VolumeSwitch {
    wanted: AtomicU8,
    rest: AtomicU8,
    /// The state of the volume at rest, until it is taken.
    state: Mutex<Vec<u8>>,
}

impl VolumeSwitch {
    pub(super) fn new(wanted: DesiredState) -> VolumeSwitch {
        let (wanted, rest) = (AtomicU8::new(wanted as u8), AtomicU8::new(AWAITED));
        VolumeSwitch { wanted, rest, state: Mutex::default() }
    }

    pub(super) fn wanted(&self) -> DesiredState {
        const ALL: [DesiredState; 4] = [
            DesiredState::Service,
            DesiredState::Rest,
            DesiredState::Nothing,
            DesiredState::Arrival,
        ];
        ALL[usize::from(self.wanted.load(Ordering::Acquire))]
    }

    /// Asks the worker for a state.
    pub(super) fn want(&self, wanted: DesiredState) {
        self.rest.store(AWAITED, Ordering::Release);
        self.wanted.store(wanted as u8, Ordering::Release);
    }

    /// Returns `true` if the volume rests or never will.
    pub(super) fn is_over(&self) -> bool {
        self.rest.load(Ordering::Acquire) != AWAITED
    }

    /// Says that the volume rests, with its state.
    pub(super) fn rests(&self, state: Vec<u8>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.rest.store(REACHED, Ordering::Release);
    }

    /// Says that the volume never rests.
    pub(super) fn never_rests(&self) {
        self.rest.store(NEVER, Ordering::Release);
    }

    /// Takes the state of the volume if it rests; returns `None` if it does not yet.
    ///
    /// # Errors
    /// The volume never rests.
    pub(super) fn take(&self) -> Result<Option<Vec<u8>>, String> {
        match self.rest.load(Ordering::Acquire) {
            AWAITED => Ok(None),
            REACHED => {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Some(std::mem::take(&mut *state)))
            }
            _ => Err("a volume is read-only after a failure of its member".to_owned()),
        }
    }
}
