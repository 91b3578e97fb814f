//! The operator's other controllers, offline.

mod change;
mod keep;
mod kubelet;
mod pairs;
mod render;
mod scene;
