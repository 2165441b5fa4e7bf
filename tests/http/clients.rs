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

/// The variable that says where a client is installed; without it the test is skipped, and says
/// so, but not in CI.
fn installed(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{variable} is not set: `make test` sets it"
        );
        println!("SKIPPED: {variable} names no place with the openai package; use `make test`");
    }
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_is_served() {
    if let Some(python) = installed("LOCKSTEP_PYTHON") {
        run(&python, "openai_client.py").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_npm_client_is_served() {
    if installed("LOCKSTEP_NODE_MODULES").is_some() {
        run("node", "openai_client.mjs").await;
    }
}
