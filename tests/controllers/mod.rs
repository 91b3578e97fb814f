//! The operator's other controllers, offline.

mod change;
mod pairs;
mod render;
mod scene;
