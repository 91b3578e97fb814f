//! Faults at every system call, power cuts and failing disks: `make faults` runs all of this directory.

mod devices;
mod every_call;
mod model;
mod power_cut;
mod reading;
mod two_disks;
mod way_out;
mod whole_directories;
