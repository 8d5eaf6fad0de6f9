//! System calls: the only crate of nearflash that makes them, and the home of `unsafe`.
//!
//! A worker owns one [`Ring`]. Its sockets ([`Sockets`]) and its devices write submission entries
//! to the ring and take their completions from it; only [`Reactor::enter`] enters the kernel, once
//! a turn. Where io_uring is forbidden, an [`EpollReactor`] and its [`EpollSockets`] are used
//! ([`Reactor`] and [`Network`] are the common traits). [`run`] is the outer loop that reads the
//! clock, runs a turn, and spins or parks.

mod account;
mod arena;
mod clock;
mod cpu;
pub mod cpu_list;
mod datagram;
pub mod device;
mod endpoint;
mod epoll;
mod error;
mod ether;
pub mod fuse;
mod lane;
mod lent;
mod link;
mod listen;
pub mod listening;
mod memory_trim;
mod message;
mod offloads;
mod outer;
mod packet_sockets;
mod pass_on;
mod probe;
mod process;
mod random;
mod reactor;
mod readiness;
mod rights;
mod ring;
mod secrecy;
mod sendblock;
mod shared;
mod socket_table;
mod sockets;
mod sockets_config;
mod spread;
mod taken;
mod tls;
pub mod ublk;
mod udp_lanes;
mod unix;
mod uring;
mod waker;

pub use account::{CpuWaits, ThreadAccount};
pub use arena::{Arena, carve};
pub use clock::{Clock, since_1970};
pub use cpu::{check_cpu, keep_off_cpus, lower_priority, pin_to_cpu, raise_descriptor_limit};
pub use endpoint::{Endpoint, UnixPath};
pub use epoll::EpollReactor;
pub use error::Error;
pub use lent::lend;
pub use link::{DESCRIPTORS_MAX, ProcessLink, is_same_file};
pub use listen::{Listener, ListenerHandle, TcpOptions};
pub use memory_trim::give_memory_back;
pub use offloads::{Offloads, offloads};
pub use outer::{SpinPolicy, run};
pub use packet_sockets::PacketSockets;
pub use packets::PacketKey;
pub use pass_on::{pass_on, pass_on_no_more, take_passed};
pub use process::Process;
pub use random::{random, random_uuid};
pub use reactor::{Network, Reactor};
pub use readiness::Readiness;
pub use rights::give_up_card_rights;
pub use ring::{Owner, Ring, RingEvent};
pub use secrecy::{keep_memory_secret, read_packet_key, read_secret};
pub use shared::SharedMemory;
pub use socket_table::WaitingSocket;
pub use sockets::SocketsOver;
pub use sockets_config::SocketsConfig;
pub use spread::ConnectionBalancer;
pub use tls::{ClientTls, PreludeOf, ServerTls, TlsPolicy};
pub use udp_lanes::{UdpLanes, look_up};
pub use waker::Waker;

/// The sockets of a worker over io_uring.
pub type Sockets = SocketsOver<uring::Uring>;

/// The sockets of a worker over epoll.
pub type EpollSockets = SocketsOver<epoll::Epoll>;
