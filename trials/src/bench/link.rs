//! The network between server and client: loopback, or a pair of virtual cables between two network
//! namespaces, which crosses the network stack twice as a real cable would.

use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The names of the network namespaces of the server's side and of the client's side.
const SERVER_SIDE: &str = "nfbench-server";
const CLIENT_SIDE: &str = "nfbench-client";

/// The network between a measured server and its client.
pub(crate) enum Link {
    Loopback,
    /// A virtual cable between two network namespaces, which are removed with this value.
    Veth(Namespaces),
}

/// Two network namespaces with a virtual cable between them. Both are removed on drop.
pub(crate) struct Namespaces(());

impl Link {
    /// Creates two network namespaces with a virtual cable between them. Needs root.
    pub(crate) fn veth() -> Result<Link, String> {
        Link::veth_of("")
    }

    /// Creates two network namespaces with a virtual cable between them that carries frames of
    /// `mtu` bytes, and whose ends leave the tags of VLANs in the frames, which AF_XDP needs. Needs
    /// root.
    pub(crate) fn veth_of_frames(mtu: u32) -> Result<Link, String> {
        let link = Link::veth_of(&format!("mtu {mtu} "))?;
        for side in [SERVER_SIDE, CLIENT_SIDE] {
            let mut command = link.side(side, "ethtool");
            command.args(["-K", side, "rxvlan", "off", "txvlan", "off"]);
            let ran = shell::capture(&mut command, Duration::from_secs(20))?;
            if !ran.ok {
                println!("without AF_XDP: ethtool -K {side}: {}", ran.output.trim());
            }
        }
        Ok(link)
    }

    fn veth_of(mtu: &str) -> Result<Link, String> {
        if !shell::is_root() {
            return Err("--veth makes network namespaces, which needs root".to_owned());
        }
        // Remove what an earlier run left behind when it was killed.
        drop(Namespaces(()));
        let namespaces = Namespaces(());
        let (server, client) = (SERVER_SIDE, CLIENT_SIDE);
        for line in [
            format!("netns add {server}"),
            format!("netns add {client}"),
            format!(
                "link add {server} netns {server} {mtu}type veth peer name {client} netns {client} \
                 {mtu}"
            ),
            format!("-n {server} address add 10.99.0.1/24 dev {server}"),
            format!("-n {client} address add 10.99.0.2/24 dev {client}"),
            format!("-n {server} link set lo up"),
            format!("-n {client} link set lo up"),
            format!("-n {server} link set {server} up"),
            format!("-n {client} link set {client} up"),
        ] {
            ip(line.trim_end())?;
        }
        Ok(Link::Veth(namespaces))
    }

    /// Returns the address on which servers listen.
    pub(crate) fn server_address(&self) -> &'static str {
        match self {
            Link::Loopback => "127.0.0.1",
            Link::Veth(_) => "10.99.0.1",
        }
    }

    /// Returns the names of the network interfaces of the server's and of the client's side.
    pub(crate) fn interfaces(&self) -> [&'static str; 2] {
        match self {
            Link::Loopback => ["lo", "lo"],
            Link::Veth(_) => [SERVER_SIDE, CLIENT_SIDE],
        }
    }

    /// Returns the Ethernet address of the server's interface, as six pairs of digits.
    pub(crate) fn server_mac(&self) -> Result<String, String> {
        let place = format!("/sys/class/net/{}/address", self.interfaces()[0]);
        let mut command = self.server_side("cat");
        let ran = shell::capture(command.arg(place), Duration::from_secs(20))?;
        if ran.ok { Ok(ran.output.trim().to_owned()) } else { Err(ran.output) }
    }

    /// Returns a command that runs a program on the server's side of the link.
    pub(crate) fn server_side(&self, program: &str) -> Command {
        self.side(SERVER_SIDE, program)
    }

    /// Returns a command that runs a program on the client's side of the link.
    pub(crate) fn client_side(&self, program: &str) -> Command {
        self.side(CLIENT_SIDE, program)
    }

    fn side(&self, namespace: &str, program: &str) -> Command {
        match self {
            Link::Loopback => Command::new(program),
            Link::Veth(_) => {
                // `ip` replaces itself with the program, so its process id is the program's.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, program]);
                command
            }
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [SERVER_SIDE, CLIENT_SIDE] {
            // The namespace does not exist if its creation failed.
            let _none = ip(&format!("netns delete {namespace}"));
        }
    }
}

fn ip(line: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    let ran = shell::capture(&mut command, Duration::from_secs(20))?;
    if ran.ok { Ok(()) } else { Err(format!("ip {line}: {}", ran.output.trim())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_adds_nothing_to_a_command() {
        let command = Link::Loopback.client_side("taskset");
        assert_eq!(super::super::process::show(&command), "taskset");
    }
}
