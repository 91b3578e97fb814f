//! A Machine Config Server, and what a test of `fetch` needs besides.

use std::fs;

use serde_json::{Value, json};

use super::http::{Authority, Response, Routes, Server, VALID};
use crate::support::{Run, TestRoot, file, machine_config};

pub fn rendered(name: &str, text: &str) -> Value {
    machine_config(
        name,
        json!({"storage": {"files": [file("/etc/pool.conf", 0o644, text)]}}),
    )
}

/// What a Machine Config Server makes of a rendered config.
pub fn served(rendered: &Value) -> String {
    let mut served = rendered["spec"]["config"].clone();
    let mut add = |path: &str, text: &str| {
        let files = served["storage"]["files"].as_array_mut().unwrap();
        files.push(file(path, 0o644, text));
    };
    add("/etc/kubernetes/kubeconfig", "of a first boot\n");
    add(
        "/etc/mcs-machine-config-content.json",
        &rendered.to_string(),
    );
    served.to_string()
}

/// A Machine Config Server for pool worker; it serves spec 3 only to those who ask for it.
pub fn server(authority: &Authority, rendered: &Value) -> Server {
    let body = served(rendered);
    let routes = Routes::new().at("/config/worker", move |request| {
        let asks = request.header("Accept").unwrap_or_default();
        if asks.starts_with("application/vnd.coreos.ignition+json;version=3.") {
            Response::ok(&body)
        } else {
            Response::ok(r#"{"ignition":{"version":"2.2.0"}}"#)
        }
    });
    let routes = routes.at("*", |_| Response::status(500));
    Server::tls(
        routes,
        &authority.issue(&["127.0.0.1", "api-int.example"], VALID),
    )
}

pub fn ca(authority: &Authority) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &authority.pem).unwrap();
    file
}

/// A fetch within so many seconds: few where it tries again until they are over, many where it ends by itself,
/// however busy the machine is.
pub fn fetch_within(seconds: u32, root: &TestRoot, args: &[&str]) -> Run {
    let seconds = seconds.to_string();
    root.run(&[&["fetch", "--timeout", &seconds], args].concat())
}

/// A fetch that ends by itself.
pub fn fetch(root: &TestRoot, args: &[&str]) -> Run {
    fetch_within(60, root, args)
}
