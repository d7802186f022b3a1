#!/usr/bin/env python3
"""packages.py BUILD SOURCE CPACK CMAKE: packs BUILD as its users do and looks into the packages: files, what they depend on, man pages,
completions, and that a foreign project finds and links what is in them. Exits 77 where the tools of Debian's packages are missing."""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

BUILD, SOURCE, CPACK, CMAKE = sys.argv[1:]
PACKAGES = {}  # "kpd" -> what was unpacked of its .deb


def run(*command, exit=0, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == exit, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def field(name, key):
    return run("dpkg-deb", "-f", PACKAGES[name]["deb"], key).strip()


def files(name):
    root = PACKAGES[name]["root"]
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}


def pack(work):
    # A umask that would lock everybody out of the folders.
    run(CPACK, "--config", f"{BUILD}/CPackConfig.cmake", "-B", work / "made", "-D", f"CPACK_PACKAGE_DIRECTORY={work / 'made'}",
        cwd=work, umask=0o077)
    for deb in sorted((work / "made").glob("*.deb")):
        name = run("dpkg-deb", "-f", deb, "Package").strip()
        root = work / name
        run("dpkg-deb", "-x", deb, root)
        PACKAGES[name] = {"deb": deb, "root": root}


def verbs():
    text = run(program(), "--help")
    table = text[text.index("Commands:"):text.index("Options:")]
    return re.findall(r"^  ([a-z]+) +\S", table, re.M)


def program():
    return PACKAGES["kpd"]["root"] / "usr/bin/kpd"


def case_packages_have_what_they_should():
    assert set(PACKAGES) <= {"kpd", "kpd-mpi"} and "kpd" in PACKAGES, PACKAGES
    have = files("kpd")
    wanted = {"usr/bin/kpd", "usr/lib/libkpd_core.a", "usr/lib/libkpd_io.a", "usr/lib/libkpd_llm.a", "usr/lib/cmake/kpd/kpdConfig.cmake",
              "usr/lib/pkgconfig/kpd-core.pc", "usr/share/man/man1/kpd.1", "usr/share/bash-completion/completions/kpd",
              "usr/share/zsh/site-functions/_kpd", "usr/share/doc/kpd/copyright", "usr/share/doc/kpd/LICENSE"}
    assert wanted <= have, wanted - have
    public = {f"usr/include/{p.relative_to(f'{SOURCE}/include')}" for p in pathlib.Path(SOURCE, "include").rglob("*.h")}
    train = {p for p in public if p.startswith("usr/include/kpd/train/")}
    assert public - train == {p for p in have if p.startswith("usr/include/")}, public ^ have
    for name in PACKAGES:
        assert not [p for p in files(name) if "train" in p.replace("known", "") or "Torch" in p], files(name)
    if "kpd-mpi" in PACKAGES:
        assert files("kpd-mpi") == {"usr/bin/kpd-mpi", "usr/lib/libkpd_comm.a", "usr/lib/cmake/kpd/kpd-comm.cmake",
                                    "usr/lib/cmake/kpd/kpd-comm-release.cmake", "usr/share/doc/kpd-mpi/copyright"}, files("kpd-mpi")


def case_everybody_may_read_them():
    for name in PACKAGES:
        for line in run("dpkg-deb", "-c", PACKAGES[name]["deb"]).splitlines():
            mode, owner = line.split()[:2]
            assert owner == "root/root", line
            assert mode in ("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"), line


def case_no_path_of_this_machine():
    for name in PACKAGES:
        for path in files(name):
            text = (PACKAGES[name]["root"] / path).read_bytes()
            if path.endswith(".a"):
                continue  # archives of objects: no debug information, but the compiler's own paths
            for folder in (BUILD, SOURCE):
                assert folder.encode() not in text, f"{name}: {path} names {folder}"


def case_dependencies_are_those_of_the_programs():
    version = re.search(r"kpd (\S+)", run(program(), "--version")).group(1)
    for name in PACKAGES:
        assert field(name, "Version") == version and field(name, "Maintainer"), name
        first = field(name, "Description").splitlines()[0]
        assert 0 < len(first) <= 80, first
        depends = field(name, "Depends")
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", PACKAGES[name]["root"] / "usr/bin" / name))
        assert "libhwy.so.1" in needed, needed
        for library in needed:
            owners = {line.split(":")[0] for line in run("dpkg", "-S", library).splitlines()}
            assert any(re.search(rf"(^|, ){re.escape(owner)} \(", depends) for owner in owners), f"{name}: {library} of {owners} is not in {depends}"
        assert "RPATH" not in run("readelf", "-d", PACKAGES[name]["root"] / "usr/bin" / name).upper(), name
    if "kpd-mpi" in PACKAGES:
        assert f"kpd (= {version})" in field("kpd-mpi", "Depends")


def case_archives_hold_the_same_and_run_where_they_lie():
    made = PACKAGES["kpd"]["deb"].parent
    archives = sorted(made.glob("*.tar.gz"))
    assert len(archives) == len(PACKAGES), archives
    for archive in archives:
        name = "kpd-mpi" if archive.name.startswith("kpd-mpi-") else "kpd"
        with tarfile.open(archive) as tar:
            inside = {m.name for m in tar.getmembers() if not m.isdir()}
            top = "kpd" + archive.name[len(name):-len(".tar.gz")]  # both unpack into one folder, so that kpd finds kpd-mpi beside it
            assert {f"{top}/{p[len('usr/'):]}" for p in files(name)} == inside, archive
            if name == "kpd":
                place = made / "a b"
                tar.extractall(place)
                assert run(place / top / "bin/kpd", "codecs", "eden").startswith("eden, of")


def case_a_page_for_every_command():
    folder = PACKAGES["kpd"]["root"] / "usr/share/man/man1"
    assert {p.name for p in folder.iterdir()} == {"kpd.1"} | {f"kpd-{verb}.1" for verb in verbs()}
    general = (folder / "kpd.1").read_text()
    for verb in verbs():
        assert f"\\fBkpd\\-{verb}\\fR" in general, verb
        page = (folder / f"kpd-{verb}.1").read_text()
        text = run(program(), verb, "--help")
        said = text.splitlines()[0].replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
        assert said in page, f"{verb}: not in its page: {said}"
        options = re.findall(r"^ +(?:-[a-z],)?(--[a-z-]+)", text, re.M)
        assert "--help" in options and len(options) == page.count("\n.TP\n\\fB\\-"), f"{verb}: {options}\n{page}"
        for option in options:
            assert option.replace("-", "\\-") in page, f"{verb}: {option}"
        assert text.rstrip().splitlines()[-1].strip().replace("-", "\\-")[:20] in page, f"{verb}: its example"


def case_pages_are_well_formed():
    pages = sorted((PACKAGES["kpd"]["root"] / "usr/share/man/man1").iterdir())
    if shutil.which("mandoc"):
        for page in pages:
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True)
            rest = [line for line in done.stdout.splitlines() if "missing date" not in line]  # packages of one source are one file
            assert not rest, rest
    elif shutil.which("man"):
        for page in pages:
            done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True,
                                  env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
            assert done.returncode == 0 and done.stderr == "" and "SEE ALSO" in done.stdout, f"{page}: {done.stderr}"
    else:
        print("SKIP: neither mandoc nor man is there")


def completed(line):
    """What bash proposes at the end of `line`, whose words bash parts at blanks, = and colons; the last word may be empty."""
    script = PACKAGES["kpd"]["root"] / "usr/share/bash-completion/completions/kpd"
    words = []
    for word in line.split(" "):
        words += [w for w in re.split(r"([=:])", word) if w] or [""]
    code = (f"set -u; source '{script}'; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; "
            "_kpd; printf '%s\\n' \"${COMPREPLY[@]}\"")
    return run("bash", "--norc", "-c", code).split()


def case_bash_completes():
    script = PACKAGES["kpd"]["root"] / "usr/share/bash-completion/completions/kpd"
    assert run("bash", "--norc", "-c", f"set -u; source '{script}'; complete -p kpd").strip().endswith("-F _kpd kpd")
    kpd = str(program())
    assert completed(f"{kpd} ") == verbs() == completed("kpd help ")
    assert completed("kpd enc") == ["encode"]
    assert completed("kpd --v") == ["--version"]
    for verb in verbs():
        text = run(program(), verb, "--help")
        options = re.findall(r"^ +(?:-[a-z],)?(--[a-z-]+)", text, re.M)
        proposed = completed(f"{kpd} {verb} --")
        assert set(proposed) == set(options), f"{verb}: {set(proposed) ^ set(options)}"
    assert completed("kpd mean --format ") == ["text", "csv", "markdown"]
    assert completed("kpd mean --format=m") == ["markdown"]
    assert completed("kpd codecs ede") == ["eden"]
    assert completed("kpd encode a.npy b.kpdg --codec qs") == ["qsgd"]
    assert completed("kpd encode --codec eden:b") == []
    assert completed("kpd mean --seed ") == []
    assert completed("kpd mean ") == []  # files, which readline proposes


def case_zsh_completes():
    if not shutil.which("zsh"):
        print("SKIP: zsh is not there")
        return
    folder = PACKAGES["kpd"]["root"] / "usr/share/zsh/site-functions"
    for line, whole in (("kpd enc", "kpd encode"), ("kpd help pla", "kpd help plan"), ("kpd --ver", "kpd --version"),
                        ("kpd mean --form", "kpd mean --format="), ("kpd mean --format=mark", "kpd mean --format=markdown"),
                        ("kpd codecs qs", "kpd codecs qsgd"), ("kpd encode x y --thr", "kpd encode x y --threads="),
                        (f"kpd mean {BUILD}/CPackConf", f"kpd mean {BUILD}/CPackConfig.cmake"),
                        (f"{program()} federate --hel", f"{program()} federate --help")):
        done = run("zsh", "-f", f"{SOURCE}/tests/package/complete.zsh", folder, line, timeout=120)
        assert done.rstrip() == whole, f"{line!r} became {done!r}"


def case_a_foreign_project_uses_them():
    root = PACKAGES["kpd"]["root"].parent / "installed"
    for name in PACKAGES:
        run("dpkg-deb", "-x", PACKAGES[name]["deb"], root)
    run("bash", f"{SOURCE}/tests/package/run.sh", BUILD, CMAKE, root / "usr")


def main():
    missing = [tool for tool in ("dpkg-deb", "dpkg-shlibdeps", "file", "readelf") if not shutil.which(tool)]
    if missing:
        print(f"SKIP: no {', '.join(missing)}")
        return 77
    with tempfile.TemporaryDirectory(prefix="kpd-packages-") as folder:
        pack(pathlib.Path(folder))
        for name, case in list(globals().items()):
            if name.startswith("case_"):
                case()
                print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
