use lockstep::batch::*;
use lockstep::gguf::Gguf;
use lockstep::model::*;
fn main() {
    let t = std::time::Instant::now();
    let a: Vec<String> = std::env::args().collect();
    let f = Gguf::open(std::path::Path::new(&a[1])).unwrap();
    let isa = a.get(2).map(|s| s.parse().unwrap());
    let threads = a.get(3).map_or(2, |s| s.parse().unwrap());
    let mut m = Model::load(
        &f,
        ModelOptions {
            threads,
            isa,
            num_blocks: 4096,
            ..Default::default()
        },
    )
    .unwrap();
    println!("load {:?} {:?}", t.elapsed(), m.isa());
    let fp = Footprint::of(&f, m.options()).unwrap();
    println!("{fp:?}");
    let prompt: Vec<u32> = std::fs::read_to_string(&a[4])
        .unwrap()
        .split_whitespace()
        .map(|x| x.parse().unwrap())
        .collect();
    let v = m.vocab_size();
    let mut logits = vec![0f32; v * 64];
    let blocks = |s: u32, n: u32| (0..n).map(|i| s * 128 + i).collect::<Vec<_>>();
    let bt = blocks(0, 64);
    let mk = |toks: &[u32], start: u32| Batch {
        token_ids: toks.to_vec(),
        positions: (start..start + toks.len() as u32).collect(),
        slots: (start..start + toks.len() as u32)
            .map(|p| bt[(p / 16) as usize] * 16 + p % 16)
            .collect(),
        sequences: vec![BatchSequence {
            first_row: 0,
            rows: toks.len() as u32,
            first_block: 0,
            blocks: 64,
        }],
        block_tables: bt.clone(),
        sampling_rows: vec![toks.len() as u32 - 1],
    };
    m.forward(&mk(&prompt, 0), &mut logits[..v]).unwrap();
    let mut out = vec![];
    let mut pos = prompt.len() as u32;
    for _ in 0..48 {
        let t = logits[..v]
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1))
            .unwrap()
            .0 as u32;
        out.push(t);
        m.forward(&mk(&[t], pos), &mut logits[..v]).unwrap();
        pos += 1;
    }
    println!(
        "{out:?} logit sum bits {:x}",
        logits[..v]
            .iter()
            .fold(0u32, |a, x| a.wrapping_mul(31).wrapping_add(x.to_bits()))
    );
    if a.len() > 5 {
        for _ in 0..3 {
            // prompt 512
            let p: Vec<u32> = (0..512).map(|i| prompt[i % prompt.len()]).collect();
            let t = std::time::Instant::now();
            m.forward(&mk(&p, 0), &mut logits[..v]).unwrap();
            let e = t.elapsed();
            println!("prompt512 {:.0} tok/s", 512.0 / e.as_secs_f64());
            let t = std::time::Instant::now();
            for i in 0..64 {
                m.forward(&mk(&[5], 512 + i), &mut logits[..v]).unwrap();
            }
            let e = t.elapsed();
            println!("decode {:.0} tok/s", 64.0 / e.as_secs_f64());
            let t = std::time::Instant::now();
            for i in 0..128 {
                m.forward(&mk(&[5], 0 + i), &mut logits[..v]).unwrap();
            }
            let e = t.elapsed();
            println!("decode@0 {:.0} tok/s", 128.0 / e.as_secs_f64());
            for n in [8u32, 32] {
                let mut b = Batch::default();
                for s in 0..n {
                    b.sequences.push(BatchSequence {
                        first_row: s,
                        rows: 1,
                        first_block: s * 64,
                        blocks: 64,
                    });
                    b.block_tables.extend(blocks(s, 64));
                    b.sampling_rows.push(s);
                    b.token_ids.push(5 + s);
                    b.positions.push(0);
                    b.slots.push(0);
                }
                let t = std::time::Instant::now();
                for i in 0..64u32 {
                    let p = 128 + i;
                    for s in 0..n as usize {
                        b.positions[s] = p;
                        b.slots[s] = b.block_tables[s * 64 + (p / 16) as usize] * 16 + p % 16;
                    }
                    m.forward(&b, &mut logits[..v * n as usize]).unwrap();
                }
                let e = t.elapsed();
                println!("decode {n} {:.0} tok/s", 64.0 * n as f64 / e.as_secs_f64());
            }
        }
    }
}
