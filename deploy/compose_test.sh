#!/usr/bin/env bash
# Runs compose.yaml for real: builds, starts, waits until healthy, answers a job submitted from the
# host, stops, and removes everything it made. Uses the container engine that answers; else, as root on
# Debian, starts one of its own (own_engine.sh). Where neither is possible it says so and exits 0.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/docmill-compose.XXXXXX")
files=(--file compose.yaml)
export COMPOSE_PROGRESS=quiet
started=$SECONDS

say() { printf 'compose-test: %s (%d s)\n' "$*" $((SECONDS - started)); }

skip() {
  say "skipped: $*"
  exit 0
}

# shellcheck source=deploy/own_engine.sh
source deploy/own_engine.sh

compose() { docker compose --project-name "docmill-test-$$" "${files[@]}" "$@"; }

clean_up() {
  local status=$?
  if [[ -n ${is_up:-} ]]; then
    ((status == 0)) || compose logs --no-color --tail 50 || true
    compose down --volumes --timeout 40 || status=1
  fi
  stop_own_engine
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT

free_port() {
  .venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

main() {
  if docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
    say "using the container engine that is running"
  else
    start_own_engine
    files+=(--file deploy/compose.own-engine.yaml)
  fi
  REDIS_PORT=$(free_port)
  export REDIS_PORT
  is_up=1
  compose --progress plain build >"$work/build.log" 2>&1 || {
    tail -n 40 "$work/build.log"
    return 1
  }
  say "image built"
  # by name, because compose takes the end of the others, which run once, for a failure
  compose up --detach --wait --wait-timeout 300 preprocess engine control
  say "all services are healthy"
  compose ps
  password=$(compose exec -T redis cat /run/docmill/redis_password)
  .venv/bin/python -m deploy.compose_client <<<"redis://:$password@127.0.0.1:$REDIS_PORT/0"
  say "job answered"
  compose stop
  codes=$(compose ps --all --quiet | xargs docker inspect --format '{{.State.ExitCode}}' | sort -u)
  [[ $codes == 0 ]] || { say "a container ended with a status other than 0: $codes"; return 1; }
  say "every container stopped with status 0"
}

main
say "passed"
