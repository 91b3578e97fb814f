//! `fetch` and `cache`: names, connections and servers, and the causes of failures.

mod causes;
mod choice;
mod command;
mod names;
mod net;
