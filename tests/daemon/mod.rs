//! Agreement with the daemon: its verdicts, its start, and what is handed over to it.

mod agreement;
mod decisions;
mod handover;
mod records;
mod start_table;
mod startup;
mod verdicts;
