"""Where a worker cannot work between requests."""

from __future__ import annotations

import pytest

from durable.doctor import platforms
from tests.doctor.conftest import Cli


def test_where_processes_are_left_alone_nothing_is_said() -> None:
    """Neither on a machine of one's own nor in a job of Cloud Run."""
    assert platforms.judge({"PATH": "/bin", "CLOUD_RUN_JOB": "nightly"}) == []


def test_a_service_of_cloud_run_needs_the_processor_always() -> None:
    """The command is complete, for this service; whether it was given is not to be seen."""
    (found,) = platforms.judge({"K_SERVICE": "shop"})

    assert found.level == "note"
    assert "frozen between requests" in found.found
    assert found.fix == "gcloud run services update shop --no-cpu-throttling --min-instances=1"


def test_no_setting_helps_a_lambda() -> None:
    """So no command is shown."""
    (found,) = platforms.judge({"AWS_LAMBDA_FUNCTION_NAME": "shop"})

    assert (found.level, found.fix) == ("warning", "start runs here, and run workers elsewhere")


def test_doctor_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """B94: run there, it names the setting."""
    monkeypatch.setenv("K_SERVICE", "shop")
    cli("init")
    done = cli("doctor")

    assert done.code == 0
    assert "platform: gcloud run services update shop --no-cpu-throttling" in done.out
