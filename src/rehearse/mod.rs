//! Rehearsals: the next boot, tried out in namespaces while the node goes on.
//!
//! systemd boots in overlays over the node's directories, whose upper layers are in memory, without devices, without a network and
//! without what acts on the kernel. What runs now is rehearsed too: only what is new counts.
//!
//! - [`rehearsal`] is the whole of it. Start there.
//! - [`scene`] says what is rehearsed, and which units are started in name only; [`facts`] parses what was seen; [`judge`] compares
//!   two boots. All three are pure.
//! - [`boot`] starts the unit of a boot, waits for its end and asks the system inside; [`stage_entry`] is the first process inside.
//!
//! The node is never changed: the kernel does not write to a lower layer, the files of a rehearsal are below `/run` and are removed
//! at its end, and systemd ends the unit and removes them even if this program is killed.

pub mod scene;

pub mod facts;

pub mod judge;

pub mod stage_entry;

pub mod boot;

pub mod rehearsal;
