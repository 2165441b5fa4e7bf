//! Prints every decision to standard output.

use std::process::ExitCode;

#[path = "../../decisions.rs"]
mod decisions;

fn main() -> ExitCode {
    let mut text = String::new();
    match decisions::decide(&mut text) {
        Ok(()) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("the decisions could not be printed: {failure:?}");
            ExitCode::FAILURE
        }
    }
}
