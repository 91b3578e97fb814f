//! The operator's other controllers, offline.

mod pairs;
mod render;
mod scene;
