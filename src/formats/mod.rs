//! File formats of other programs: bytes in, values out.
//!
//! Each module knows one program's format and the rules by which that program reads it. None of them opens a file or knows
//! what a MachineConfig is: [`crate::node`] supplies the bytes, and [`crate::judge`] and [`crate::diagnose`] draw the
//! conclusions. Each rule names its source.
//!
//! - [`go_yaml`] parses YAML as the operator's library does.
//! - [`systemd`] predicts `systemctl enable`, `preset` and `is-enabled`, and which units systemd refuses.
//! - [`sshd`] evaluates sshd's settings for one user.
//! - [`grub`] reads and edits GRUB's environment block and its files.
//! - [`gvariant`] splits what OSTree serialises.
//! - [`labels`] evaluates the SELinux policy's table of paths.
//! - [`etcd_data`], [`ovsdb`] and [`checkpoint`] judge whether a database or a checkpoint file can be read.
//! - [`age`] encrypts a bundle to public keys.
//! - [`sshsig`] verifies OpenSSH's signatures of files.

pub mod go_yaml;

pub mod age;

pub mod sshsig;

pub mod gvariant;

pub mod labels;

pub mod systemd;

pub mod checkpoint;

pub mod etcd_data;

pub mod ovsdb;

pub mod sshd;

pub mod grub;
