//! The newer process before it takes over: it asks for the inventory, and touches only what it was
//! given.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use contract::{Instant, ListenerId, NamespaceRemovals};
use control::Tenants;
use dataplane::Volume;
use flash::Spec;
use io::{Listener, Process, ProcessLink};
use proto::takeover::TakeoverKind;
use worker::Listeners;

use super::anew::{PeerServer, has_been_killed};
use super::hand_over::HandOver;
use super::inventory::{self, Hello, ServerInventory, SocketRecord};
use super::notify;
use super::socket::{Role, adopt, wanted};
use super::step::{STEP_MAX, step};
use super::take_over::{ReadySender, TakeOver};
use super::talk::{ChannelEnd, HandOverChannel};
use crate::config::ServerNamespace;
use crate::listen::ListenAt;
use crate::live::StateFileIdentity;
use crate::log;

/// A process that is about to take over.
pub(crate) struct Successor {
    talk: HandOverChannel,
    /// The predecessor's process, which owns the connections until the take-over.
    owner: Process,
    inventory: ServerInventory,
    /// The files of each of the predecessor's devices.
    files: Vec<Vec<OwnedFd>>,
    /// For each device of this process, the position of the same device in the predecessor's list;
    /// `None` if the predecessor does not have the device.
    found: Vec<Option<usize>>,
    /// The indices of devices in this process, by their indices in the predecessor.
    places: HashMap<usize, usize>,
    sockets: Vec<(SocketRecord, Option<OwnedFd>)>,
    /// The identifiers of listeners in this process, by the places that the same listeners have in
    /// the predecessor.
    listeners: HashMap<u16, ListenerId>,
    /// The permissions for the files of this process's sockets, by listener.
    modes: HashMap<ListenerId, u32>,
}

impl Successor {
    /// Asks the running server, whose upgrade socket is at `path`, to hand over. From then on that
    /// server refuses changes of its configuration. Returns `None` if that server was killed: this
    /// process then starts as if there had been none.
    ///
    /// # Errors
    /// Fails if there never was a server at the socket, or if the server refuses.
    pub(crate) fn knock(path: &Path) -> Result<Option<Successor>, String> {
        let link = match ProcessLink::connect(path) {
            Ok(link) => link,
            // A server that ends in order takes its socket with it.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                log::tell(
                    "the old process was killed; this one starts as after a crash".to_owned(),
                );
                return Ok(None);
            }
            Err(error) => {
                let path = path.display();
                return Err(format!("there is no server to take over from at {path}: {error}"));
            }
        };
        let mut end = PeerServer::default();
        match Successor::ask(link, &mut end) {
            Ok(successor) => Ok(Some(successor)),
            Err(why) => match has_been_killed(path, &end) {
                true => {
                    log::tell(format!("{why}; this process starts as after a crash"));
                    Ok(None)
                }
                false => Err(why),
            },
        }
    }

    /// Asks the server at the other end of the link to hand over.
    fn ask(link: ProcessLink, end: &mut PeerServer) -> Result<Successor, String> {
        let talk = HandOverChannel::new(link, STEP_MAX)?;
        let hello = serde_json::to_vec(&Hello::own()).map_err(|error| error.to_string())?;
        let own = Process::own().map_err(|error| format!("cannot show this process: {error}"))?;
        // Whoever does not listen any more has said why.
        let said = talk.send(TakeoverKind::Hello, 0, &hello, &[own.descriptor()]);
        step("successor", "hello");
        let refused = |over: ChannelEnd| format!("the server that runs is not taken over: {over}");
        let heard = talk.expect(TakeoverKind::Inventory);
        end.is_silent = matches!(heard, Err(ChannelEnd::Ended));
        let mut message = heard.map_err(refused)?;
        said?;
        let inventory: ServerInventory = serde_json::from_slice(&message.body)
            .map_err(|error| format!("the server that runs says otherwise what it is: {error}"))?;
        let owner = message.files.pop().ok_or("the server that runs does not show itself")?;
        let owner = Process::passed(owner);
        end.owner = owner.descriptor().try_clone_to_owned().ok().map(Process::passed);
        let refused = |why: String| {
            talk.stop(&why);
            format!("{why}; the server that runs goes on")
        };
        inventory.check_watched().map_err(refused)?;
        inventory.watchdog_interval().into_iter().for_each(notify::inherit_interval);
        let count = inventory.devices.iter().map(|device| device.files).sum();
        let mut files = receive(&talk, TakeoverKind::Files, count)?.into_iter();
        let files: Vec<Vec<OwnedFd>> = inventory
            .devices
            .iter()
            .map(|device| files.by_ref().take(device.files).collect())
            .collect();
        let sockets = receive(&talk, TakeoverKind::Listeners, inventory.sockets.len())?;
        let sockets =
            inventory.sockets.iter().cloned().zip(sockets.into_iter().map(Some)).collect();
        step("successor", "inventory");
        let (listeners, modes) = (HashMap::new(), HashMap::new());
        let (found, places) = (Vec::new(), HashMap::new());
        Ok(Successor { talk, owner, inventory, files, found, places, sockets, listeners, modes })
    }

    /// Finds the devices of this process among those of the predecessor, before any is opened.
    ///
    /// # Errors
    /// Fails if this process lacks a device of the older process.
    pub(crate) fn find_devices(&mut self, specs: &[Spec]) -> Result<(), String> {
        for spec in specs {
            let taken: Vec<usize> = self.found.iter().flatten().copied().collect();
            self.found.push(self.inventory.find_device(Volume::identity(spec).as_deref(), &taken));
        }
        self.places = self.inventory.places(&self.found)?;
        Ok(())
    }

    /// Takes the open files of device `n` from the predecessor; returns `None` if it has no such
    /// device.
    pub(crate) fn files(&mut self, n: usize) -> Option<Vec<OwnedFd>> {
        Some(std::mem::take(&mut self.files[self.found[n]?]))
    }

    /// Takes the predecessor's socket of this purpose and this configured address; `None` if it has
    /// none. The socket's file stays with the predecessor for now.
    pub(crate) fn socket(
        &mut self,
        is_it: impl Fn(&Role) -> bool,
        wanted: &str,
    ) -> Result<Option<Listener>, String> {
        let is_wanted = |at: &SocketRecord| is_it(&at.role) && at.wanted == wanted;
        let listener = adopt(&mut self.sockets, is_wanted)?;
        Ok(listener.inspect(|listener| listener.keep().give_away(true)))
    }

    /// Takes the predecessor's listener at this address; `None` if it has none.
    pub(crate) fn listener(&mut self, at: &ListenAt) -> Result<Option<Listener>, String> {
        self.socket(|role| matches!(role, Role::Listener(_)), &wanted(at))
    }

    /// Checks that this process continues with the operators' changes of the predecessor.
    pub(crate) fn check_state(&self, own: Option<&StateFileIdentity>) -> Result<(), String> {
        let checked = self.inventory.check_state(own);
        checked.map_err(|why| format!("{why}; the server that runs goes on"))
    }

    /// Checks that the new server can continue with the predecessor's connections, and registers
    /// the tenants that the predecessor's clients have made. Returns the listeners that the
    /// predecessor had closed, whose connections may move nevertheless.
    pub(crate) fn check(
        &mut self,
        spaces: &[ServerNamespace],
        listen: &[ListenAt],
        room: usize,
        tenants: &Tenants,
        known: &Listeners,
    ) -> Result<Vec<ListenAt>, String> {
        let checked = self.inventory.check(&self.places, spaces).and_then(|()| {
            self.inventory.check_room(room)?;
            self.listeners = self.inventory.listeners(listen)?;
            self.modes = listen.iter().map(|at| (at.id, at.mode)).collect();
            let (now, mut registry) = (tenants.now(), tenants.registry());
            self.inventory.make_tenants(&mut registry, now)?;
            let departed = self.inventory.departed(known, &registry)?;
            self.listeners.extend(departed.iter().map(|(there, at)| (*there, at.id)));
            Ok(departed.into_iter().map(|(_, at)| at).collect())
        });
        checked.map_err(|why| format!("{why}; the server that runs goes on"))
    }

    /// Returns the predecessor's record of removed namespaces, since its connections rely on it.
    ///
    /// # Errors
    /// Fails if the predecessor's record contradicts itself.
    pub(crate) fn removals(&self) -> Result<NamespaceRemovals, String> {
        let removals = self.inventory.removals();
        removals.ok_or_else(|| "the server that runs has removed what it never had".to_owned())
    }

    /// Returns the storage epoch of the predecessor; `None` if it reports none. A take-over loses
    /// no writes, so the epoch stays.
    pub(crate) fn storage_epoch(&self) -> Option<u32> {
        self.inventory.storage_epoch
    }

    /// Gives up the take-over: the predecessor continues.
    pub(crate) fn stop(&self, why: &str) {
        self.talk.stop(why);
    }

    /// Runs the take-over. `told` receives the result of its first part: the process serves, or it
    /// never will and ends.
    pub(super) fn take_over(self, hand_over: &mut HandOver, told: &ReadySender) -> Result<(), ()> {
        let unwanted = self.sockets.into_iter().filter_map(|(at, socket)| {
            let listener = Listener::adopt(socket?, inventory::endpoint(&at.is_at).ok()?).ok()?;
            listener.keep().give_away(true);
            Some(listener)
        });
        let mut take_over = TakeOver {
            unwanted: unwanted.collect(),
            modes: self.modes,
            places: self.places,
            grounds: hand_over.grounds(),
            hand_over,
            talk: self.talk,
            owner: self.owner,
            listeners: self.listeners,
            shown: HashMap::new(),
            controllers: HashMap::new(),
            landing: HashMap::new(),
            pauses: Vec::new(),
            began: Instant::ZERO,
            took: Duration::ZERO,
            serves: false,
            left: None,
        };
        let done = take_over.go(told);
        if let Err(why) = &done {
            take_over.talk.stop(why);
            let _ = told.send(Err(why.clone())); // the process may be ending already
        }
        done.map_err(drop)
    }
}

/// Receives messages of this kind until they have brought this many descriptors.
fn receive(
    talk: &HandOverChannel,
    kind: TakeoverKind,
    count: usize,
) -> Result<Vec<OwnedFd>, String> {
    let mut files = Vec::new();
    while files.len() < count {
        files.extend(talk.expect(kind)?.files);
    }
    match files.len() == count {
        true => Ok(files),
        false => Err(format!("{} descriptors came of {count}", files.len())),
    }
}
