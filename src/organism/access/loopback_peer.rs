//! Finds out whether a process that an organism hosts is at the other end of a TCP connection on
//! loopback.
//!
//! The operating system shows the owner of a socket only where it lists sockets and open files of
//! processes (Linux). Where it shows none, nothing is known, and other proof decides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::{ancestry, has_journal};
use crate::journal::partitions_in;
use crate::journal::sqlite::{LockHolder, lock_holder};
use crate::mutant::mutant;

/// Field of the inode in a line of `/proc/net/tcp`.
const INODE_FIELD: usize = 9;

/// Whether the client of a connection from `peer` to `server` is a process that a pump of the
/// journals in `data` hosts. Reads the files of all processes, which takes milliseconds.
///
/// A process may hide its open files. If no process shows the socket, a hosted process that hides
/// its files counts as the owner.
pub fn is_hosted_peer(data: &Path, peer: SocketAddr, server: SocketAddr) -> bool {
    if mutant("trust-the-browser") {
        return false;
    }

    let pumps: Vec<u32> = partitions_in(data).iter().filter_map(|(_, at)| pump_of(at)).collect();
    let is_own = |journal| has_journal(data, journal);
    let is_hosted = |pid: &i32| ancestry::is_hosted(*pid, &pumps, is_own);

    let Some(inode) = inode_of(peer, server) else { return false };
    let SocketOwners { shown, hidden } = owners_of(inode);
    if shown.is_empty() { hidden.iter().any(is_hosted) } else { shown.iter().any(is_hosted) }
}

/// The process that holds the lock on a journal.
fn pump_of(journal: &Path) -> Option<u32> {
    match lock_holder(journal) {
        LockHolder::Process(pid) => Some(pid),
        LockHolder::Nobody | LockHolder::Hidden => None,
    }
}

/// Inode of the socket whose local end is `peer` and whose remote end is `server`.
fn inode_of(peer: SocketAddr, server: SocketAddr) -> Option<u64> {
    let ends = (canonical(peer), canonical(server));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().skip(1).find_map(|line| {
            let mut fields = line.split_whitespace();
            let local = address(fields.nth(1)?)?;
            let remote = address(fields.next()?)?;
            if (local, remote) != ends {
                return None;
            }
            // Two of the fields between were already read, and the count begins at 0.
            fields.nth(INODE_FIELD - 3)?.parse().ok().filter(|inode| *inode > 0)
        })
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Reads an address such as `0100007F:1E25`: the address in words of the processor's byte order,
/// then the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };

    let ip: IpAddr = if ip.len() == 8 {
        Ipv4Addr::from(word(0)?).into()
    } else {
        let words = [word(0)?, word(1)?, word(2)?, word(3)?];
        Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into()
    };
    Some((ip.to_canonical(), port))
}

/// Processes that have a socket open, or might.
#[derive(Debug, Default)]
struct SocketOwners {
    /// Processes among whose open files the socket is.
    shown: Vec<i32>,
    /// Processes whose open files cannot be read.
    hidden: Vec<i32>,
}

fn owners_of(inode: u64) -> SocketOwners {
    let socket = format!("socket:[{inode}]");
    let mut owners = SocketOwners::default();
    let Ok(processes) = std::fs::read_dir("/proc") else { return owners };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match std::fs::read_dir(process.path().join("fd")) {
            Ok(mut files) => {
                let is_it = |file: std::io::Result<std::fs::DirEntry>| {
                    let link = file.and_then(|file| std::fs::read_link(file.path()));
                    link.is_ok_and(|link| link.as_os_str() == socket.as_str())
                };
                if files.any(is_it) {
                    owners.shown.push(pid);
                }
            }
            Err(_) => owners.hidden.push(pid),
        }
    }
    owners
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_of_a_connection_is_found_over_both_protocols() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let peer = client.local_addr().unwrap();
            let inode = inode_of(peer, server).unwrap();
            assert_ne!(Some(inode), inode_of(server, peer), "the server's end is another socket");

            let own = i32::try_from(std::process::id()).unwrap();
            assert_eq!(owners_of(inode).shown, [own]);
        }
    }

    #[test]
    fn addresses_are_read_in_the_byte_order_of_the_processor() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let ipv4 = word([127, 0, 0, 1]);
        let mapped = ["00000000", "00000000", &word([0, 0, 255, 255]), &ipv4].concat();
        let loopback = ["00000000", "00000000", "00000000", &word([0, 0, 0, 1])].concat();
        let expected = Some((IpAddr::from([127, 0, 0, 1]), 0x1e25));
        assert_eq!(address(&format!("{ipv4}:1E25")), expected);
        assert_eq!(address(&format!("{mapped}:1E25")), expected);
        let expected = Some((IpAddr::from(Ipv6Addr::LOCALHOST), 80));
        assert_eq!(address(&format!("{loopback}:0050")), expected);
        for text in ["", ":", "0100007F", "0100007F:", "01:1E25", "xyz00000:0050"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
