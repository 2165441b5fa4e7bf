//! The program as a child process, with a driver that the test chooses, and a client for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use lockstep::gguf::tiny::tiny_llama;
use serde_json::Value;

/// How long an answer of the slowest test may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long to wait between two looks at a child.
const LOOK: Duration = Duration::from_millis(20);

/// A folder with a model, and with whatever is to be found as the driver.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// The library that stands in for the driver, which cargo builds as a dependency of this test.
pub(crate) fn stand_in() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let found = test.with_file_name("libcuda_stand_in.so");
    assert!(found.exists(), "{} is not built", found.display());
    found
}

impl Place {
    /// A place where `driver` is found as the driver, or none.
    pub(crate) fn new(driver: Option<&Path>) -> Self {
        let place = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        std::fs::write(place.model(), tiny_llama(1)).expect("room for a model");
        std::fs::create_dir(place.drivers()).expect("room for a folder");
        for name in ["libcuda.so", "libcuda.so.1"] {
            if let Some(driver) = driver {
                symlink(driver, place.drivers().join(name)).expect("room for a link");
            }
        }
        place
    }

    pub(crate) fn with_stand_in() -> Self {
        Self::new(Some(&stand_in()))
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where libraries are found.
    pub(crate) fn drivers(&self) -> PathBuf {
        self.folder.path().join("drivers")
    }

    /// The program; the arguments are the caller's, the model is this place's.
    pub(crate) fn command(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command
            .args(arguments)
            .env("LOCKSTEP_MODEL", self.model())
            .env("LOCKSTEP_THREADS", "1")
            .env("LOCKSTEP_SERVED_MODEL_NAME", "tiny")
            .env("LD_LIBRARY_PATH", self.drivers())
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let output = self.command(arguments, environment).output();
        output.expect("the program can be started")
    }

    /// Starts a server.
    pub(crate) fn serve(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = self.command(&["serve", "--port", "0"], environment);
        command.args(arguments).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut log = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("it ended before it listened:\n{log}");
            };
            log.push_str(&line);
            log.push('\n');
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.trim().to_owned();
            }
        };
        let rest = std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .fold(log, |log, line| log + &line + "\n")
        });
        Server {
            child,
            address,
            log: Some(rest),
        }
    }
}

/// Everything that a program said.
pub(crate) fn text(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    part(&output.stdout) + &part(&output.stderr)
}

/// A running server; it is killed with the test.
pub(crate) struct Server {
    child: Child,
    address: String,
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// The status and body of an answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        ask(&self.address, method, path, body)
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// The value of a metric without labels, or of the first with any.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, page) = self.ask("GET", "/metrics", "");
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("there is no metric {name}"))
    }

    /// Waits for its end by itself: its status, and all that it logged.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let looks = PATIENCE.as_millis() / LOOK.as_millis();
        let mut ends = (0..looks).map(|_| {
            std::thread::sleep(LOOK);
            self.child.try_wait().expect("it is a child")
        });
        let status = ends.find_map(|status| status);
        let status = status.expect("a server whose device has failed ends");
        let log = self.log.take().expect("it is taken once").join();
        (status, log.expect("the log is text"))
    }

    /// Ends it: all that it logged.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it is a child");
        let log = self.log.take().expect("it is taken once").join();
        log.expect("the log is text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout is possible");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = Vec::new();
    // A server that dies may reset the connection behind its last byte.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or(0), body.to_owned())
}

/// The choices of a completion.
pub(crate) fn choices(answer: &(u16, String)) -> Value {
    assert_eq!(answer.0, 200, "{}", answer.1);
    let body: Value = serde_json::from_str(&answer.1).expect("an answer is JSON");
    body["choices"].clone()
}
