#!/bin/sh
# Starts a process of the image with the Redis address put together from a password file, so that
# the password stands in no command line and in no compose file.
set -eu

if [ -n "${REDIS_PASSWORD_FILE:-}" ]; then
  DOCMILL_REDIS_URL="redis://:$(cat "$REDIS_PASSWORD_FILE")@${REDIS_ADDRESS:-redis:6379}/0"
  export DOCMILL_REDIS_URL
fi
exec "$@"
