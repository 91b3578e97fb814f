//! The data of etcd on a disk: its log, its snapshots and its database, read as etcd reads them at its start. Nothing here
//! opens a file; `tests/doctor/etcd_data.rs` compares this with the real etcd.

pub mod bolt;
mod crc;
pub mod keys;
mod proto;
pub mod snap;
pub mod start;
pub mod wal;
