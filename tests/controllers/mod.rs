//! The operator's other controllers, offline.

mod butane;
mod change;
mod keep;
mod kubelet;
mod pairs;
mod registries;
mod render;
mod scene;
