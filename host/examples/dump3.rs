use lockstep::batch::*;
use lockstep::gguf::Gguf;
use lockstep::model::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let f = Gguf::open(std::path::Path::new(&a[1])).unwrap();
    let mut m = Model::load(
        &f,
        ModelOptions {
            kv_dtype: KvDtype::F16,
            ..Default::default()
        },
    )
    .unwrap();
    let toks: Vec<u32> = a[2..].iter().map(|x| x.parse().unwrap()).collect();
    let v = m.vocab_size();
    let n = toks.len();
    let mut logits = vec![0f32; v * n];
    let b = Batch {
        token_ids: toks.clone(),
        positions: (0..n as u32).collect(),
        slots: (0..n as u32).collect(),
        sequences: vec![BatchSequence {
            first_row: 0,
            rows: n as u32,
            first_block: 0,
            blocks: 4,
        }],
        block_tables: vec![0, 1, 2, 3],
        sampling_rows: (0..n as u32).collect(),
    };
    m.forward(&b, &mut logits).unwrap();
    for r in 0..n {
        {
            let l = &logits[r * v..r * v + v];
            let mut i: Vec<usize> = (0..v).collect();
            i.sort_by(|a, b| l[*b].total_cmp(&l[*a]));
            println!(
                "{:?}",
                i[..5].iter().map(|i| (*i, l[*i])).collect::<Vec<_>>()
            );
        };
    }
}
