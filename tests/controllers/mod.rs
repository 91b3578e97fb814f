//! The operator's other controllers, offline.

mod change;
mod keep;
mod pairs;
mod render;
mod scene;
