# Sourced by quickstart, check and the scripts here: packages, steps with their times, the root of the checkout.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
jobs=$(nproc)
export DEBIAN_FRONTEND=noninteractive

# What the program kpd is built of, and python3 for the models and clients that come from PyPI.
packages_kpd="cmake ninja-build g++ ccache libhwy-dev libcli11-dev nlohmann-json3-dev libfmt-dev zlib1g-dev libpcre2-dev libcpp-httplib-dev libedit-dev pkg-config
  python3 python3-venv"
packages_build="$packages_kpd libgtest-dev"
packages_engines="libopenmpi-dev openmpi-bin libgloo-dev iproute2"
packages_data="dataset-fashion-mnist gnuplot-nox"
packages_check="git binutils dpkg-dev file man-db zsh python3-numpy clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev libbenchmark-dev chromium curl"
packages_python="python3-dev python3-venv"
packages_arm="g++-aarch64-linux-gnu qemu-user googletest"

die() {
  echo "error: $*" >&2
  exit 1
}

# step NAME COMMAND...: says what runs and how long it took; a failure ends the script.
step() {
  local name=$1 start=$SECONDS
  shift
  printf '\n==> %s\n' "$name"
  "$@" || die "$name failed after $((SECONDS - start)) s"
  printf '==> %s: %d s (%d s in all)\n' "$name" $((SECONDS - start)) "$SECONDS"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo --preserve-env=DEBIAN_FRONTEND "$@"
  else
    die "root is needed to run: $*"
  fi
}

# Installs the Debian packages among "$@" that are missing; touches nothing when all are there.
install_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || die "this is not a Debian system; install the counterparts of: $*"
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    echo "all $# packages are installed"
    return
  fi
  echo "to install: ${missing[*]}"
  as_root apt-get update -q || return
  as_root apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# need_space MIB WHAT: ends the script where the checkout's disk has less.
need_space() {
  local free
  free=$(df -Pm "$root" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$1" ] || die "$2 needs about $1 MiB in $root, where $free are free"
}

# configure_and_build PRESET FOLDER [cmake options]: progress is ninja's own.
configure_and_build() {
  local preset=$1 folder=$2
  shift 2
  (cd "$root" && cmake --preset "$preset" "$@") && cmake --build "$root/build/$folder" --parallel "$jobs"
}
