//! FP-06: the authority of the cluster's servers is out of date.

use super::worker::{Branch, Row, all_met, sick, well};
use super::{CRITICAL, RECORD, Sick, by_years, certificate};
use base64::Engine;
use serde_json::{Value, json};

pub(super) const SICK: &[Sick] = &[Sick {
    id: "FP-06",
    code: CRITICAL,
    what: "the authority of the cluster's servers has expired",
    next: "mco-rescue fetch --ca FILE",
    sicken: |root| root.write("etc/kubernetes/ca.crt", &by_years("root-ca", 2010, 2020)),
}];

/// A pointer config with these authorities.
fn pointer(authorities: &[String]) -> String {
    let all = authorities.iter().map(|pem| {
        let text = base64::engine::general_purpose::STANDARD.encode(pem);
        json!({"source": format!("data:text/plain;charset=utf-8;base64,{text}")})
    });
    let all: Vec<Value> = all.collect();
    let config = json!({"ignition": {"version": "3.4.0",
        "config": {"merge": [{"source": "https://api-int.example:22623/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": all}}}});
    config.to_string()
}

const fn distrusted(seen: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-06",
        severity: "critical",
        what: "the authority of the cluster's servers has expired",
        seen,
        next: &["date -u", "mco-rescue fetch --ca FILE --root ROOT"],
    }
}

const IGNITION: &str = "boot/ignition/config.ign";

const TRUST: [Row; 8] = [
    sick(
        |root| {
            root.remove(RECORD);
            root.write(IGNITION, &pointer(&[certificate("root-ca", -1)]));
        },
        distrusted(&[
            "/boot/ignition/config.ign",
            "CN=root-ca ended",
            "x509: certificate has expired",
        ]),
    ),
    sick(
        |root| {
            root.remove(RECORD);
            let user = "usr/lib/ignition/user.ign";
            root.write(user, &pointer(&[certificate("bootstrap-ca", -1)]));
        },
        distrusted(&["/usr/lib/ignition/user.ign", "CN=bootstrap-ca ended"]),
    ),
    // One that is good is enough, wherever it is.
    well("FP-06", |root| {
        root.remove(RECORD);
        let both = [certificate("old", -1), certificate("new", 100)];
        root.write(IGNITION, &pointer(&both));
    }),
    // After the first boot nobody asks it again.
    well("FP-06", |root| {
        root.write(IGNITION, &pointer(&[certificate("root-ca", -1)]))
    }),
    sick(
        |root| {
            let authorities = certificate("mcs-ca", -9);
            let known = json!({"version": 1, "url": "https://api-int.example:22623", "pool": "worker",
                "authorities": authorities, "answered": 1_700_000_000});
            root.write("var/lib/mco-rescue/server.json", &known.to_string());
        },
        distrusted(&["/var/lib/mco-rescue/server.json", "CN=mcs-ca ended"]),
    ),
    sick(
        |root| {
            let data = base64::engine::general_purpose::STANDARD.encode(certificate("api-ca", -9));
            let text = format!(
                "kind: Config\nclusters:\n- cluster:\n    certificate-authority-data: {data}\n"
            );
            root.write("etc/kubernetes/kubeconfig", &text);
        },
        distrusted(&["/etc/kubernetes/kubeconfig", "CN=api-ca ended"]),
    ),
    well("FP-06", |root| {
        let both = certificate("old", -1) + &certificate("new", 100);
        root.write("etc/kubernetes/ca.crt", &both);
    }),
    well("FP-06", |root| {
        root.write("etc/kubernetes/ca.crt", &certificate("new", 1))
    }),
];

#[test]
fn an_authority_is_out_of_date_when_none_of_its_file_is_valid() {
    all_met(&TRUST);
}
