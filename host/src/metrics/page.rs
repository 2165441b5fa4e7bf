//! The page of `/metrics`: vLLM's names, and our own under `lockstep_`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::exposition::Page;
use super::{EndReason, Metrics};

impl Metrics {
    /// The page in the Prometheus text format.
    pub fn render(&self) -> String {
        let labels = &self.labels;
        let mut page = Page::new(&[("model_name", &labels.model_name), ("engine", "0")]);
        self.write_gauges(&mut page);
        self.write_counters(&mut page);
        self.write_request_histograms(&mut page);
        self.write_own(&mut page);
        page.finish()
    }

    fn write_gauges(&self, page: &mut Page) {
        let labels = &self.labels;
        let used = size(&self.used_blocks) as f64;
        let usage = used / f64::from(labels.num_blocks.max(1));
        page.gauge(
            "vllm:num_requests_running",
            "Sequences with a seat.",
            size(&self.running),
        );
        page.gauge(
            "vllm:num_requests_waiting",
            "Sequences without a seat.",
            size(&self.waiting),
        );
        page.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of KV blocks in use, 0 to 1.",
            usage,
        );
        page.info(
            "vllm:cache_config_info",
            "The KV cache's configuration.",
            &[
                ("block_size", &labels.block_size.to_string()),
                ("num_gpu_blocks", &labels.num_blocks.to_string()),
                ("cache_dtype", &labels.cache_dtype),
                ("device", &labels.device),
                ("enable_prefix_caching", "True"),
            ],
        );
    }

    fn write_counters(&self, page: &mut Page) {
        let preempted = count(&self.preempted_for_seat) + count(&self.preempted_for_blocks);
        let rows: [(&str, &str, u64); 6] = [
            ("vllm:num_preemptions_total", "Preemptions.", preempted),
            (
                "vllm:prompt_tokens_total",
                "Prompt tokens computed.",
                count(&self.prompt_tokens),
            ),
            (
                "vllm:generation_tokens_total",
                "Tokens drawn.",
                count(&self.generated_tokens),
            ),
            (
                "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix index.",
                count(&self.prefix_queries),
            ),
            (
                "vllm:prefix_cache_hits_total",
                "Prompt tokens found in the prefix index.",
                count(&self.prefix_hits),
            ),
            (
                "vllm:admission_rejections_total",
                "Requests refused at the door.",
                count(&self.rejections),
            ),
        ];
        for (name, help, value) in rows {
            page.counter(name, help, value);
        }
        let ended = EndReason::ALL
            .iter()
            .zip(&self.ended)
            .map(|((_, name), counter)| (*name, count(counter)));
        page.counters(
            "vllm:request_success_total",
            "Ended requests.",
            "finished_reason",
            ended,
        );
    }

    fn write_request_histograms(&self, page: &mut Page) {
        let rows = [
            (
                "vllm:time_to_first_token_seconds",
                "Door to first token.",
                &self.first_token,
            ),
            (
                "vllm:inter_token_latency_seconds",
                "Token to token.",
                &self.inter_token,
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "Door to end.",
                &self.total,
            ),
            (
                "vllm:request_queue_time_seconds",
                "Door to first seat.",
                &self.queue,
            ),
            (
                "vllm:request_inference_time_seconds",
                "First seat to end.",
                &self.inference,
            ),
            (
                "vllm:request_prefill_time_seconds",
                "First seat to first token.",
                &self.prefill,
            ),
            (
                "vllm:request_decode_time_seconds",
                "First token to last.",
                &self.decode,
            ),
            (
                "vllm:iteration_tokens_total",
                "Rows of a step.",
                &self.step_tokens,
            ),
            (
                "vllm:request_num_preemptions",
                "Preemptions of a request.",
                &self.request_preemptions,
            ),
            (
                "vllm:request_prompt_tokens",
                "Prompt tokens of a request.",
                &self.request_prompt_tokens,
            ),
            (
                "vllm:request_generation_tokens",
                "Tokens drawn for a request.",
                &self.request_generated_tokens,
            ),
            (
                "vllm:request_params_max_tokens",
                "Tokens asked for.",
                &self.request_max_tokens,
            ),
        ];
        for (name, help, histogram) in rows {
            page.histogram(name, help, histogram);
        }
    }

    fn write_own(&self, page: &mut Page) {
        page.counters(
            "lockstep_preemptions_total",
            "Preemptions by what was lacking.",
            "cause",
            [
                ("seat", count(&self.preempted_for_seat)),
                ("blocks", count(&self.preempted_for_blocks)),
            ],
        );
        page.counter(
            "lockstep_recomputed_tokens_total",
            "Rows computed again after a preemption.",
            count(&self.recomputed_tokens),
        );
        page.gauge(
            "lockstep_journal_lag_records",
            "Records queued and not yet written.",
            count(&self.journal_lag),
        );
        page.histogram(
            "lockstep_step_time_seconds",
            "Time of a step.",
            &self.step_time,
        );
        page.gauge(
            "lockstep_http_connections",
            "Open connections.",
            size(&self.connections),
        );
        page.gauge(
            "lockstep_http_requests_in_flight",
            "Requests being answered.",
            size(&self.in_flight),
        );
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        let responses = classes.into_iter().zip(self.responses.iter().map(count));
        page.counters(
            "lockstep_http_responses_total",
            "Answers by status.",
            "status",
            responses,
        );
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn size(gauge: &AtomicUsize) -> usize {
    gauge.load(Ordering::Relaxed)
}
