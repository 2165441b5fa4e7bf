#!/bin/sh
# Applies each mutation of mutations.txt to a copy of the scheduler and its tests, and demands that
# a test fails. Says which were caught, and fails if one was not.
#
# The copy is a crate of its own with the modules that need no model: it builds in seconds.
# Usage: tests/mutations.sh [part of a name]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exec_status=0
python3 - "$root" "$work" "${1:-}" <<'PYTHON' || exec_status=$?
import os, pathlib, shutil, subprocess, sys, time

root, work, only = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
MODULES = ["batch", "clock", "journal", "kv", "profile", "request", "scheduler", "simulation"]
TESTS = ["scenarios", "simulation"]
# What `request` names of a module that needs a tokenizer.
STRUCTURED = """
pub mod structured {
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct Constraint;
    #[derive(Clone, Debug)]
    pub struct Matcher;
}
"""
MANIFEST = """
[workspace]
members = ["policy-core", "host"]
resolver = "3"
[workspace.package]
version = "0.0.0"
edition = "2024"
rust-version = "1.95"
license = "Apache-2.0 OR MIT"
[workspace.dependencies]
%s
[workspace.lints.rust]
unexpected_cfgs = "allow"
[profile.test]
opt-level = 1
debug = 0
"""
HOST = """
[package]
name = "lockstep"
edition.workspace = true
version.workspace = true
[dependencies]
policy-core = { path = "../policy-core" }
blake3 = { workspace = true }
clap = { workspace = true }
log = { workspace = true }
serde = { workspace = true }
serde_json = { workspace = true }
[dev-dependencies]
quickcheck = { workspace = true }
tempfile = { workspace = true }
[[test]]
name = "harness"
path = "tests/main.rs"
"""


def dependencies():
    text = (root / "Cargo.toml").read_text()
    section = text.split("[workspace.dependencies]")[1].split("\n[")[0]
    return "\n".join(l for l in section.splitlines() if "path =" not in l)


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def lay_out():
    (work / "Cargo.toml").write_text(MANIFEST % dependencies())
    copy(root / "Cargo.lock", work / "Cargo.lock")
    copy(root / "policy-core", work / "policy-core")
    manifest = work / "policy-core/Cargo.toml"
    text = manifest.read_text().split("[dev-dependencies]")[0]
    manifest.write_text(text)
    for name in ["tests", "benches", "examples"]:
        shutil.rmtree(work / "policy-core" / name, ignore_errors=True)
    host = work / "host"
    (host / "tests").mkdir(parents=True)
    (host / "Cargo.toml").write_text(HOST)
    lines = []
    for module in MODULES:
        for source in [root / f"host/src/{module}.rs", root / f"host/src/{module}"]:
            if source.exists():
                copy(source, host / "src" / source.name)
        lines.append(f"pub mod {module};\n")
    (host / "src/lib.rs").write_text("".join(lines) + STRUCTURED)
    for test in TESTS:
        for source in [root / f"tests/{test}.rs", root / f"tests/{test}"]:
            copy(source, host / "tests" / source.name)
    (host / "tests/main.rs").write_text("".join(f"mod {t};\n" for t in TESTS))
    # The harness is one file's modules: cargo must not take them for harnesses of their own.
    text = (host / "Cargo.toml").read_text().replace("[package]", "[package]\nautotests = false")
    (host / "Cargo.toml").write_text(text)


def mutations():
    found, lines = [], (root / "tests/mutations.txt").read_text()
    for part in lines.split("\n@ ")[1:]:
        head, rest = part.split("\n<<< ")
        old, new = rest.rstrip("\n").split("\n>>> ")
        name, path = head.split("\n")
        found.append((name, path, old, new))
    return found


def cargo(*arguments):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(work / "target"), LOCKSTEP_SEEDS="200")
    environment.pop("RUST_BACKTRACE", None)
    try:
        done = subprocess.run(["cargo", "test", "-q", "-p", "lockstep", *arguments],
                              cwd=work, env=environment, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        return "hung", ""
    if done.returncode == 0:
        return "passed", done.stdout
    compiled = "could not compile" not in done.stdout
    return ("failed" if compiled else "broken"), done.stdout


def run_tests(path):
    """The quick tests first; the slow ones only if those see nothing."""
    quick = ["--test", "harness", "--", "scenarios", "every_promise"]
    rest = ["--test", "harness", "--", "--skip", "scenarios", "--skip", "every_promise",
            "--skip", "altered_byte"]
    stages = [["--lib"], quick, rest] if "/kv/" in path else [quick, ["--lib"], rest]
    for stage in stages:
        state, output = cargo(*stage)
        if state != "passed":
            break
    return state, output


lay_out()
start = time.monotonic()
state, output = run_tests("")
if state != "passed":
    print(output, f"the unmutated tests: {state}", sep="\n")
    sys.exit(1)
missed, tried = 0, 0
for name, path, old, new in mutations():
    if only not in name:
        continue
    tried += 1
    target = work / path
    original = target.read_text()
    if original.count(old) != 1:
        print(f"NOT FOUND  {name}: its text stands {original.count(old)} times in {path}")
        missed += 1
        continue
    target.write_text(original.replace(old, new))
    state, output = run_tests(path)
    target.write_text(original)
    names = sorted({l.split()[1] for l in output.splitlines() if l.startswith("---- ")})
    if state in ("failed", "hung"):
        print(f"caught     {name} ({len(names)} tests)", flush=True)
    else:
        missed += 1
        print(f"{'MISSED' if state == 'passed' else 'BROKEN':10} {name}", flush=True)
        if state == "broken":
            print(output)
took = time.monotonic() - start
print(f"{tried - missed} of {tried} mutations caught in {took:.0f} s")
sys.exit(1 if missed or not tried else 0)
PYTHON
exit $exec_status
