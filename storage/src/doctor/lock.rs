//! Whether a broker runs on a directory: RocksDB's lock tells.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::DoctorError;

/// While this lives, no broker can start on the directory.
pub(super) struct NoBroker {
    _lock: Option<File>,
}

/// Takes a shared lock on the file that a broker locks alone. The lock is the process's and leaves no trace on the disk.
///
/// # Errors
/// [`DoctorError::Running`], [`DoctorError::Io`].
pub(super) fn keep_brokers_out(directory: &Path) -> Result<NoBroker, DoctorError> {
    let path = directory.join("meta").join("LOCK");
    let failed = |action| {
        let path = path.clone();
        move |source| DoctorError::Io { action, path, source }
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NoBroker { _lock: None }),
        Err(error) => return Err(failed("open")(error)),
    };
    let wanted = whole_file(libc::F_RDLCK);
    match fcntl(&file, FcntlArg::F_SETLK(&wanted)) {
        Ok(_) => Ok(NoBroker { _lock: Some(file) }),
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let mut holder = wanted;
            fcntl(&file, FcntlArg::F_GETLK(&mut holder))
                .map_err(|error| failed("look at the lock of")(error.into()))?;
            Err(DoctorError::Running { directory: directory.to_owned(), process: holder.l_pid })
        }
        Err(error) => Err(failed("lock")(error.into())),
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    let short = |value| i16::try_from(value).expect("the constants of fcntl fit their fields");
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}
