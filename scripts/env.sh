# shellcheck shell=bash
# Sourced by the other scripts: one target folder outside the checkout, one C compiler wrapper, one way to say things.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

WEIR_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/weir"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$WEIR_CACHE/target}"
export CARGO_TERM_PROGRESS_WHEN=never

say() { if [[ -t 1 ]]; then printf '\n\033[1m== %s\033[0m\n' "$*"; else printf '\n== %s\n' "$*"; fi; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# RocksDB is most of a cold build; ccache keeps it over `cargo clean` and over machines that share the cache.
use_ccache() {
    if [[ -z "${CC:-}" && -z "${CXX:-}" ]] && command -v ccache >/dev/null; then
        export CC="ccache gcc" CXX="ccache g++"
    fi
}
use_ccache

# packages_present NAME...: true when dpkg knows all of them as installed.
packages_present() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || return 1
    done
}

# install_packages NAME...: apt packages, when root or sudo; otherwise says which are missing and goes on.
install_packages() {
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here: make sure that the equivalents of these are installed: $*"
        return
    fi
    packages_present "$@" && return
    local root=()
    if [[ $EUID -ne 0 ]]; then
        command -v sudo >/dev/null || { say "neither root nor sudo: please install: $*"; return; }
        root=(sudo)
    fi
    say "installing system packages: $*"
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    use_ccache
}

need_cargo() {
    if ! command -v cargo >/dev/null; then
        [[ -f "$HOME/.cargo/env" ]] && source "$HOME/.cargo/env"
    fi
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 or newer (https://rustup.rs), then run this again"
}

# The Python environment of the compatibility tests, made again whenever requirements.txt changes. Sets PYTHON.
python_env() {
    install_packages python3 python3-venv
    local wanted venv
    wanted="$(sha256sum compat-tests/requirements.txt | cut -c1-12)"
    venv="$WEIR_CACHE/venv-$wanted"
    PYTHON="$venv/bin/python"
    if [[ ! -e "$venv/complete" ]]; then
        say "installing the Python clients and engines of compat-tests/requirements.txt into $venv"
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$PYTHON" -m pip install -q --disable-pip-version-check -r compat-tests/requirements.txt
        touch "$venv/complete"
    fi
}

# The Go clients of the compatibility tests. Go 1.21 is enough: it fetches the newer one that go.mod asks for.
go_clients() {
    if ! go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
        say "Go 1.21 or newer is missing: franz-go, sarama and kafka-go are SKIPPED (with CI=true: fail)"
        return
    fi
    say "building the Go clients for the compatibility tests"
    CGO_ENABLED=0 go -C compat-tests/go build -trimpath -mod=readonly -o "$WEIR_CACHE/compat-go/weir-compat-go" .
}

# The Node clients of the compatibility tests, installed again whenever their lock file or Node changes. librdkafka's
# binding ships its source: it is compiled here, against the system's OpenSSL and zstd (about two minutes, once).
node_clients() {
    command -v node >/dev/null || install_packages nodejs npm libnode-dev
    if ! command -v npm >/dev/null || [[ "$(node -p 'process.versions.node.split(".")[0]')" -lt 18 ]]; then
        say "Node 18 or newer, with npm, is missing: kafkajs and confluent-kafka-javascript are SKIPPED (with CI=true: fail)"
        return
    fi
    install_packages g++ make python3 libssl-dev libzstd-dev zlib1g-dev
    local wanted folder="$WEIR_CACHE/compat-node" headers
    wanted="$({ cat compat-tests/node/package-lock.json; node -p process.versions.modules; } | sha256sum | cut -c1-12)"
    [[ -e "$folder/complete-$wanted" ]] && return
    say "installing the Node clients of compat-tests/node/package-lock.json into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp compat-tests/node/package.json compat-tests/node/package-lock.json "$folder"
    # Node's own headers, when they are installed beside it: otherwise node-gyp downloads them.
    headers="$(dirname "$(dirname "$(realpath "$(command -v node)")")")"
    [[ -e "$headers/include/node/node.h" ]] && export npm_config_nodedir="$headers"
    # Its makefile says `make -j` without a number: the load limit keeps that to what the machine has.
    (cd "$folder" && CKJS_LINKING=dynamic npm_config_build_from_source=true MAKEFLAGS="-l $(($(nproc) + 1))" \
        npm ci --no-audit --no-fund)
    touch "$folder/complete-$wanted"
}

# What compiling Weir needs: a C++ compiler and libclang for RocksDB.
build_packages() { install_packages gcc g++ make pkg-config clang libclang-dev ccache; }

# What the JVM's clients need (compat-tests/harness/jvm.py), and the PostgreSQL that Debezium reads; their jars come with the
# first run. Where they cannot be installed, their tests say that they were not run (CI=true: they fail).
jvm_packages() { install_packages openjdk-17-jdk-headless maven postgresql; }
