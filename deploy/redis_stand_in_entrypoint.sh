#!/bin/sh
# In the stand-in for Redis' image, the one thing that docmill needs of the real one's entry point:
# redis-server runs in /data as its own user.
set -eu

cd /data
exec setpriv --reuid=redis --regid=redis --clear-groups "$@"
