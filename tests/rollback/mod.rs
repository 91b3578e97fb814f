//! The way back: `rollback` of finished runs, `recover` of interrupted ones.

mod recover;
mod runs;
mod versions;
