//! FP-31: the kubelet's authority is out of date.

use std::time::{Duration, SystemTime};

use super::small::{self, SIGNER};
use super::{Dark, by_years, doctor, found, of, says};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[(
    "FP-31",
    "/etc/kubernetes/kubelet-ca.crt is missing, or holds",
    |root| {
        root.remove("etc/kubernetes/kubelet-ca.crt");
    },
)];

#[test]
fn an_authority_of_the_kubelet_that_has_expired_is_reported() {
    let root = small::node();
    let path = "etc/kubernetes/kubelet-ca.crt";
    let expired = by_years(SIGNER, 2020, 2021);
    root.write(path, &expired);
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
    assert_eq!(of(&doctor(&root), "FP-09").len(), 1);
    // Another authority beside it will not do; a newer signer will.
    let beside = expired + &by_years("other", 2020, 2090);
    root.write(path, &beside);
    says(
        &found(&doctor(&root), "FP-31", "warning"),
        &["oc logs", "2021-01-01"],
    );
    root.write(path, &(beside + &by_years(SIGNER, 2020, 2090)));
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
}

#[test]
fn an_authority_of_the_kubelet_is_due_before_it_expires() {
    let root = small::node();
    let path = "etc/kubernetes/kubelet-ca.crt";
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let signed = |ago: u64, left: u64| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = (SystemTime::now() - days(ago)).into();
        params.not_after = (SystemTime::now() + days(left)).into();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, SIGNER);
        let key = rcgen::KeyPair::generate().unwrap();
        root.write(path, &params.self_signed(&key).unwrap().pem());
    };
    signed(200, 165);
    assert_eq!(of(&doctor(&root), "FP-31"), Vec::<Value>::new());
    signed(300, 65);
    says(
        &found(&doctor(&root), "FP-31", "notice"),
        &[
            "is due for replacement",
            "Check if the pool is paused",
            "scp core@OTHER-NODE:",
        ],
    );
}
