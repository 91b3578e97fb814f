//! The SELinux label of a named object.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::Place;

/// The attribute that holds the label.
pub const LABEL: &CStr = c"security.selinux";
/// Maximum length; labels are much shorter, and the kernel's own limit is a page.
const LONGEST: usize = 4096;

impl Place {
    /// Returns the label of the name, without following it; `None` if it has none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no labels, `ENOENT` also where `/proc` is not mounted.
    pub fn read_label(&self) -> Result<Option<String>, Errno> {
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

/// Returns true for attributes that a copy of a file keeps: access lists, and those that users set. Labels have rules of their
/// own. File capabilities are not restored, because a run gives up `CAP_SETFCAP` before it changes a name.
fn is_copied(name: &[u8]) -> bool {
    let exact: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    exact.contains(&name) || name.starts_with(b"user.")
}

/// Returns the extended attributes of an open file or directory that a copy keeps; none if the file system does not support
/// them.
pub fn extended_attributes(file: &File) -> Result<Vec<(CString, Vec<u8>)>, Errno> {
    let list = |buffer: &mut [u8]| {
        // SAFETY: the descriptor is open and the buffer lives through the call; the length is the buffer's.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
    };
    let names = match fill_buffer(list) {
        Ok(Some(names)) => names,
        Ok(None) | Err(Errno::EOPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let names = names.split(|byte| *byte == 0);
    let mut all = Vec::new();
    for name in names.filter(|name| is_copied(name)) {
        let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
        let get = |buffer: &mut [u8]| {
            // SAFETY: as above; the name lives through the call.
            unsafe {
                libc::fgetxattr(
                    file.as_raw_fd(),
                    name.as_ptr(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                )
            }
        };
        if let Some(value) = fill_buffer(get)? {
            all.push((name, value));
        }
    }
    Ok(all)
}

/// Extended attributes: name and value.
pub type ExtendedAttributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns all extended attributes of a name, not followed.
pub fn all_attributes(place: &Place) -> Result<ExtendedAttributes, Errno> {
    let path = proc_path(place.dir.as_fd(), &place.name)?;
    let list = |buffer: &mut [u8]| {
        // SAFETY: path and buffer live through the call, and the length is the buffer's.
        unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    };
    let names = match fill_buffer(list) {
        Ok(Some(names)) => names,
        Ok(None) | Err(Errno::EOPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let text = CString::new(name).map_err(|_| Errno::EINVAL)?;
        let get = |buffer: &mut [u8]| {
            // SAFETY: path, name and buffer live through the call, and the length is the buffer's.
            unsafe {
                libc::lgetxattr(
                    path.as_ptr(),
                    text.as_ptr(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                )
            }
        };
        all.push((name.to_vec(), fill_buffer(get)?.unwrap_or_default()));
    }
    Ok(all)
}

/// Returns the bytes that a call writes; with an empty buffer the call returns the length. Returns `None` if there are none, or
/// if they have just disappeared.
fn fill_buffer(call: impl Fn(&mut [u8]) -> isize) -> Result<Option<Vec<u8>>, Errno> {
    let result = |written: isize| match Errno::result(written) {
        Ok(length) => Ok(usize::try_from(length).ok().filter(|length| *length > 0)),
        Err(Errno::ENODATA) => Ok(None),
        Err(errno) => Err(errno),
    };
    let Some(length) = result(call(&mut []))? else {
        return Ok(None);
    };
    let mut bytes = vec![0; length];
    let length = result(call(&mut bytes))?;
    bytes.truncate(length.unwrap_or_default());
    Ok(length.map(|_| bytes))
}

/// Returns a name below a directory descriptor as one path: links have attributes, but no descriptor that gives access to them.
pub fn proc_path(dir: BorrowedFd<'_>, name: &str) -> Result<CString, Errno> {
    let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
    CString::new(path).map_err(|_| Errno::EINVAL)
}
