#!/usr/bin/env bash
# run.sh BUILD CMAKE [INSTALLED]: installs BUILD into a new folder, moves the installation (so that no path of it is baked in), and builds and
# runs the foreign project in this folder against it; or against INSTALLED, e.g. an unpacked package. Then looks through all that CMake wrote there for a mention of the build folder or of
# the sources: there is none, so the package outlives both.
set -euo pipefail
build=$(cd "${1:?usage: run.sh BUILD CMAKE [INSTALLED]}" && pwd -P)
cmake=${2:?usage: run.sh BUILD CMAKE [INSTALLED]}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source_root=$(cd "$here/../.." && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ $# -gt 2 ]; then
  cp -r "$3" "$work/installed"
else
  "$cmake" --install "$build" --prefix "$work/staged" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
  mv "$work/staged" "$work/installed"
fi
cp -r "$here" "$work/project"

components="core;io"
[ ! -e "$(find "$work/installed" -name kpd-comm.cmake)" ] || components+=";comm"
[ ! -e "$(find "$work/installed" -name kpd-train.cmake)" ] || components+=";train"
"$cmake" -G Ninja -S "$work/project" -B "$work/out" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/installed" \
  -DPACKAGE_TEST_COMPONENTS="$components" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
"$cmake" --build "$work/out" --parallel 2
for component in ${components//;/ }; do
  "$work/out/use_$component"
done
# From C, by CMake and without.
"$cmake" -G Ninja -S "$work/project/from_c" -B "$work/out_c" -DCMAKE_PREFIX_PATH="$work/installed" -DEXAMPLE="$source_root/examples/average.c" \
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
"$cmake" --build "$work/out_c"
"$work/out_c/average"
PKG_CONFIG_PATH=$(dirname "$(find "$work/installed" -name kpd-core.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # options are words
cc "$source_root/examples/average.c" -o "$work/average" $(pkg-config --static --cflags --libs kpd-core)
"$work/average"
for program in kpd kpd-mpi kpd-train; do
  [ ! -x "$work/installed/bin/$program" ] || "$work/installed/bin/$program" --version
done

# The torch folder may lie beside the build folder; it is named on purpose.
package=$(dirname "$(find "$work/installed" -name kpdConfig.cmake)")
if grep -rIn -e "$build/" -e "$source_root/src" -e "$source_root/include" "$package" "$work/out"; then
  echo "the package or its user names the build folder or the sources (lines above)" >&2
  exit 1
fi
echo "components $components: built and run from an installation that names neither the build folder nor the sources"
