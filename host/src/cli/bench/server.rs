//! The real server in this process, on a loopback port: what `lockstep serve` starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::super::CliError;
use crate::clock;
use crate::config::EngineArgs;
use crate::http::{self, ApiKeys, App, HttpLimits, Listener, ModelCard, SeedSource};
use crate::start::{Running, start};
use crate::structured::Grammars;

/// A server that runs.
pub(super) struct LocalServer {
    /// Its address: `http://127.0.0.1:port`.
    pub(super) url: String,
    /// The engine behind it.
    pub(super) running: Running,
    /// From the beginning to where requests are answered.
    pub(super) started_in: Duration,
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl LocalServer {
    /// Loads the model and listens.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn start(args: &EngineArgs) -> Result<Self, CliError> {
        let begun = clock::now();
        let running = start(args, &args.model)?;
        let app = app(args, &running)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let served = runtime.spawn(http::serve(Listener::Tcp(listener), app, shutdown));
        Ok(Self {
            url,
            running,
            started_in: begun.elapsed(),
            runtime,
            stop,
            served,
        })
    }

    /// Drains and ends.
    ///
    /// # Errors
    /// Why the server or the engine failed.
    pub(super) fn stop(self) -> Result<(), CliError> {
        drop(self.stop);
        self.runtime.block_on(self.served)??;
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        self.running.join()?;
        Ok(())
    }
}

fn app(args: &EngineArgs, running: &Running) -> Result<App, CliError> {
    Ok(App {
        intake: running.intake.clone(),
        model: ModelCard {
            id: args.model.clone(),
            max_model_len: running.config.max_model_len,
            fingerprint: running.fingerprint.clone(),
            ..ModelCard::default()
        },
        text: Arc::clone(&running.text) as _,
        grammars: Some(Arc::new(Grammars::new(&running.text.tokenizer)?)),
        limits: HttpLimits::default(),
        keys: ApiKeys::new([""; 0]),
        tls: None,
        metrics: Arc::clone(&running.metrics),
        seeds: SeedSource::new(args.seed),
        cors: None,
        debug: None,
        config: serde_json::to_value(&running.config)?,
    })
}
