//! The operator's other controllers, offline.

mod butane;
mod change;
mod credentials;
mod keep;
mod kubelet;
mod os_stream;
mod pairs;
mod registries;
mod render;
mod scene;
mod unknown_fields;
