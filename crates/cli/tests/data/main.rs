//! Data: messages, files and decisions of commands that page nothing, byte for byte. One failing
//! test fails the gate.

#[path = "../support/mod.rs"]
mod support;

mod advise;
mod claims;
mod cli;
mod foreign;
mod record;
mod sim;
mod surface;
mod tidy;
