#!/usr/bin/env bash
# Runs each fuzz target for so many seconds, from its seeds. Usage: run.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzzing skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 0
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzzing skipped: no cargo-fuzz (cargo install cargo-fuzz --locked)"
    exit 0
fi

cargo +nightly fuzz build --fuzz-dir rust/fuzz
for source in rust/fuzz/fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    dictionary=json.dict
    case $target in
    split_* | events_* | encoded_* | reply_* | repair_* | translation_* | harmony_*) dictionary=sse.dict ;;
    esac
    mkdir -p "rust/fuzz/corpus/$target"
    cargo +nightly fuzz run --fuzz-dir rust/fuzz "$target" \
        "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target" -- \
        -dict="rust/fuzz/$dictionary" -max_total_time="$seconds" -max_len=600 -timeout=60 -rss_limit_mb=2048 \
        -print_funcs=0 -verbosity=0 -print_final_stats=0
    echo "$target: $seconds seconds without a finding"
done
