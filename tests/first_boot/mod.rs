//! First boots: the start in the initramfs, and the completion on a live node.

mod complete;
mod initramfs;
