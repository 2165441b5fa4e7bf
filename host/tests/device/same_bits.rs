//! Tokens and logprobs of a server on the stand-in are those of one on the CPU, bit for bit.

use std::process::Output;

use serde_json::{Value, json};

use crate::program::{Place, Server, ask, choices, text};

/// Too few blocks for all that [`burst`] asks at once.
const LIMITS: [&str; 8] = [
    "--num-blocks",
    "6",
    "--max-model-len",
    "80",
    "--max-chunk-tokens",
    "16",
    "--seed",
    "5",
];

fn completion(number: usize) -> Value {
    let prompt = format!(
        "The {} of the island, again",
        ["heat", "road", "hat", "rain"][number % 4]
    );
    let temperature = [0.0, 0.9][number % 2];
    json!({
        "model": "tiny", "prompt": prompt, "max_tokens": 36, "seed": number, "logprobs": 5,
        "temperature": temperature, "n": 1 + number % 3 / 2
    })
}

/// Six requests at once, one of which has two choices: the choices of each.
fn burst(server: &Server) -> Vec<Value> {
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let address = server.address();
            let body = completion(number).to_string();
            std::thread::spawn(move || ask(&address, "POST", "/v1/completions", &body))
        })
        .collect();
    let answers = threads
        .into_iter()
        .map(|thread| thread.join().expect("it answers"));
    answers.map(|answer| choices(&answer)).collect()
}

/// Two bursts, the second of which finds what the first has computed, and one request alone.
fn answers(server: &Server) -> Vec<Value> {
    let (first, second) = (burst(server), burst(server));
    let alone = server.ask("POST", "/v1/completions", &completion(3).to_string());
    [first, second, vec![choices(&alone)]].concat()
}

#[test]
fn tokens_and_logprobs_are_the_cpus_in_batches_after_preemptions_and_prefix_hits() {
    let place = Place::with_stand_in();
    let start = |more: &[&str]| place.serve(&[&LIMITS, more].concat(), &[]);
    let cpu = start(&["--device", "cpu"]);
    let expected = answers(&cpu);
    assert!(
        expected[0][0]["logprobs"]["token_logprobs"][3].is_number(),
        "{}",
        expected[0]
    );
    for more in [
        &["--device", "cuda"][..],
        &["--device", "cuda:0", "--enforce-eager"],
    ] {
        let server = start(more);
        assert_eq!(answers(&server), expected, "{more:?}");
        assert!(
            server.metric("vllm:num_preemptions_total") > 0.0,
            "{more:?}"
        );
        assert!(
            server.metric("vllm:prefix_cache_hits_total") > 0.0,
            "{more:?}"
        );
        let (_, metrics) = server.ask("GET", "/metrics", "");
        assert!(
            metrics.contains("device=\"cuda:0: PTX interpreter (not a GPU)"),
            "{metrics}"
        );
        let (_, info) = server.ask("GET", "/server_info", "");
        assert!(info.contains("PTX interpreter (not a GPU)"), "{info}");
        server.kill();
    }
}

#[test]
fn fast_numerics_give_one_answer_whatever_else_is_in_the_batch_and_name_the_device() {
    let place = Place::with_stand_in();
    let start = |more: &[&str]| {
        let fast = ["--device", "cuda", "--numerics", "fast"];
        place.serve(&[&LIMITS, &fast[..], more].concat(), &[])
    };
    let (graphs, eager) = (start(&[]), start(&["--enforce-eager"]));
    let expected = burst(&graphs);
    // One of the requests, with nothing beside it.
    let alone = eager.ask("POST", "/v1/completions", &completion(3).to_string());
    assert_eq!(choices(&alone), expected[3]);
    let (_, info) = graphs.ask("GET", "/server_info", "");
    assert!(
        info.contains("fast-1/PTX interpreter (not a GPU)"),
        "{info}"
    );
}

#[test]
fn a_journal_of_the_cpu_replays_its_tokens_on_the_device() {
    let place = Place::with_stand_in();
    let journal = place.path("journal");
    let journal = journal.to_str().expect("it is text");
    let arguments = [
        "run",
        "in the rain",
        "--max-tokens",
        "6",
        "--device",
        "cpu",
        "--num-blocks",
        "32",
    ];
    let run = place.run(&[&arguments[..], &["--journal", journal]].concat(), &[]);
    assert!(run.status.success(), "{}", text(&run));
    let replay = place.run(&["replay", journal, "--tokens", "--device", "cuda"], &[]);
    assert!(replay.status.success(), "{}", text(&replay));
    assert!(
        text(&replay).contains("drew 6 tokens again: every one is equal"),
        "{}",
        text(&replay)
    );
}

fn doctor(place: &Place, environment: &[(&str, &str)]) -> Output {
    place.run(
        &["doctor", "--prompt", "33", "--device", "cuda"],
        environment,
    )
}

#[test]
fn the_doctor_compares_the_device_with_the_cpu() {
    let place = Place::with_stand_in();
    for pools in ["1", "0"] {
        let output = doctor(&place, &[("CUDA_STAND_IN_POOLS", pools)]);
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("GPU:           cuda:0: PTX interpreter (not a GPU)"),
            "{said}"
        );
        let examined = said.lines().filter(|line| line.starts_with("on the GPU, "));
        assert_eq!(
            examined.filter(|line| line.ends_with("same bits")).count(),
            6,
            "{said}"
        );
    }
}

#[test]
fn the_pool_is_sized_by_the_devices_memory() {
    let place = Place::with_stand_in();
    let blocks = |share: &str| {
        let limits = ["--max-model-len", "64", "--max-num-batched-tokens", "32"];
        let device = ["--device", "cuda", "--gpu-memory-utilization", share];
        let memory = [("CUDA_STAND_IN_MEMORY", "8388608")];
        let server = place.serve(&[limits, device].concat(), &memory);
        let (_, info) = server.ask("GET", "/server_info", "");
        let info: Value = serde_json::from_str(&info).expect("it is JSON");
        info["config"]["num_blocks"]
            .as_u64()
            .expect("it is a number")
    };
    // A block has 4096 bytes: a tenth of the memory is 205 of them.
    let (some, more) = (blocks("0.5"), blocks("0.6"));
    assert!((204..=206).contains(&(more - some)), "{some} and {more}");
}

/// SmolLM2, or whatever is named: a prompt and three tokens, with logprobs and without.
#[test]
#[ignore = "needs a model's file in LOCKSTEP_TEST_MODEL, and a minute"]
fn a_real_model_gives_the_cpus_tokens() {
    let model = std::env::var("LOCKSTEP_TEST_MODEL").expect("LOCKSTEP_TEST_MODEL names a file");
    let place = Place::with_stand_in();
    let answer = |device: &str| {
        let limits = [
            "--num-blocks",
            "8",
            "--max-model-len",
            "64",
            "--max-num-batched-tokens",
            "32",
        ];
        let server = place.serve(
            &[&limits[..], &["--max-num-seqs", "2", "--device", device]].concat(),
            &[
                ("LOCKSTEP_MODEL", &model),
                ("CUDA_STAND_IN_MEMORY", "2000000000"),
            ],
        );
        let ask = |more: Value| {
            let mut body = json!({
                "model": "tiny", "prompt": "The capital of France is", "max_tokens": 3, "temperature": 0,
                "return_token_ids": true
            });
            let fields = body.as_object_mut().expect("it is an object");
            fields.extend(more.as_object().expect("it is an object").clone());
            choices(&server.ask("POST", "/v1/completions", &body.to_string()))
        };
        // From all logits, and from the first rank.
        [ask(json!({"logprobs": 5})), ask(json!({}))]
    };
    let (cpu, device) = (answer("cpu"), answer("cuda"));
    assert_eq!(device, cpu);
    assert_eq!(cpu[0][0]["token_ids"], cpu[1][0]["token_ids"]);
    println!("{}", cpu[0][0]["text"]);
}
