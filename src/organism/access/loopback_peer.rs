//! Finds out whether a hosted process is at the other end of a TCP connection on loopback. A hosted
//! process is one that a pump of this organism has started.
//!
//! The owner of a socket can be found only on Linux, which lists the sockets and the open files of
//! processes. On other systems, the requester must prove its access in another way.
//!
//! A process can hide a socket from every list: it sends the socket to itself without receiving it,
//! or registers it with an io_uring. So if a socket of our own user is in no list, any running
//! hosted process counts as its owner.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::host_presence::names_of_data;
use super::{ancestry, has_journal};
use crate::children;
use crate::journal::partitions_in;
use crate::journal::sqlite::{LockHolder, lock_holder};
use crate::mutant::mutant;

/// Maximum number of searches for the owner of a socket. A search is repeated if processes end
/// during the search.
const LOOKS_MAX: usize = 8;

/// Index of the field that contains the user's id in a line of `/proc/net/tcp`.
const UID_FIELD: usize = 7;
const INODE_FIELD: usize = 9;

/// The client's end of a TCP connection on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientSocket {
    /// Id of the user who made the socket.
    uid: u32,
    /// Number of the socket's inode; 0 once the client has closed the socket.
    inode: u64,
}

/// Whether a hosted process owns the client's socket of the connection from `peer` to `server`. If
/// no process shows this socket among its open files, returns whether a hosted process could own
/// it, because a process can hide its sockets.
///
/// A hosted process is one that a pump with a journal in `data` has started, or another process
/// that hosts listeners of the same organism. The search reads the files of all processes, which
/// takes milliseconds.
pub fn is_hosted_peer(data: &Path, peer: SocketAddr, server: SocketAddr) -> bool {
    if mutant("trust-the-browser") || !cfg!(target_os = "linux") {
        return false;
    }

    let pumps: Vec<u32> = partitions_in(data).iter().filter_map(|(_, at)| pump_of(at)).collect();
    let is_own = |journal| has_journal(data, journal);
    let names = names_of_data(data);
    let is_hosted = |pid: i32| ancestry::is_hosted(pid, &pumps, is_own, || names.clone());

    let mut looks = (0..LOOKS_MAX).filter_map(|_| look(socket_of(peer, server), is_hosted));
    looks.next().unwrap_or(true)
}

/// Searches once for the owner of a client's socket. Returns whether a hosted process owns the
/// socket. If no process shows the socket among its open files, returns whether a hosted process
/// may own it. Returns `None` if the processes changed during the search.
fn look(socket: Option<ClientSocket>, is_hosted: impl Fn(i32) -> Option<bool>) -> Option<bool> {
    // The client closed the connection after its request. It reads no response, and its processes
    // may be gone before anyone looks at them.
    if socket.is_some_and(|it| it.inode == 0) {
        return Some(true);
    }
    let SocketOwners { shown, hidden } = socket.map(|it| owners_of(it.inode)).unwrap_or_default();
    if let Some(socket) = socket.filter(|_| !shown.is_empty()) {
        return any_hosted(&shown, is_hosted, |pid| has_socket(pid, socket.inode));
    }

    let exists = |pid: i32| ancestry::exists(pid.into());
    if any_hosted(&hidden, &is_hosted, exists)? {
        return Some(true);
    }

    let is_of_another_user = socket.is_some_and(|it| !may_be_hosted(it.uid));
    let is_of_login = |pid: &i32| socket.is_some_and(|it| is_of_login(*pid, it.uid));
    if is_of_another_user || hidden.iter().any(is_of_login) || mutant("trust-what-nobody-shows") {
        return Some(false);
    }
    any_hosted(&processes(), is_hosted, exists)
}

/// Whether this organism hosts at least one of the processes `pids`, the possible owners of a
/// socket. `is_hosted` returns `None` for a process that has exited, or whose ancestry cannot be
/// determined. `is_still_owner` states whether a process may still own the socket. The result is:
///
/// - True, if `is_hosted` returns true for a process, or if it returns `None` for a process that
///   may still own the socket.
/// - `None`, if no process makes the result true, and `is_hosted` returns `None` for at least one.
/// - False, if `is_hosted` returns false for every process.
fn any_hosted(
    pids: &[i32],
    is_hosted: impl Fn(i32) -> Option<bool>,
    is_still_owner: impl Fn(i32) -> bool,
) -> Option<bool> {
    let mut ended = Vec::new();
    for pid in pids {
        match is_hosted(*pid) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => ended.push(*pid),
        }
    }
    if ended.is_empty() {
        return Some(false);
    }
    ended.into_iter().any(is_still_owner).then_some(true)
}

/// Whether an organism that runs as our own user could have started a process of the user `uid`.
/// True if our own user is root or `uid`.
fn may_be_hosted(uid: u32) -> bool {
    let own = rustix::process::geteuid();
    own.is_root() || own.as_raw() == uid
}

/// Whether the process `pid` looks like a process of a login service for the user `uid`, such as
/// the process of `sshd` that forwards ports: it runs as `uid`, and its parent runs as root. The
/// open files of such a process cannot be read, so it may own a socket for which `/proc` shows no
/// owner.
fn is_of_login(pid: i32, uid: u32) -> bool {
    let pid = i64::from(pid);
    let parent = children::status(pid).map(|status| status.parent);
    let parent = parent.filter(|parent| *parent > 1);
    uid != 0 && user_of(pid) == Some(uid) && parent.is_some_and(|it| user_of(it) == Some(0))
}

/// Returns the effective user of a process; `None` if it cannot be read, usually because the
/// process has exited.
fn user_of(pid: i64) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the id of the process that holds the lock on a journal. Returns `None` if no process
/// holds the lock, or if the process is not visible.
fn pump_of(journal: &Path) -> Option<u32> {
    match lock_holder(journal) {
        LockHolder::Process(pid) => Some(pid),
        LockHolder::Nobody | LockHolder::Hidden => None,
    }
}

/// Returns the socket whose local end is `peer` and whose remote end is `server`. Returns `None` if
/// the system lists no such socket.
fn socket_of(peer: SocketAddr, server: SocketAddr) -> Option<ClientSocket> {
    let ends = (canonical(peer), canonical(server));
    // A machine may list thousands of sockets. Most lines are skipped by the port, unparsed.
    let port = format!(":{:04X} ", peer.port());
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().skip(1).filter(|line| line.contains(&port)).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let local = address(fields.get(1)?)?;
            let remote = address(fields.get(2)?)?;
            if (local, remote) != ends {
                return None;
            }
            let uid = fields.get(UID_FIELD)?.parse().ok()?;
            let inode = fields.get(INODE_FIELD)?.parse().ok()?;
            Some(ClientSocket { uid, inode })
        })
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Parses an address with a port from `/proc/net/tcp`, such as `0100007F:1E25`. The address
/// consists of words in the processor's byte order. Returns `None` if the text is invalid.
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

/// The processes that certainly have a socket open, and the processes that may have the socket
/// open.
#[derive(Debug, Default)]
struct SocketOwners {
    /// Processes whose open files include the socket.
    shown: Vec<i32>,
    /// Processes whose open files cannot be read. Each of them may have the socket open.
    hidden: Vec<i32>,
}

fn owners_of(inode: u64) -> SocketOwners {
    let socket = file_name(inode);
    let processes = processes();
    let mut owners = SocketOwners::default();
    for pid in &processes {
        match has_open(&files_of(*pid), &socket) {
            Ok(true) => owners.shown.push(*pid),
            Ok(false) => {}
            Err(_) => owners.hidden.push(*pid),
        }
    }

    // Threads may have open files of their own. These are searched only if needed: there are many.
    if owners.shown.is_empty() {
        let has_it = |pid: &&i32| has_open_in_thread(**pid, &socket);
        owners.shown = processes.iter().filter(has_it).copied().collect();
    }
    owners
}

/// Whether the process `pid`, or one of its threads, has opened the socket with the number `inode`.
fn has_socket(pid: i32, inode: u64) -> bool {
    let socket = file_name(inode);
    has_open(&files_of(pid), &socket).unwrap_or(false) || has_open_in_thread(pid, &socket)
}

/// Returns the text by which the system shows the socket `inode` among the open files of a process.
fn file_name(inode: u64) -> String {
    format!("socket:[{inode}]")
}

/// Returns the path of the directory in which the system shows the open files of the process `pid`.
fn files_of(pid: i32) -> String {
    format!("/proc/{pid}/fd")
}

/// Returns the ids of all processes that the system shows.
fn processes() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Whether `directory` contains a link to `name`. `directory` is a directory in which the system
/// lists the open files of a process or thread.
fn has_open(directory: &str, name: &str) -> std::io::Result<bool> {
    let mut files = std::fs::read_dir(directory)?;
    Ok(files.any(|file| {
        let link = file.and_then(|file| std::fs::read_link(file.path()));
        link.is_ok_and(|link| link.as_os_str() == name)
    }))
}

fn has_open_in_thread(pid: i32, name: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let files = threads.flatten().map(|thread| thread.path().join("fd"));
    let mut files = files.filter_map(|files| files.to_str().map(str::to_owned));
    files.any(|files| has_open(&files, name).unwrap_or(false))
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
            let socket = socket_of(peer, server).unwrap();
            assert_ne!(Some(socket), socket_of(server, peer), "the server's end is another socket");
            assert_eq!(socket.uid, rustix::process::geteuid().as_raw());

            let own = i32::try_from(std::process::id()).unwrap();
            // A child process that another test starts has the socket, too, until it runs its
            // program.
            assert!(owners_of(socket.inode).shown.contains(&own));
            assert!(has_open_in_thread(own, &file_name(socket.inode)));
            assert!(has_socket(own, socket.inode));
            assert_eq!(user_of(i64::from(own)), Some(socket.uid));
            assert!(!is_of_login(1, socket.uid));
        }
    }

    /// Tests owners of unknown ancestry (20 and above), in part together with other owners. If such
    /// an owner has exited (20) and no other owner counts as hosted, the result must be `None`. The
    /// caller then repeats the search.
    #[test]
    fn an_owner_of_unknown_origin_that_has_exited_is_looked_for_again() {
        let is_hosted = |pid: i32| (pid < 20).then_some(pid >= 10);
        let is_still_owner = |pid: i32| pid > 20;
        for (pids, expected) in [
            (&[][..], Some(false)),
            (&[1, 2], Some(false)),
            (&[1, 10], Some(true)),
            (&[1, 20], None),
            (&[20, 21], Some(true)),
            (&[20, 10], Some(true)),
        ] {
            assert_eq!(any_hosted(pids, is_hosted, is_still_owner), expected, "{pids:?}");
        }
    }

    #[test]
    fn a_socket_that_its_client_has_closed_counts_as_hosted() {
        let closed = ClientSocket { uid: 0, inode: 0 };
        assert_eq!(look(Some(closed), |_| Some(false)), Some(true));
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
