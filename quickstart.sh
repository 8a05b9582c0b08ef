#!/usr/bin/env bash
# quickstart.sh        install what is missing, build, run the demo
# quickstart.sh test   install what is missing, build, run all tests
# Safe to repeat; what is already done is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

goal=${1:-demo}
case $goal in
  demo | test) ;;
  *) echo "usage: ./quickstart.sh [demo|test]" >&2; exit 2 ;;
esac

# onnxruntime-node, a development dependency, would download CUDA libraries in its postinstall.
export ONNXRUNTIME_NODE_INSTALL=skip

stage_start=$SECONDS
stage() {
  printf '\n== %s\n' "$1"
}
stage_done() {
  printf '== done in %d s\n' $((SECONDS - stage_start))
  stage_start=$SECONDS
}

check_node() {
  if ! command -v node >/dev/null; then
    echo "Node.js was not found. Install Node >= 20.19 (https://nodejs.org) and run this again." >&2
    exit 1
  fi
  if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'; then
    echo "Node $(node --version) is too old: dgx-spark needs Node >= 20.19." >&2
    exit 1
  fi
}

# Debian's package for each command that the build needs.
install_system_packages() {
  local missing=()
  command -v cmake >/dev/null || missing+=(cmake)
  command -v c++ >/dev/null || missing+=(g++)
  command -v ninja >/dev/null || command -v make >/dev/null || missing+=(ninja-build)
  if [ ${#missing[@]} -eq 0 ]; then
    echo "System packages: nothing is missing."
    return
  fi
  if ! command -v apt-get >/dev/null; then
    echo "Please install these with your package manager and run this again: ${missing[*]}" >&2
    exit 1
  fi
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo)
  fi
  echo "Installing with apt-get: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq "${missing[@]}" >/dev/null
}

install_node_modules() {
  local stamp=node_modules/.quickstart
  local lock
  lock=$(sha256sum package-lock.json | cut -d' ' -f1)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$lock" ]; then
    echo "npm packages: up to date."
    return
  fi
  npm ci --ignore-scripts --no-audit --no-fund
  echo "$lock" >"$stamp"
}

stage "System packages"
check_node
install_system_packages
stage_done

stage "npm packages"
install_node_modules
stage_done

stage "Build (the first one takes some minutes)"
npm run --silent build
stage_done

if [ "$goal" = test ]; then
  stage "Tests"
  exec node test/fixtures/run-tests.js
fi
stage "Demo"
exec npm run --silent demo
