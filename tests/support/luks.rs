//! Headers of LUKS 2, as cryptsetup writes them: two copies with checksums.

use base64::Engine;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Size of a copy.
pub const COPY: usize = 0x4000;

/// A header with this JSON, and what is behind it on a device.
pub fn luks2(json: &Value) -> Vec<u8> {
    let copy = |at: usize, mark: &[u8]| {
        let mut bytes = vec![0; COPY];
        bytes[..6].copy_from_slice(mark);
        bytes[7] = 2;
        bytes[8..16].copy_from_slice(&(COPY as u64).to_be_bytes());
        bytes[23] = 3;
        bytes[72..78].copy_from_slice(b"sha256");
        bytes[256..264].copy_from_slice(&(at as u64).to_be_bytes());
        let text = json.to_string();
        bytes[4096..4096 + text.len()].copy_from_slice(text.as_bytes());
        let sum = Sha256::digest(&bytes);
        bytes[448..480].copy_from_slice(&sum);
        bytes
    };
    let both = [copy(0, b"LUKS\xba\xbe"), copy(COPY, b"SKUL\xba\xbe")];
    [both.concat(), vec![0; COPY]].concat()
}

/// The JSON of a header with a clevis token for each pin, and one key slot more.
pub fn tokens(pins: &[Value]) -> Value {
    let tokens = pins.iter().enumerate().map(|(index, pin)| {
        let token = json!({"type": "clevis", "keyslots": [format!("{}", index + 1)], "jwe": {"protected": protected(pin)}});
        (index.to_string(), token)
    });
    let slots = (0..=pins.len()).map(|slot| (slot.to_string(), json!({})));
    json!({
        "tokens": tokens.collect::<serde_json::Map<_, _>>(),
        "keyslots": slots.collect::<serde_json::Map<_, _>>(),
    })
}

/// The protected header of a JWE.
pub fn protected(pin: &Value) -> String {
    let text = json!({ "clevis": pin }).to_string();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}
