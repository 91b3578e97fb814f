//! One file for each person's story.

mod configs;
mod power_cut;
