//! The SELinux label of what a name stands for.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::Place;

/// The attribute that holds the label.
pub const LABEL: &CStr = c"security.selinux";
/// Labels are far shorter; the kernel's own limit is a page.
const LONGEST: usize = 4096;

impl Place {
    /// The label of the name, not followed; `None` where it has none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no labels, `ENOENT` also where `/proc` is not mounted.
    pub fn label(&self) -> Result<Option<String>, Errno> {
        let path = proc_path(self.dir.as_fd(), &self.name)?;
        let mut label = [0u8; LONGEST];
        // SAFETY: path, name and buffer live through the call, and the length is the buffer's.
        let read = unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                LABEL.as_ptr(),
                label.as_mut_ptr().cast(),
                label.len(),
            )
        };
        let length = match Errno::result(read) {
            Ok(length) => usize::try_from(length).unwrap_or_default(),
            Err(Errno::ENODATA) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let bytes = label.get(..length).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        Ok(Some(text.trim_end_matches('\0').to_owned()))
    }
}

/// A name below a directory descriptor as one path: links have attributes, but no descriptor that gives them.
pub fn proc_path(dir: BorrowedFd<'_>, name: &str) -> Result<CString, Errno> {
    let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
    CString::new(path).map_err(|_| Errno::EINVAL)
}
