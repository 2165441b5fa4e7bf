//! `lockstep serve`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use super::CliError;
use crate::clock;
use crate::config::EngineArgs;
use crate::http::{self, App, HttpArgs, Listener, ModelCard, SeedSource};
use crate::start::{Running, start};
use crate::structured::Grammars;

/// The arguments of `lockstep serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    http: HttpArgs,
    /// The names under which requests may ask for the model; the first is the answers' [default: `--model`]
    #[arg(long, env = "LOCKSTEP_SERVED_MODEL_NAME", value_delimiter = ',')]
    served_model_name: Vec<String>,
}

/// Serves until SIGINT or SIGTERM, then drains.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let name = args
        .served_model_name
        .first()
        .unwrap_or(&args.engine.model)
        .clone();
    let started = clock::now();
    let running = start(&args.engine, &name)?;
    log::info!(
        "{name} is loaded after {:.2} s",
        started.elapsed().as_secs_f64()
    );
    let app = app(&args, name, &running)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(listen(&args, app, &running))?;
    // Handlers that still hold the door would keep the engine waiting at it.
    runtime.shutdown_timeout(Duration::from_secs(1));
    running.intake.abort();
    running.join()?;
    log::info!("every stream has ended");
    Ok(ExitCode::SUCCESS)
}

async fn listen(args: &Args, app: App, running: &Running) -> Result<(), CliError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = interrupt.recv() => log::info!("SIGINT: draining"),
            _ = terminate.recv() => log::info!("SIGTERM: draining"),
            () = ended(running) => log::error!("the engine has ended: draining"),
        }
    };
    let listener = match &args.http.uds {
        Some(path) => {
            log::info!("listening on {}", path.display());
            Listener::Unix(UnixListener::bind(path)?)
        }
        None => {
            let http = &args.http;
            let listener = TcpListener::bind((http.host.as_str(), http.port))
                .await
                .map_err(|error| {
                    format!("cannot listen on {}:{}: {error}", http.host, http.port)
                })?;
            log::info!("listening on http://{}", listener.local_addr()?);
            Listener::Tcp(listener)
        }
    };
    http::serve(listener, app, shutdown).await?;
    Ok(())
}

/// Resolves when the engine has failed: it ends by itself only then, or after a drain.
async fn ended(running: &Running) {
    while !running.has_ended() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn app(args: &Args, name: String, running: &Running) -> Result<App, CliError> {
    Ok(App {
        intake: running.intake.clone(),
        model: ModelCard {
            id: name,
            aliases: args.served_model_name.iter().skip(1).cloned().collect(),
            created: clock::unix_seconds(),
            root: running.path.display().to_string(),
            max_model_len: running.config.max_model_len,
            fingerprint: running.fingerprint.clone(),
        },
        text: Arc::clone(&running.text) as _,
        grammars: Some(Arc::new(Grammars::new(&running.text.tokenizer)?)),
        limits: args.http.limits(),
        keys: args.http.keys()?,
        metrics: Arc::clone(&running.metrics),
        seeds: SeedSource::new(args.engine.seed),
        cors: args.http.cors(),
        debug: Some(Arc::new(running.accounts.clone())),
        config: serde_json::to_value(&running.config)?,
    })
}
