//! The program as a user meets it: what it computes, and what it says of bad input.

mod bad_input;
mod bed;
mod commands;
mod deep;
