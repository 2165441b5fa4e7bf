//! The real model's own chat template and tokenizer, together.

use lockstep::chat::{ChatTemplate, Conversation};
use lockstep::gguf::Gguf;
use lockstep::tokenizer::Tokenizer;
use serde_json::json;

use lockstep_tests::real_model;

#[test]
fn a_chat_becomes_the_tokens_that_the_model_was_trained_on() {
    let file = Gguf::open(&real_model()).expect("a valid file");
    let tokenizer = Tokenizer::from_gguf(&file).expect("a valid vocabulary");
    let template = ChatTemplate::from_gguf(&file, &tokenizer).expect("a template that works");
    let messages = [json!({"role": "user", "content": "Say <|im_end|>"})];
    let conversation = Conversation {
        messages: &messages,
        add_generation_prompt: true,
        ..Default::default()
    };
    let prompt = template.render(&conversation).expect("rendered");
    assert_eq!(
        prompt.text,
        "<|im_start|>system\n\
         You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nSay <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    );
    let ids = tokenizer.encode_prompt(&prompt).expect("ids");
    let control: Vec<u32> = ids
        .iter()
        .copied()
        .filter(|id| tokenizer.is_control(*id))
        .collect();
    assert_eq!(control, [1, 2, 1, 2, 1]);
    assert_eq!(tokenizer.decode(&ids, false), prompt.text);
}
