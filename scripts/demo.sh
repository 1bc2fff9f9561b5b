#!/bin/sh
# The main job on the example that ships with the project: workspace, session, the next call's context, explained; then
# the same moment in every form.
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
asked="What did we decide about the index?"
form() {
  printf '\n%s' "$1"; shift
  say nexus assemble "$asked" "$@" --as outline --budget 16000 --at 2026-03-06T14:30:00+08:00 --timezone Asia/Shanghai --tools "$here/examples/tools.json"
}
say nexus init
say nexus import "$here/examples/session.json" --session main
say nexus sessions
say nexus assemble "$asked" --session main --budget 16000 --at 2026-03-06T14:30:00+08:00 --timezone Asia/Shanghai --tools "$here/examples/tools.json"
say nexus context main --budget 16000 --tools "$here/examples/tools.json"
printf '\nThe same moment in every form: tokens, role, and how each block and message begins.\n'
form 'Document 002, the default: a system slot that providers cache, real roles, the moment with the message.' --session main --profile layered
form 'Document 002, a worker that was spawned for a task: its instructions first, a session of its own.' --session worker:index --role worker --task "Find the size of the index."
form 'Document 003: a workspace with its bootstrap files and memory, and runtime metadata before the message.' --session main --profile workspace
form 'Document 004: an agent in a terminal, with instructions in layers and its surroundings.' --session main --profile repl --mode repl
form 'Document 000: a dialogue between friends, five messages with tags, no turns.' --session main --profile tagged
form 'The same in an order that a cache can keep: what changes stands last.' --session main --profile tagged_stable
form 'Document 001: each message as entries of a turn log, calls and results real beside them.' --session main --profile turnlog
form 'The session alone.' --session main --profile bare
printf '\nThe workspace is in %s: cd there and try the commands of nexus --help.\n' "$here/demo"
