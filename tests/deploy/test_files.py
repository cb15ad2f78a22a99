"""What people deploy with is checked by the linters there are, and names settings that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.settings import Settings

ROOT = Path(__file__).parents[2]
FILES = [
    "Dockerfile",
    "docker-compose.yml",
    "deploy/kubernetes.yaml",
    "deploy/penstock.service",
]


def run(*command: str) -> None:
    found = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [found, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_keeps_the_rules_of_its_linter() -> None:
    run("hadolint", "--failure-threshold", "info", "Dockerfile")


def test_the_compose_file_follows_its_specification() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


def test_the_example_of_an_environment_has_all_that_the_compose_file_asks_for() -> None:
    asked = re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    named = [line.partition("=")[0] for line in lines if not line.startswith("#")]
    assert named == asked == ["USER_PASSWORD", "ADMIN_PASSWORD"]


def test_what_the_servers_wait_for_has_a_health_check() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    needed = re.findall(r"^    (\w+):\n      condition: service_healthy", text, re.MULTILINE)
    services = re.split(r"^  (\w[\w-]*):\n", text.partition("\nservices:\n")[2], flags=re.MULTILINE)
    checked = {
        name
        for name, block in zip(services[1::2], services[2::2], strict=True)
        if "    healthcheck:\n" in block
    }
    assert set(needed) == checked == {"redis", "mongo"}
    assert "\nHEALTHCHECK " in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_kubernetes_resources_are_valid() -> None:
    run("kubernetes-validate", "--strict", "deploy/kubernetes.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    # Given the unit, with a program that is there on every machine
    text = (ROOT / "deploy/penstock.service").read_text(encoding="utf-8")
    assert text.count("ExecStart=/opt/penstock/bin/penstock serve") == 1
    unit = tmp_path / "penstock.service"
    unit.write_text(text.replace("/opt/penstock/bin/penstock", "/bin/true"), encoding="utf-8")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    about_it = [line for line in done.stderr.splitlines() if "penstock.service" in line]
    assert about_it == []


@pytest.mark.parametrize("name", FILES)
def test_every_setting_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"PENSTOCK_([A-Z_]+)", (ROOT / name).read_text(encoding="utf-8")))
    assert named
    assert {setting.lower() for setting in named} <= Settings.model_fields.keys()
