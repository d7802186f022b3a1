#!/usr/bin/env bash
# Unpacks Debian's arm64 packages of Highway into build/arm-root for the preset aarch64. Package lists and downloads live in the
# build folder: the system's own package state is neither used nor changed, and no root is needed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arm_root=$root/build/arm-root
state=$root/build/arm-apt

if [ -e "$arm_root/complete" ]; then
  echo "Highway for arm64 is there: $arm_root"
  exit 0
fi
rm -rf "$arm_root" "$state"
mkdir -p "$arm_root" "$state"/{lists/partial,cache/archives/partial,deb}
: >"$state/status"
apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$state/lists"
  -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o APT::Sandbox::User="$(id -un)")
"${apt[@]}" update
(cd "$state/deb" && "${apt[@]}" download libhwy-dev libhwy1)
for package in "$state"/deb/*_arm64.deb; do
  echo "unpacking $(basename "$package")"
  dpkg -x "$package" "$arm_root"
done
rm -rf "$state"
touch "$arm_root/complete"
