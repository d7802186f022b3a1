"""Ranks under mpirun, as root too, more than there are processors."""
import os
import pathlib
import shutil
import subprocess

from run_cli_tests import Skip

MPIRUN = ["mpirun", "--oversubscribe", "-q"]
ROOT_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def need_mpi(t):
    if not pathlib.Path(t.program).with_name("kpd-mpi").exists():
        raise Skip("kpd-mpi was not built")
    if not shutil.which("mpirun"):
        raise Skip("mpirun is not installed")


def mpirun(t, ranks, *args, timeout=120, options=()):
    """The finished process of `kpd ARGS` in so many ranks. `options` are mpirun's."""
    need_mpi(t)
    return subprocess.run([*MPIRUN, *options, "-n", str(ranks), t.program, *map(str, args)], capture_output=True, text=True,
                          timeout=timeout, cwd=t.folder, env={**os.environ, **ROOT_ENVIRONMENT})
