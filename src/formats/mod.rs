//! File formats of other programs: bytes in, values out.
//!
//! Each module knows one program's format and the rules by which that program reads it. None of them opens a file, and none
//! knows what a MachineConfig is: [`crate::node`] brings the bytes, and [`crate::judge`] and [`crate::diagnose`] say what
//! follows. The source of each rule is named where the rule is.
//!
//! - [`go_yaml`] parses YAML as the operator's library does.
//! - [`systemd`] says what `systemctl enable`, `preset` and `is-enabled` would do, and which units systemd refuses.
//! - [`sshd`] says what sshd's settings mean for one user.
//! - [`grub`] reads and edits GRUB's environment block and its files.
//! - [`labels`] is the SELinux policy's table of paths.
//! - [`etcd_data`], [`ovsdb`] and [`checkpoint`] say if a database or a checkpoint file can be read.
//! - [`age`] encrypts a bundle to public keys.

pub mod go_yaml;

pub mod age;

pub mod labels;

pub mod systemd;

pub mod checkpoint;

pub mod etcd_data;

pub mod ovsdb;

pub mod sshd;

pub mod grub;
