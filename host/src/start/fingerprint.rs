//! The fingerprint of an engine: a name for everything that decides an answer beside its request.

use crate::sampler::SAMPLER_VERSION;

/// Raised whenever this project's own part of rendering, tokenizing, detokenizing, stopping or
/// constraining changes what some request is answered with.
const TEXT_VERSION: &str = "text 1";

/// The libraries that have a part in it. Their exact versions count; a test holds them against the
/// lock file.
const LIBRARIES: [&str; 7] = [
    "derivre 0.3.13",
    "fancy-regex 0.17.0",
    "llguidance 1.9.1",
    "minijinja 3.1.0",
    "minijinja-contrib 3.1.0",
    "tokenizers 0.23.2",
    "toktrie 1.9.1",
];

/// The fingerprint of an engine: of its model file (by digest: weights, vocabulary and template),
/// its numerics, the length of its context, and what turns text into tokens and back.
pub(super) fn fingerprint(model_digest: &str, numerics: &str, max_model_len: u32) -> String {
    let libraries = LIBRARIES.join(" ");
    let context = max_model_len.to_string();
    let parts = [
        model_digest,
        numerics,
        SAMPLER_VERSION,
        TEXT_VERSION,
        &libraries,
        &context,
    ];
    digest(&parts.join("\n"))
}

/// The fingerprint of a server that also decides by `what`.
pub fn derived_fingerprint(fingerprint: &str, what: &str) -> String {
    digest(&format!("{fingerprint}\n{what}"))
}

fn digest(text: &str) -> String {
    format!("fp_{}", &blake3::hash(text.as_bytes()).to_hex()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_libraries_are_those_of_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        for library in LIBRARIES {
            let (name, version) = library.split_once(' ').expect("name and version");
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "{library} is not what is built with");
        }
    }

    #[test]
    fn every_part_of_it_counts() {
        let own = fingerprint("model", "numerics", 100);
        assert_eq!(own, fingerprint("model", "numerics", 100));
        let others = [
            fingerprint("other", "numerics", 100),
            fingerprint("model", "other", 100),
            fingerprint("model", "numerics", 101),
            derived_fingerprint(&own, "default_max_tokens 5"),
        ];
        for other in &others {
            assert_ne!(&own, other);
            assert_eq!(other.len(), own.len());
        }
    }
}
