//! A server under test, with its scripted engine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstep::http::{ApiKeys, App, HttpLimits, Listener, ModelCard, SeedSource, serve};
use lockstep::intake::{Intake, IntakeLimits, door};
use lockstep::metrics::{Metrics, MetricsLabels};
use lockstep::request::Request;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::client::PATIENCE;
use super::engine::{Bytes, Director, Log, Script, Stage, VOCAB, perform};

/// The context's length.
pub(super) const CONTEXT: u32 = 512;

/// How a server is set up.
pub(super) struct Setup {
    pub(super) limits: HttpLimits,
    pub(super) keys: ApiKeys,
    pub(super) max_waiting: usize,
    pub(super) director: Director,
    pub(super) change: Box<dyn FnOnce(&mut App)>,
}

/// A running server.
pub(super) struct Fixture {
    pub(super) address: SocketAddr,
    pub(super) intake: Intake,
    pub(super) stage: Stage,
    pub(super) metrics: Arc<Metrics>,
    pub(super) engine: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Setup {
    /// A server whose engine plays these scripts.
    pub(super) fn playing(director: impl Fn(&Request) -> Script + Send + Sync + 'static) -> Self {
        Self {
            limits: HttpLimits {
                drain_timeout: Duration::from_secs(10),
                ..HttpLimits::default()
            },
            keys: ApiKeys::open(),
            max_waiting: 256,
            director: Arc::new(director),
            change: Box::new(|_| {}),
        }
    }

    /// A server whose engine answers everything with this text.
    pub(super) fn saying(text: &'static str) -> Self {
        Self::playing(move |_| Script::text(text))
    }

    /// Starts it on a free port.
    pub(super) async fn start(self) -> Fixture {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        self.start_on(Listener::Tcp(listener)).await
    }

    /// Starts it.
    pub(super) async fn start_on(self, listener: Listener) -> Fixture {
        let address = match &listener {
            Listener::Tcp(tcp) => tcp.local_addr().expect("an address"),
            Listener::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        let (intake, engine_side) = door(IntakeLimits {
            max_waiting: self.max_waiting,
            max_model_len: CONTEXT,
            vocab_size: VOCAB,
        });
        let stage = Stage {
            log: Arc::new(Mutex::new(Log::default())),
            gate: Arc::new(Semaphore::new(0)),
        };
        let engine = tokio::spawn(perform(engine_side, self.director, stage.clone()));
        let labels = MetricsLabels {
            model_name: "tiny".into(),
            block_size: 16,
            num_blocks: 100,
            max_num_seqs: 4,
            max_model_len: CONTEXT,
            cache_dtype: "f32".into(),
            ..MetricsLabels::default()
        };
        let metrics = Arc::new(Metrics::new(labels));
        let mut app = App {
            intake: intake.clone(),
            model: card(),
            text: Arc::new(Bytes),
            grammars: None,
            limits: self.limits,
            keys: self.keys,
            tls: None,
            metrics: Arc::clone(&metrics),
            seeds: SeedSource::new(7),
            cors: None,
            debug: None,
            config: serde_json::json!({"max_num_seqs": 4}),
        };
        (self.change)(&mut app);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let server = tokio::spawn(serve(listener, app, shutdown));
        let fixture = Fixture {
            address,
            intake,
            stage,
            metrics,
            engine,
            stop: Some(stop),
            server,
        };
        fixture
            .until("the engine is ready", |fixture| {
                fixture.intake.state() == lockstep::intake::EngineState::Ready
            })
            .await;
        fixture
    }
}

impl Fixture {
    /// Asks the server to stop.
    pub(super) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Asks the server to stop and waits until it has.
    pub(super) async fn stopped_now(mut self) {
        self.stop();
        self.stopped().await;
    }

    /// Waits until it has stopped.
    pub(super) async fn stopped(self) {
        let server = tokio::time::timeout(PATIENCE, self.server).await;
        server
            .expect("the server stops")
            .expect("it does not panic")
            .expect("it had no error");
    }

    /// Waits until something is so; fails if it never is.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..4000 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never came true: {what}");
    }

    /// What the engine saw of its only request.
    pub(super) fn only_request(&self) -> Request {
        let log = self.stage.log.lock().unwrap();
        assert_eq!(log.requests.len(), 1);
        log.requests[0].clone()
    }
}

fn card() -> ModelCard {
    ModelCard {
        id: "tiny".into(),
        aliases: vec!["org/tiny".into()],
        created: 1_700_000_000,
        root: "/models/tiny.gguf".into(),
        max_model_len: CONTEXT,
        fingerprint: "ls-test".into(),
    }
}
