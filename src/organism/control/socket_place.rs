//! The file of the control socket: its creation, its restoration after a removal, and its end.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tokio::net::UnixListener;

use crate::durable_file;
use crate::locks::locked;
use crate::service::bind_socket;

/// The path of the control socket of a running organism.
pub(super) struct SocketPlace {
    path: PathBuf,
    /// Device and inode of the directory in which the socket was opened. The organism holds the
    /// lock of this directory.
    directory: (u64, u64),
    /// Lock: a check of the socket and its removal at the stop exclude each other, so that no check
    /// restores the socket that the stop has removed.
    state: Mutex<PlaceState>,
}

#[derive(Default)]
struct PlaceState {
    is_closed: bool,
    /// Whether the last check found the socket missing or replaced, and could not restore it. Only
    /// the first of consecutive failures is logged.
    has_failed: bool,
}

impl SocketPlace {
    /// Opens the socket at `path`, and replaces the socket of a pump that has ended.
    pub fn open(path: &Path) -> io::Result<(Self, UnixListener)> {
        let (unready, listener) = bind_unready(path)?;
        std::fs::rename(&unready, path)?;
        let directory = directory_of(path)?;
        let state = Mutex::default();
        Ok((Self { path: path.to_owned(), directory, state }, listener))
    }

    /// Opens the socket again if its file is missing. Otherwise, returns `None`: a file at the path
    /// stays as it is, also if another process made it. Logs a file that is no socket, because
    /// commands reach nothing through it.
    pub fn restore(&self) -> Option<UnixListener> {
        let mut state = locked(&self.state);
        if state.is_closed {
            return None;
        }

        let path = self.path.display();
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) if found.file_type().is_socket() => {
                state.has_failed = false;
                return None;
            }
            Ok(_) => {
                if !std::mem::replace(&mut state.has_failed, true) {
                    tracing::error!(
                        "something else took the place of the control socket {path}, so no \
                         command reaches this organism: remove it, and the socket is made again"
                    );
                }
                return None;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_in_place() => {}
            Err(_) => return None,
        }

        match bind_new(&self.path) {
            Ok(listener) => {
                state.has_failed = false;
                tracing::warn!("the control socket {path} was removed; made it again");
                Some(listener)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => {
                if !std::mem::replace(&mut state.has_failed, true) {
                    tracing::error!(
                        "the control socket {path} was removed, and making it again failed: \
                         {error}; no command reaches this organism until this succeeds, or until \
                         the organism starts again"
                    );
                }
                None
            }
        }
    }

    /// Whether the socket's directory is still in its place.
    fn is_in_place(&self) -> bool {
        directory_of(&self.path).is_ok_and(|directory| directory == self.directory)
    }

    /// Removes the socket for good. A socket in a directory that took the place of the first one
    /// belongs to another organism, and stays.
    pub fn close(&self) {
        let mut state = locked(&self.state);
        state.is_closed = true;
        if !self.is_in_place() {
            return;
        }

        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("could not remove the control socket {}: {error}", self.path.display());
        }
    }
}

/// Opens a socket at `path`. Fails if there is a file already.
fn bind_new(path: &Path) -> io::Result<UnixListener> {
    let (unready, listener) = bind_unready(path)?;
    let renamed = durable_file::rename_to_new(&unready, path);
    // A failed rename leaves the first name, and so may a successful one.
    durable_file::remove(&unready)?;
    renamed.map(|()| listener)
}

/// Opens a socket for `path` under a temporary name, which is the first result. The socket gets its
/// final name only when it is accessible to its owner alone, so that no other user can connect
/// before that. Both names have one length, because the operating system limits the length of a
/// socket's path.
fn bind_unready(path: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let unready = path.with_extension("next");
    match std::fs::remove_file(&unready) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }

    let listener = bind_socket(&unready)?;
    std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
    Ok((unready, listener))
}

/// Returns device and inode of the directory that contains `path`.
fn directory_of(path: &Path) -> io::Result<(u64, u64)> {
    let directory = std::fs::metadata(path.parent().unwrap_or(path))?;
    Ok((directory.dev(), directory.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn inode(path: &Path) -> u64 {
        std::fs::symlink_metadata(path).unwrap().ino()
    }

    #[tokio::test]
    async fn a_removed_socket_is_made_again_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let (place, _removed) = SocketPlace::open(&path).unwrap();
        assert!(place.restore().is_none(), "it is there");

        std::fs::remove_file(&path).unwrap();
        let _listener = place.restore().expect("the socket is missing");
        UnixStream::connect(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!path.with_extension("next").exists());

        place.close();
        assert!(place.restore().is_none(), "the organism stops");
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_another_process_made_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let (place, _removed) = SocketPlace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        let before = inode(&path);
        assert!(place.restore().is_none());
        // The file may also appear after the check for it.
        let late = bind_new(&path).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(inode(&path), before);
        assert!(!path.with_extension("next").exists());
        drop(theirs);

        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(place.restore().is_none());
        assert!(path.is_symlink());
        assert!(locked(&place.state).has_failed, "it is logged once");

        std::fs::remove_file(&path).unwrap();
        let _listener = place.restore().expect("the socket is missing");
        assert!(!locked(&place.state).has_failed);
    }

    #[tokio::test]
    async fn no_socket_is_made_in_a_directory_that_took_the_place_of_the_first_one() {
        let above = tempfile::tempdir().unwrap();
        let data = above.path().join("data");
        let path = data.join("control.sock");
        std::fs::create_dir(&data).unwrap();
        let (place, _moved) = SocketPlace::open(&path).unwrap();
        std::fs::rename(&data, above.path().join("moved")).unwrap();
        assert!(place.restore().is_none());
        std::fs::create_dir(&data).unwrap();
        assert!(place.restore().is_none());
        assert!(!path.exists());

        std::fs::write(&path, "another organism's").unwrap();
        place.close();
        assert!(path.exists());
    }
}
