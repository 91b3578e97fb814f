//! Staging of the operating system for the next boot, together with the files of a run.
//!
//! [`stage`] drives rpm-ostree one transaction at a time and verifies the result; [`awaited`] records what the next boot has to
//! bring, and judges that boot; [`next_boot`] determines what it would enter now; [`state`] reads and writes the files of both.
//! [`image_source`] and [`quorum`] are evidence for the plan; [`lease`] and [`pins`] are undone however a run ends.

pub mod awaited;
pub mod deployments;
pub mod image_source;
mod import;
pub mod lease;
mod local_commits;
pub mod next_boot;
pub mod pins;
pub mod quorum;
pub mod reboots;
mod release_registry;
pub mod stage;
pub mod state;
pub mod target;
