//! Structs of a config in which `null` is the same as absent.

use serde::{Deserialize, Deserializer};

/// Defines structs that are read from the camel-case keys of an object. Ignition takes `null` for every field and means
/// "absent", so each field has its default then.
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
