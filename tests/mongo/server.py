"""A server that speaks MongoDB's protocol: mongo-java-server, see docs/decisions/0018."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from hashlib import sha1
from pathlib import Path

__all__ = ["start_mongo"]

_FOLDER = Path(__file__).parent
_FETCH_SECONDS = 300


def start_mongo() -> tuple[subprocess.Popen[bytes], str]:
    """A process, and its URL. It ends when its input does. Raises `OSError` where it cannot be."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise OSError(f"{program} is not installed")
    process = subprocess.Popen(
        [
            *("java", "-XX:TieredStopAtLevel=1", "-Xmx256m"),
            *("-cp", _class_path(), str(_FOLDER / "Server.java")),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.strip().isdigit():
        raise OSError(f"the server did not start: it printed {line!r}")
    return process, f"mongodb://127.0.0.1:{int(line)}"


def _class_path() -> str:
    """Maven takes seconds to find it, so what it found is kept for the next time."""
    pom = _FOLDER / "pom.xml"
    digest = sha1(pom.read_bytes(), usedforsecurity=False).hexdigest()[:12]
    kept = Path(tempfile.gettempdir(), f"penstock-mongo-{os.getuid()}-{digest}.classpath")
    if kept.exists():
        found = kept.read_text()
        if all(Path(jar).exists() for jar in found.split(os.pathsep)):
            return found
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        made = Path(directory, "classpath")
        subprocess.run(
            [
                *("mvn", "--quiet", "--batch-mode", "--file", str(pom)),
                *("dependency:build-classpath", f"-Dmdep.outputFile={made}"),
            ],
            check=True,
            capture_output=True,
            timeout=_FETCH_SECONDS,
        )
        made.replace(kept)
    return kept.read_text()
