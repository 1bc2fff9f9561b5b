#!/bin/sh
# The main job on the example that ships with the project: workspace, session, the next call's context, explained.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$here/demo" && mkdir -p "$here/demo" && cp -R "$here/examples/agent/." "$here/demo/"
cd "$here/demo"
say() { printf '\n$ %s\n' "$*"; "$@"; }
say nexus init
say nexus import "$here/examples/session.json" --session main
say nexus sessions
say nexus assemble "What did we decide about the index?" --session main --budget 16000 --at 2026-03-06T14:30:00+08:00 --timezone Asia/Shanghai --tools "$here/examples/tools.json"
say nexus context main --budget 16000 --tools "$here/examples/tools.json"
printf '\nThe workspace is in %s: cd there and try the commands of nexus --help.\n' "$here/demo"
