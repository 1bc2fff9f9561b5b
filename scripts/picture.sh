#!/bin/sh
# Images for the README and the docs, from the example workspace and session.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$here/examples/agent" "$work/agent"
cd "$work/agent"
nexus import "$here/examples/session.json" --session main
nexus context main --budget 32000 --tools "$here/examples/tools.json" --message "What did we decide about the index?" --svg "$here/docs/context.svg"
printf '\nThe image is in %s\n' "$here/docs/context.svg"

python "$here/scripts/build_pictures.py"
python "$here/scripts/build_chat_picture.py"
python "$here/scripts/build_story.py"
PYTHONPATH="$here/tests:$here/scripts" python "$here/scripts/build_wrap_picture.py"
