//! The client process of a connection. The web view refuses all requests of a process that a pump
//! of the organism started, even if the requests have the right token.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::organism::is_hosted_peer;

/// The client end of one connection. All requests of the connection share this value.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPeer {
    /// Addresses of the client and of this server; `None` if the connection had already ended.
    ends: Option<(SocketAddr, SocketAddr)>,
    is_hosted: Arc<OnceCell<bool>>,
}

impl ConnectionPeer {
    pub fn of(stream: &TcpStream) -> Self {
        let ends = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?)));
        Self { ends: ends.ok(), is_hosted: Arc::default() }
    }

    /// Whether the client is a hosted process, that is, a process started by a pump whose journal
    /// is in `data`. Looks up the processes only once for each connection.
    pub async fn is_hosted(&self, data: PathBuf) -> bool {
        // A connection without addresses has already ended.
        let Some((peer, server)) = self.ends else { return true };
        if !is_of_this_machine(peer) {
            return false;
        }
        let look = || async move {
            let looked = tokio::task::spawn_blocking(move || is_hosted_peer(&data, peer, server));
            looked.await.unwrap_or(true)
        };
        *self.is_hosted.get_or_init(look).await
    }
}

/// Whether an address belongs to this machine, as every address of a hosted process does. Tests
/// this by binding a socket to the address, which is possible only for an address of this machine.
fn is_of_this_machine(mut address: SocketAddr) -> bool {
    address.set_port(0);
    match UdpSocket::bind(address) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine_is_none_of_this_one() {
        for (address, expected) in
            [("127.0.0.1:7", true), ("127.3.2.1:7", true), ("192.0.2.1:7", false)]
        {
            assert_eq!(is_of_this_machine(address.parse().unwrap()), expected, "{address}");
        }
    }
}
