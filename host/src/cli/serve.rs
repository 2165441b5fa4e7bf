//! `lockstep serve`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use super::CliError;
use crate::clock;
use crate::config::EngineArgs;
use crate::http::{self, ApiKeys, App, HttpArgs, Listener, ModelCard, SeedSource, Tls};
use crate::start::{Running, derived_fingerprint, start};
use crate::structured::Grammars;

/// The arguments of `lockstep serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    http: HttpArgs,
    /// The names under which requests may ask for the model; the first is the answers' [default: `--model`]
    #[arg(long, env = "LOCKSTEP_SERVED_MODEL_NAME", value_delimiter = ',', value_parser = parse_name)]
    served_model_name: Vec<String>,
}

/// A name under which a model can be asked for.
fn parse_name(text: &str) -> Result<String, String> {
    let blank = text.trim().is_empty() || text.chars().any(char::is_control);
    match text.len() {
        1..=256 if !blank => Ok(text.to_owned()),
        bytes => Err(format!(
            "a name has 1 to 256 bytes and is not blank; this one has {bytes}"
        )),
    }
}

/// Serves until SIGINT or SIGTERM, then drains.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let name = args
        .served_model_name
        .first()
        .unwrap_or(&args.engine.model)
        .clone();
    let (tls, keys) = (args.http.tls()?, args.http.keys()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // Before the model is loaded and a journal begun: an address that is taken should cost nothing.
    let listener = runtime.block_on(bind(&args))?;
    let started = clock::now();
    let running = start(&args.engine, &name)?;
    let fits = args.http.check(running.config.max_model_len);
    log::info!(
        "{name} is loaded after {:.2} s on {}",
        started.elapsed().as_secs_f64(),
        running.device
    );
    let served = fits
        .map_err(CliError::from)
        .and_then(|()| app(&args, name, &running, tls, keys))
        .and_then(|app| runtime.block_on(serve(listener, app, &running)));
    // Handlers that still hold the door would keep the engine waiting at it.
    runtime.shutdown_timeout(Duration::from_secs(1));
    running.intake.abort();
    if let Some(path) = &args.http.uds {
        let _ = std::fs::remove_file(path);
    }
    running.join()?;
    served?;
    log::info!("every stream has ended");
    Ok(ExitCode::SUCCESS)
}

async fn bind(args: &Args) -> Result<Listener, CliError> {
    let http = &args.http;
    if let Some(path) = &http.uds {
        remove_stale(path).await;
        let bound = UnixListener::bind(path);
        return match bound {
            Ok(listener) => Ok(Listener::Unix(listener)),
            Err(error) => Err(format!("cannot listen on {}: {error}", path.display()).into()),
        };
    }
    let bound = TcpListener::bind((http.host.as_str(), http.port)).await;
    match bound {
        Ok(listener) => Ok(Listener::Tcp(listener)),
        Err(error) => Err(format!("cannot listen on {}:{}: {error}", http.host, http.port).into()),
    }
}

/// Removes a socket that a server left behind: nobody answers on it.
async fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).await.is_err() {
        let _ = std::fs::remove_file(path);
    }
}

async fn serve(listener: Listener, app: App, running: &Running) -> Result<(), CliError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = interrupt.recv() => log::info!("SIGINT: draining"),
            _ = terminate.recv() => log::info!("SIGTERM: draining"),
            () = ended(running) => log::error!("the engine has ended: draining"),
        }
    };
    let scheme = if app.tls.is_some() { "https" } else { "http" };
    match &listener {
        Listener::Tcp(tcp) => log::info!("listening on {scheme}://{}", tcp.local_addr()?),
        Listener::Unix(unix) => log::info!("listening on {:?}", unix.local_addr()?),
    }
    http::serve(listener, app, shutdown).await?;
    Ok(())
}

/// Resolves when the engine has failed: it ends by itself only then, or after a drain.
async fn ended(running: &Running) {
    while !running.has_ended() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A default length decides where an answer ends whose request names none.
fn fingerprint(args: &Args, running: &Running) -> String {
    let engine = &running.fingerprint;
    match args.http.default_max_tokens {
        Some(tokens) => derived_fingerprint(engine, &format!("default_max_tokens {tokens}")),
        None => engine.clone(),
    }
}

/// What `/server_info` tells: the limits, where the model computes, and under which numerics.
fn server_config(running: &Running) -> Result<serde_json::Value, CliError> {
    let mut config = serde_json::to_value(&running.config)?;
    config["device"] = running.device.as_str().into();
    config["numerics"] = running.numerics.as_str().into();
    Ok(config)
}

fn app(
    args: &Args,
    name: String,
    running: &Running,
    tls: Option<Tls>,
    keys: ApiKeys,
) -> Result<App, CliError> {
    Ok(App {
        intake: running.intake.clone(),
        model: ModelCard {
            id: name,
            aliases: args.served_model_name.iter().skip(1).cloned().collect(),
            created: clock::unix_seconds(),
            root: running.path.display().to_string(),
            max_model_len: running.config.max_model_len,
            fingerprint: fingerprint(args, running),
        },
        text: Arc::clone(&running.text) as _,
        grammars: Some(Arc::new(Grammars::new(&running.text.tokenizer)?)),
        limits: args.http.limits(),
        keys,
        tls,
        metrics: Arc::clone(&running.metrics),
        seeds: SeedSource::new(args.engine.seed),
        cors: args.http.cors(),
        debug: Some(Arc::new(running.accounts.clone())),
        config: server_config(running)?,
    })
}
