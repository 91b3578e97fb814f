//! Documents that are read: every form, rule and refusal, references to others, and rendering.

mod corpus;
mod formats;
mod references;
mod refuse;
mod render;
mod rules;
mod served;
mod spec2;
