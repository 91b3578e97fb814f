//! The command line, screens and the manual.

mod answers;
mod cli;
mod documents;
mod forms;
mod manners;
mod manual;
mod next_steps;
mod printed_commands;
mod readme;
mod short_help;
mod terminal;
mod texts;
