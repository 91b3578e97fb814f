//! `render` with objects of the API: forms of input, and refusals.
