"""What runs on a JVM: jars from Maven Central, this folder's own Java compiled against them, and the processes.

A set of jars is a POM in `java/jars/`. It is resolved once into the cache, and again when the POM changes; the Java
under `java/` is compiled once for a set, and again when it changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .process import ServerProcess, wait_until

JAVA = Path(__file__).parent.parent / "java"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "weir" / "jvm"


def missing(*programs: str) -> str | None:
    """What of the toolchain is not installed here, or None."""
    absent = [program for program in programs if shutil.which(program) is None]
    return f"no {' and no '.join(absent)} here: JDK 17 and Maven run the JVM's clients" if absent else None


def need(*programs: str) -> None:
    """Skip, loudly, where a part of the toolchain is missing (CI=true makes a failure of it)."""
    if reason := missing(*programs):
        pytest.skip(f"NOT RUN, {reason}")


def _kept(name: str, inputs: list[Path], make) -> Path:
    """The folder `name` of the cache; `make(folder)` fills it when there is none for these inputs."""
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in inputs)).hexdigest()[:12]
    folder = cache() / f"{name}-{digest}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / "complete").touch()
    return folder


def jars(name: str) -> Path:
    """The folder with the jars of `java/jars/<name>.xml` and of all they depend on."""
    need("java", "mvn")
    pom = JAVA / "jars" / f"{name}.xml"

    def download(folder: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), COPY_DEPENDENCIES, "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)

    return _kept(name, [pom], download)


def classes(set_name: str, *folders: str) -> Path:
    """The Java of `java/<folder>`, each, compiled against a set of jars."""
    need("javac")
    libs = jars(set_name)
    sources = sorted(path for folder in folders for path in (JAVA / folder).rglob("*.java"))
    assert sources, f"no Java in {folders}"

    def compile_all(folder: Path) -> None:
        command = ["javac", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-d", str(folder), "-cp", f"{libs}/*"]
        subprocess.run([*command, *map(str, sources)], check=True)

    pom = JAVA / "jars" / f"{set_name}.xml"
    return _kept(f"{set_name}-{'-'.join(folders).replace('/', '-')}", [pom, *sources], compile_all)


def python_with(requirements: str) -> Path:
    """A Python with the packages of `<requirements>` of this folder, and nothing else."""
    need("java")
    wanted = JAVA.parent / requirements

    def install(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(wanted)], check=True)

    return _kept(wanted.stem, [wanted], install) / "bin" / "python"


def command(classpath: list[Path | str], main: str, *arguments: str, heap: str = "256m", options=()) -> list[str]:
    """The command line of a JVM that starts fast and stays small: several of them share two cores."""
    tuning = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    return ["java", *tuning, *quiet, *options, "-cp", os.pathsep.join(map(str, classpath)), main, *arguments]


class JvmProcess(ServerProcess):
    """A JVM with a life of its own; what it prints goes to `log_file`. Ours end when their standard input does."""

    def __init__(self, log_file: Path, command_line: list[str]):
        super().__init__(log_file)
        self.command_line = command_line

    def start(self) -> JvmProcess:
        assert not self.running, "it is already running"
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.command_line, stdin=subprocess.PIPE, stdout=log, stderr=log)
        return self

    def end(self, timeout: float = 40) -> None:
        """End its standard input; it must then exit 0."""
        self.process.stdin.close()
        assert self.wait(timeout) == 0, self.log_tail()

    def wait_said(self, text: str, timeout: float = 60, times: int = 1) -> None:
        """Wait until its output has `text` at least `times` times."""

        def said():
            if not self.running:
                raise AssertionError(f"it exited with {self.process.returncode}:\n{self.log_tail()}")
            return self.said().count(text) >= times

        wait_until(said, timeout, f"{self.log_file.name}: {text}", 0.1)

    def wait(self, timeout: float) -> int:
        assert self.process is not None, "never started"
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s; it said:\n{self.log_tail()}") from None

    def said(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


class Asked:
    """A JVM that answers one line of JSON with one line of JSON, started at the first question."""

    def __init__(self, command_line):
        """`command_line()` is called when the JVM is first needed, so that collecting tests costs no download."""
        self._command_line = command_line
        self.process: subprocess.Popen | None = None

    def ask(self, request: dict) -> dict:
        if self.process is None or self.process.poll() is not None:
            command_line = self._command_line()
            self.log = tempfile.TemporaryFile("w+b")
            self.process = subprocess.Popen(
                command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
            )
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.log.seek(0)
            raise AssertionError(f"the JVM ended with {code}:\n{self.log.read().decode(errors='replace')[-4000:]}")
        return json.loads(line)


def main() -> None:
    """Fetch and compile everything, so that no test's time limit counts a download."""
    for pom in sorted((JAVA / "jars").glob("*.xml")):
        jars(pom.stem)
    for set_name, *folders in (
        ("clients-2", "client/common", "client/before-4"),
        ("clients-3", "client/common", "client/before-4"),
        ("kafka-4", "client/common", "client/since-4"),
        ("kafka-4", "tools"),
        ("kafka-4", "streams"),
        ("flink", "flink"),
    ):
        classes(set_name, *folders)
    python_with("requirements-spark.txt")


if __name__ == "__main__":
    main()
