"""A PostgreSQL of the test's own, with logical replication, from the distribution's package."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from .process import free_port, wait_until


def _programs() -> Path:
    """The folder of `postgres` and `initdb`: Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    pytest.skip("NOT RUN, no PostgreSQL here: Debezium has nothing to read")


class Postgres:
    user, database = "postgres", "postgres"

    def __init__(self, folder: Path):
        self.folder = folder
        self.programs = _programs()
        self.port = free_port()
        # PostgreSQL refuses to run as root; its package makes a user for it.
        self.as_user: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            for parent in folder.parents:
                if parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o001)
            self.as_user = ["runuser", "-u", "postgres", "--"]

    def run(self, program: str, *arguments: str, input: str | None = None) -> str:
        command = [*self.as_user, str(self.programs / program), *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, f"{program}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self) -> Postgres:
        data = str(self.folder / "data")
        self.run("initdb", "-D", data, "-U", self.user, "-A", "trust", "-N")
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "wal_level": "logical",
            "fsync": "off",
        }
        with open(self.folder / "log", "ab") as log:
            command = [*self.as_user, str(self.programs / "postgres"), "-D", data]
            for name, value in options.items():
                command += ["-c", f"{name}={value}"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._serves, 30, "PostgreSQL to answer")
        return self

    def _serves(self) -> bool:
        command = [*self.as_user, str(self.programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, capture_output=True).returncode == 0

    def sql(self, text: str) -> list[list[str]]:
        """Run statements; the rows of the last one, as text."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, "-d", self.database]
        told = self.run("psql", *where, "-v", "ON_ERROR_STOP=1", "-q", "-A", "-t", "-F", "\t", input=text)
        return [line.split("\t") for line in told.splitlines()]

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "stop", "-m", "immediate")
        self.process.wait(20)
