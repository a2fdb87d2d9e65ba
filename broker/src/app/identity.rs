//! Who this broker is, to its clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use crate::cli::{self, SettingsError};

/// What Metadata and FindCoordinator answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 22 characters of base64url, made with the data directory and never changed (S-22).
    pub cluster_id: String,
    /// `node.id`.
    pub node_id: i32,
    /// The host that clients are told to connect to.
    pub host: String,
    /// The port that clients are told to connect to.
    pub port: i32,
}

impl Identity {
    /// The identity of a broker whose Kafka listener is bound to `bound`: that is what clients are told, unless `advertised` (`advertised.listeners`) says otherwise.
    ///
    /// # Errors
    /// When `advertised` is no address.
    pub fn new(cluster_id: String, node_id: i32, advertised: &str, bound: SocketAddr) -> Result<Self, SettingsError> {
        let (host, port) = if advertised.is_empty() {
            (reachable(bound.ip()).to_string(), bound.port())
        } else {
            let address = cli::listener_address(advertised)?;
            let (host, port) = cli::split_address(&address, "advertised.listeners")?;
            (host, if port == 0 { bound.port() } else { port })
        };
        Ok(Self { cluster_id, node_id, host, port: i32::from(port) })
    }
}

/// An address that others can connect to. For a listener on all addresses that is the one this machine would use to reach the world: found by asking the
/// routing table (a connected UDP socket sends nothing); loopback when there is no route.
fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    let outward = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        Ok(socket.local_addr()?.ip())
    };
    outward().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(advertised: &str) -> Identity {
        let bound = "127.0.0.1:9092".parse().expect("an address");
        Identity::new("AAAAAAAAAAAAAAAAAAAAAQ".to_owned(), 0, advertised, bound).expect("legal")
    }

    #[test]
    fn clients_are_told_the_advertised_address_when_there_is_one() {
        let plain = identity("");
        assert_eq!((plain.host.as_str(), plain.port), ("127.0.0.1", 9092));
        let advertised = identity("PLAINTEXT://kafka.example:19092");
        assert_eq!((advertised.host.as_str(), advertised.port), ("kafka.example", 19092));
        assert_eq!(identity("PLAINTEXT://kafka.example:0").port, 9092, "port 0 follows the listener");
    }

    #[test]
    fn a_listener_on_all_addresses_never_advertises_that() {
        assert!(!reachable(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).is_unspecified());
    }
}
