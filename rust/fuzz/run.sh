#!/usr/bin/env bash
# Runs each fuzz target for so many seconds, from its seeds, as many at once as there are processors.
# Usage: run.sh [SECONDS]. What was found is said at the end: target, input, how to repeat it.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
logs=${CARGO_TARGET_DIR:-target}/fuzz-logs

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzzing skipped: no nightly compiler. To install it: rustup toolchain install nightly"
    exit 0
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzzing skipped: no cargo-fuzz. To install it: cargo install cargo-fuzz --locked"
    exit 0
fi

# Never fails, so that the other targets run on: a target that does leaves its status in a file.
run_target() {
    local target=$1 dictionary=json.dict status=0
    case $target in
    split_* | events_* | messages_any_* | encoded_* | reply_* | repair_* | translation_* | harmony_*) dictionary=sse.dict ;;
    esac
    mkdir -p "rust/fuzz/corpus/$target" "rust/fuzz/artifacts/$target"
    cargo +nightly fuzz run --fuzz-dir rust/fuzz "$target" \
        "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target" -- \
        -dict="rust/fuzz/$dictionary" -max_total_time="$seconds" -max_len=600 -timeout=60 -rss_limit_mb=2048 \
        -print_funcs=0 -verbosity=0 -print_final_stats=0 >"$logs/$target.log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        echo "$target: $seconds seconds without a finding"
    else
        echo "$target: FAILED"
        echo "$status" >"$logs/$target.failed"
    fi
}
export -f run_target
export seconds logs

cargo +nightly fuzz build --fuzz-dir rust/fuzz
rm -rf "$logs" && mkdir -p "$logs"
for source in rust/fuzz/fuzz_targets/*.rs; do
    basename "$source" .rs
done | xargs -P "$(nproc)" -I '{}' bash -c 'run_target "$1"' run_target '{}'

found=0
for mark in "$logs"/*.failed; do
    [ -e "$mark" ] || continue
    found=1
    target=$(basename "$mark" .failed)
    artifact=$(grep -aoE "rust/fuzz/artifacts/$target/[a-z]+-[0-9a-f]+" "$logs/$target.log" | tail -n 1 || true)
    echo
    echo "=== fuzz target $target: status $(cat "$mark"), the last lines of $logs/$target.log"
    tail -n 30 "$logs/$target.log"
    if [ -n "$artifact" ] && [ -e "$artifact" ]; then
        echo "input:  $artifact, in base64:"
        head -c 4096 "$artifact" | base64
        echo "repeat: cargo +nightly fuzz run --fuzz-dir rust/fuzz $target $artifact"
    else
        echo "repeat: make fuzz SECONDS_EACH=$seconds (no input was kept)"
    fi
done
exit "$found"
