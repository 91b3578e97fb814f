//! Media that carry OS images, and how a pull would be decided.
