//! Clients that people use, against the real engine. `make test` installs them and says where.

use std::process::{Command, Stdio};

use super::real::Whole;

/// Runs a script of `tests/clients` with the server's address as its argument.
async fn run(program: &str, script: &str) {
    let server = Whole::start(|_, _| {}).await;
    let script = format!("{}/clients/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(program);
    let base_url = format!("http://{}/v1", server.address);
    command.arg(script).arg(base_url).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        shown(&output.stdout),
        shown(&output.stderr)
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_is_served() {
    match std::env::var("LOCKSTEP_PYTHON") {
        Ok(python) => run(&python, "openai_client.py").await,
        Err(_) => println!("skipped: LOCKSTEP_PYTHON names no Python with the openai package"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_npm_client_is_served() {
    match std::env::var("LOCKSTEP_NODE_MODULES") {
        Ok(_) => run("node", "openai_client.mjs").await,
        Err(_) => {
            println!("skipped: LOCKSTEP_NODE_MODULES names no folder with the openai package")
        }
    }
}
