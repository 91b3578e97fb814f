//! The command line, screens and the manual.

mod cli;
mod manners;
mod manual;
mod printed_commands;
mod texts;
