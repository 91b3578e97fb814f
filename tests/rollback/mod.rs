//! The way back: `rollback` of finished runs, `recover` of interrupted ones.

mod half_way;
mod recover;
mod runs;
mod series;
mod versions;
