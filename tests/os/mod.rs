//! The operating system: images, kernel arguments, packages, staging, and the way back.

mod arrival;
mod attached_disk;
mod boot_counter;
mod bootc;
mod bootc_alone;
mod bootc_kargs;
mod checkpoints;
mod cut_off;
mod edges;
mod engines;
mod facts;
mod images;
mod kargs;
mod lasting;
mod neighbours;
mod next_boot;
mod packages;
mod pins;
mod quorum;
mod reading;
mod reboots;
mod sequences;
mod siblings;
mod silent;
mod soft_reboot;
mod sticks;
