//! Writes a tiny llama of random weights, for trying a server out without a download:
//! `cargo run --release -p lockstep --example tiny_model -- FILE`.

use std::process::ExitCode;

use lockstep::gguf::tiny::tiny_llama;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("the name of the file to write is missing");
        return ExitCode::FAILURE;
    };
    match std::fs::write(&path, tiny_llama(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
