//! Short forms of the input that are long in Ignition: `mount_units`, the boot disk and its ciphers (`disks`), GRUB's users
//! (`grub`), and `quadlets`.

mod disks;
mod grub;
mod mount_units;
mod quadlets;

pub(super) use disks::{add_boot_device, add_fips_cipher};
pub(super) use mount_units::add_mount_units;
pub(super) use quadlets::template_of;
