//! Config structs in which `null` means the same as missing.

use serde::{Deserialize, Deserializer};

/// Defines structs that are read from the camel-case keys of an object. Ignition accepts `null` for every field and treats it
/// as missing, so the field then gets its default.
macro_rules! nullable {
    ($(
        $(#[$of_struct:meta])*
        $of:vis struct $name:ident {
            $($(#[$of_field:meta])* $vis:vis $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$of_struct])*
        #[derive(Default, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        $of struct $name {$(
            $(#[$of_field])*
            #[serde(deserialize_with = "crate::config::document::nullable::value_or_default")]
            $vis $field: $type,
        )*}
    )*};
}
pub(super) use nullable;

/// Reads a value; returns the default for `null`.
pub(super) fn value_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
