#!/bin/sh
# Starts Redis with the generated password, given on standard input: a command line is not secret.
set -eu

exec docker-entrypoint.sh redis-server "$@" - <<CONFIG
requirepass $(cat /run/docmill/redis_password)
CONFIG
