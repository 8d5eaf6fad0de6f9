//! The predecessor's inventory as it is sent to the successor: JSON bodies of `proto::takeover`.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use contract::{ListenerId, NamespaceId, NamespaceRemovals, TenantId};
use control::{HeldTokens, Origin, TenantInfo, TenantRegistry};
use dataplane::{OpenDevice, Volume};
use io::Endpoint;
use qos::Holding;
use serde::{Deserialize, Serialize};
use worker::{Listeners, Namespaces};

use super::notify;
use super::socket::{Role, wanted};
use crate::config::ServerNamespace;
use crate::listen::{ListenAt, NUMBER_MAX, Protocol, url};
use crate::live::StateFileIdentity;
use crate::tenancy::{lead, register, register_again};

/// The identity of a process that takes part in a take-over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The version of the program.
    pub(super) version: String,
    pub(super) pid: u32,
}

impl Hello {
    pub(super) fn own() -> Hello {
        Hello { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() }
    }
}

/// The inventory of a server, which does not change during a take-over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ServerInventory {
    pub(super) owner: Hello,
    pub(super) devices: Vec<DeviceRecord>,
    spaces: Vec<NamespaceRecord>,
    /// The number of namespaces removed so far.
    removals: u64,
    /// The numbers of removed namespaces, each with the ordinal of its last removal.
    removed: Vec<(u16, u64)>,
    pub(super) sockets: Vec<SocketRecord>,
    /// Closed listeners of the server that may still have connections.
    #[serde(default)]
    pub(super) departed: Vec<ClosedListener>,
    tenants: Vec<ClientTenant>,
    /// The number of connections of the server.
    pub(super) connections: usize,
    /// The state file with the operators' changes.
    pub(super) state: Option<StateFileIdentity>,
    /// `true` if a service manager watches the server.
    is_watched: bool,
    /// The time without a sign of life after which the service manager ends the server, in
    /// microseconds; `None` if it waits for no sign.
    #[serde(default)]
    watchdog_us: Option<u64>,
    /// The storage epoch that was reported to clients.
    #[serde(default)]
    pub(super) storage_epoch: Option<u32>,
}

/// A device, and the number of descriptors that are passed for it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DeviceRecord {
    pub(super) identity: String,
    /// The device's index, by which namespaces and connections refer to it. By default its position
    /// in the list.
    #[serde(default)]
    place: Option<usize>,
    pub(super) files: usize,
    /// The version of the state by which the device is handed over; `None` if it has none.
    #[serde(default)]
    state: Option<u32>,
}

/// A namespace of the predecessor: its number, and its range of blocks on a device.
#[derive(Debug, Serialize, Deserialize)]
struct NamespaceRecord {
    number: u16,
    device: usize,
    first: u64,
    blocks: u64,
}

/// A listening socket of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SocketRecord {
    /// The purpose of the socket.
    pub(super) role: Role,
    /// The configured address, as a URL without options for a client's listener.
    pub(super) wanted: String,
    /// The address to which the socket is bound.
    pub(super) is_at: String,
}

/// A closed listener of the predecessor that may still have connections.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClosedListener {
    /// The listener's place in the predecessor's table of listeners, by which connections refer to
    /// the listener.
    listener: u16,
    number: u16,
    url: String,
    namespace: u16,
    tenant: Option<String>,
}

impl ClosedListener {
    pub(super) fn of(at: &ListenAt) -> ClosedListener {
        let (namespace, tenant) = (at.namespace.0, at.tenant.clone());
        ClosedListener {
            listener: at.id.place(),
            number: at.number,
            url: wanted(at),
            namespace,
            tenant,
        }
    }

    fn at(&self) -> Option<ListenAt> {
        let (namespace, tenant) = (NamespaceId(self.namespace), self.tenant.clone());
        let parsed = ListenAt::parse(&self.url).ok()?;
        Some(ListenAt { number: self.number, namespace, tenant, ..parsed })
    }
}

/// A tenant that a client has registered.
#[derive(Debug, Serialize, Deserialize)]
struct ClientTenant {
    tenant: spec::Tenant,
    /// The name of the tenant that the client belongs to.
    maker: String,
}

/// The predecessor's report after everything that can move has moved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct FinalReport {
    /// The names of clients' connections that the predecessor still has: tenant, client in
    /// hexadecimal, connection.
    pub(super) names: Vec<(String, String, u32)>,
    /// The number of connections that stay with the predecessor.
    pub(super) connections: usize,
    /// The tokens that tenants have spent beyond their reported holdings.
    #[serde(default)]
    pub(super) spent: Vec<HoldingRecord>,
}

/// The holdings of a tenant at a device, in nano-units (`qos::Holding`).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HoldingRecord {
    tenant: String,
    /// The index of the device in the predecessor.
    device: usize,
    balance: i64,
    allowance: i64,
}

impl HoldingRecord {
    pub(super) fn of(held: &HeldTokens) -> HoldingRecord {
        let HeldTokens { tenant, device, holding: Holding { balance, allowance } } = held.clone();
        HoldingRecord { tenant, device, balance, allowance }
    }

    /// Translates the holding to this process's devices. Returns `None` if the device is not among
    /// them.
    pub(super) fn here(self, places: &HashMap<usize, usize>) -> Option<HeldTokens> {
        let HoldingRecord { tenant, device, balance, allowance } = self;
        let device = *places.get(&device)?;
        Some(HeldTokens { tenant, device, holding: Holding { balance, allowance } })
    }
}

/// Returns the open files of a device, which are passed to the successor.
///
/// # Errors
/// Fails if the device's state can only be dealt with by a restart.
pub(super) fn files(disk: &OpenDevice) -> Result<Vec<BorrowedFd<'_>>, String> {
    let files = disk.volume.files();
    files.map_err(|why| format!("device {}: {why}; restart this server instead", disk.place + 1))
}

/// Formats the address of a listening socket as text that [`endpoint`] parses.
pub(super) fn place(endpoint: &Endpoint) -> String {
    url(Protocol::Reflex, endpoint)
}

/// Parses the address of a listening socket that [`place`] formatted.
pub(super) fn endpoint(place: &str) -> Result<Endpoint, String> {
    Ok(ListenAt::parse(place)?.endpoint)
}

impl ServerInventory {
    /// Returns the inventory of a server.
    ///
    /// # Errors
    /// Another process cannot serve a part of the server.
    pub(super) fn of(
        disks: &[OpenDevice],
        spaces: &[ServerNamespace],
        sockets: Vec<SocketRecord>,
        tenants: &[TenantInfo],
    ) -> Result<ServerInventory, String> {
        let device = |disk: &OpenDevice| match Volume::identity(disk.volume.spec()) {
            Some(identity) => {
                let place = Some(disk.place);
                let state = Volume::state_format(disk.volume.spec());
                Ok(DeviceRecord { identity, place, files: files(disk)?.len(), state })
            }
            None => Err(format!(
                "device {} is memory of the process that runs, so no other can take it over; restart \
                 it instead",
                disk.place + 1
            )),
        };
        let space = |space: &ServerNamespace| NamespaceRecord {
            number: space.number.0,
            device: space.place.device,
            first: space.place.first,
            blocks: space.place.blocks,
        };
        let name = |tenant: TenantId| {
            let info = tenants.iter().find(|info| info.tenant == tenant);
            info.map_or(TenantRegistry::DEFAULT, |info| info.name.as_str()).to_owned()
        };
        let client = |info: &TenantInfo| match info.origin {
            Origin::Client(maker) if info.state == control::State::Active => {
                Some(ClientTenant { tenant: info.spec(), maker: name(maker) })
            }
            _ => None,
        };
        Ok(ServerInventory {
            owner: Hello::own(),
            devices: disks.iter().map(device).collect::<Result<_, _>>()?,
            spaces: spaces.iter().map(space).collect(),
            removals: 0,
            removed: Vec::new(),
            sockets,
            departed: Vec::new(),
            tenants: tenants.iter().filter_map(client).collect(),
            connections: 0,
            state: None,
            is_watched: notify::is_watched(),
            watchdog_us: notify::interval().map(|interval| interval.as_micros() as u64),
            storage_epoch: None,
        })
    }

    /// Sets which namespaces were removed.
    pub(super) fn set_removals(&mut self, removals: &NamespaceRemovals) {
        self.removals = removals.count();
        self.removed = removals.iter().map(|(number, after)| (number.0, after)).collect();
    }

    /// Returns which namespaces were removed, or `None` if the inventory contradicts itself.
    pub(super) fn removals(&self) -> Option<NamespaceRemovals> {
        let is_number = |(number, _): &(u16, u64)| *number <= Namespaces::NUMBER_MAX;
        let removals = NamespaceRemovals::from_parts(self.removals, &self.removed);
        removals.filter(|_| self.removed.iter().all(is_number))
    }

    /// Returns the position, in the predecessor's list, of a device that has this identity and is
    /// not among `found`; `None` if there is none.
    pub(super) fn find_device(&self, identity: Option<&str>, found: &[usize]) -> Option<usize> {
        let is_it = |n: &usize| Some(self.devices[*n].identity.as_str()) == identity;
        (0..self.devices.len()).find(|n| is_it(n) && !found.contains(n))
    }

    /// Returns the predecessor's index of the device at position `n` of the list.
    fn place_of(&self, n: usize) -> usize {
        self.devices[n].place.unwrap_or(n)
    }

    /// Returns this process's indices of the devices, by their indices in the predecessor. `found`
    /// has, for each device of this process, its position in the predecessor's list.
    ///
    /// # Errors
    /// Fails if a device of the older process is missing here.
    pub(super) fn places(&self, found: &[Option<usize>]) -> Result<HashMap<usize, usize>, String> {
        let own = |n: usize| {
            let DeviceRecord { identity, state, .. } = &self.devices[n];
            if state.is_some_and(|state| state != Volume::STATE_FORMAT) {
                return Err(format!(
                    "the server that runs hands the device {identity} over in another format; \
                     restart it instead: the volume is closed and opened again"
                ));
            }
            let place = found.iter().position(|there| *there == Some(n)).ok_or_else(|| {
                format!(
                    "the server that runs has the device {identity}, which is missing in this \
                     configuration; the server that runs goes on"
                )
            });
            Ok((self.place_of(n), place?))
        };
        (0..self.devices.len()).map(own).collect()
    }

    /// Checks that this process has the namespaces that the predecessor's connections expect.
    /// `places` maps the predecessor's device indices to the ones of this process.
    ///
    /// # Errors
    /// A namespace differs or is missing.
    pub(super) fn check(
        &self,
        places: &HashMap<usize, usize>,
        spaces: &[ServerNamespace],
    ) -> Result<(), String> {
        for space in &self.spaces {
            let own = spaces.binary_search_by_key(&space.number, |own| own.number.0);
            let fits = own.is_ok_and(|own| {
                let own = &spaces[own];
                let (place, device) = (own.place, places.get(&space.device));
                (Some(&place.device), place.first) == (device, space.first)
                    && place.blocks >= space.blocks
            });
            if !fits {
                return Err(format!(
                    "namespace {} would be gone, elsewhere or smaller in this configuration",
                    space.number
                ));
            }
        }
        Ok(())
    }

    /// Returns the time without a sign of life after which the service manager ends the server;
    /// `None` if it waits for no sign.
    pub(super) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_us.map(Duration::from_micros)
    }

    /// Checks that the service manager that watches the predecessor will watch this process.
    ///
    /// # Errors
    /// The manager would take the predecessor's end for the end of the service.
    pub(super) fn check_watched(&self) -> Result<(), String> {
        match self.is_watched && !notify::is_watched() {
            true => Err("a service manager watches the server that runs, and would not know this \
                         one: have it do the upgrade (systemctl reload nearflash)"
                .to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that this process continues with the operators' changes of the predecessor.
    ///
    /// # Errors
    /// The predecessor keeps its changes elsewhere, or the changes differ.
    pub(super) fn check_state(&self, own: Option<&StateFileIdentity>) -> Result<(), String> {
        let is_same = match (&self.state, own) {
            (Some(old), Some(own)) => own.is_same(old),
            (None, Some(own)) => own.is_new(),
            (None, None) => true,
            (Some(_), None) => false,
        };
        if is_same {
            return Ok(());
        }
        let place = |state: Option<&StateFileIdentity>| {
            state.map_or("nowhere".to_owned(), |state| state.path.display().to_string())
        };
        Err(format!(
            "the server that runs keeps what operators change in {}, and this one would in {}: have \
             the service manager do the upgrade (systemctl reload nearflash), or name the same file \
             with --state",
            place(self.state.as_ref()),
            place(own)
        ))
    }

    /// Checks that this process has room for all connections.
    ///
    /// # Errors
    /// Fails if there are more than `most` connections.
    pub(super) fn check_room(&self, most: usize) -> Result<(), String> {
        match self.connections <= most {
            true => Ok(()),
            false => Err(format!(
                "the server that runs has {} connections, and this one has room for {most} \
                 (limits.connections, ulimit -n)",
                self.connections
            )),
        }
    }

    /// Returns this process's identifiers of the listeners, by their places in the older process.
    ///
    /// # Errors
    /// Fails if a listener of the older process is missing here.
    pub(super) fn listeners(&self, own: &[ListenAt]) -> Result<HashMap<u16, ListenerId>, String> {
        let mut found = HashMap::new();
        let mut taken = vec![false; own.len()];
        for socket in &self.sockets {
            let Role::Listener(number) = socket.role else { continue };
            if found.contains_key(&number) {
                // One that receives packets has a socket for each worker.
                continue;
            }
            let is_it = |(n, at): (usize, &ListenAt)| !taken[n] && wanted(at) == socket.wanted;
            let Some(at) = own.iter().enumerate().position(is_it) else {
                return Err(format!(
                    "the server that runs listens at {}, and this configuration does not",
                    socket.wanted
                ));
            };
            taken[at] = true;
            found.insert(number, own[at].id);
        }
        Ok(found)
    }

    /// Registers the listeners that the predecessor had closed, under identifiers that are free
    /// here. Returns each listener's place in the predecessor, and the listener of this process.
    ///
    /// # Errors
    /// Fails if there are too many such listeners.
    pub(super) fn departed(
        &self,
        listeners: &Listeners,
        registry: &TenantRegistry,
    ) -> Result<Vec<(u16, ListenAt)>, String> {
        let mut found = Vec::new();
        for departed in &self.departed {
            // One whose tenant is gone has no connections.
            let Some(mut at) = departed.at() else { continue };
            let Ok(lead) = lead(&at, registry) else { continue };
            let vacant = (0..NUMBER_MAX).rev().find_map(|place| listeners.vacant(place));
            at.id = vacant.ok_or("the server that runs had too many listeners")?;
            assert!(listeners.set(at.id, lead).is_ok(), "it was vacant");
            found.push((departed.listener, at));
        }
        Ok(found)
    }

    /// Adds the tenants that clients had registered with the older process.
    ///
    /// # Errors
    /// Fails if a tenant's SLO is not admitted here.
    pub(super) fn make_tenants(
        &self,
        registry: &mut TenantRegistry,
        now: contract::Instant,
    ) -> Result<(), String> {
        for ClientTenant { tenant, maker } in &self.tenants {
            let refused = |why: String| {
                format!("tenant {:?}, which a client has made, is not possible: {why}", tenant.name)
            };
            let maker = registry.find(maker);
            let maker = maker.ok_or_else(|| refused("who made it is no tenant here".to_owned()))?;
            register_again(registry, &tenant.name, now, |registry| {
                register(registry, tenant, Origin::Client(maker), now)
            })
            .map_err(|refusal| refused(refusal.to_string()))?;
        }
        Ok(())
    }
}
