//! Giving up the rights with which sockets at Ethernet cards are opened.

use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::Error;

/// The rights to packet sockets, to BPF programs at cards, and to load such programs.
const CARD_RIGHTS: [CapabilitySet; 3] =
    [CapabilitySet::NET_RAW, CapabilitySet::NET_ADMIN, CapabilitySet::BPF];

/// Gives up the rights to the network's cards, for the calling thread and for all threads that it
/// starts. Executing another program does not bring them back.
///
/// # Errors
/// Fails if the system refuses.
pub fn give_up_card_rights() -> Result<(), Error> {
    let fail = |e| Error::system("cannot give up the rights to the network's cards", e);
    set_no_new_privs(true).map_err(fail)?;
    let rights = CARD_RIGHTS.into_iter().fold(CapabilitySet::empty(), |all, one| all | one);
    for right in CARD_RIGHTS {
        // Only whoever may change the bounding set can, and others have no way back anyway.
        let _ = remove_capability_from_bounding_set(right);
    }
    let mut sets = capabilities(None).map_err(fail)?;
    let held = sets.effective | sets.permitted | sets.inheritable;
    if !held.intersects(rights) {
        return Ok(());
    }
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(rights);
    }
    set_capabilities(None, sets).map_err(fail)
}
