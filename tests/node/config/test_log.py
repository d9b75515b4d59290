import json
import logging

import pytest
import structlog

from kakeya_fleet.node.config.log import configure_log

pytestmark = pytest.mark.usefixtures("log_restored")


def test_one_json_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log("info", "json", node_name="mini-1")
    log = structlog.get_logger("test")
    log.info("peer_joined", node_id="ab")
    log.debug("hidden")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["event"], said["node_id"], said["level"]) == ("peer_joined", "ab", "info")
    assert said["node"] == "mini-1"
    assert said["timestamp"].endswith("Z")


def test_a_traceback_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log("info", "json", node_name="mini-1")
    try:
        raise KeyError("gone")
    except KeyError:
        structlog.get_logger("test").exception("rpc_failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "KeyError" in json.loads(line)["exception"]


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_no_traceback_tells_what_a_variable_holds(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_log("info", log_format, node_name="mini-1")

    def fail(prompt: str) -> None:
        raise KeyError(len(prompt))

    try:
        fail("my" + "secret")
    except KeyError:
        structlog.get_logger("test").exception("rpc_failed")
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "mysecret" not in said


def test_console_is_readable_and_json_is_the_default_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_log("warning", "console", node_name="mini-1")
    structlog.get_logger("test").warning("insecure", bind="0.0.0.0:1")
    assert "insecure" in capsys.readouterr().err
    configure_log("info", "auto", node_name="mini-1")
    structlog.get_logger("test").info("ready")
    assert json.loads(capsys.readouterr().err)["event"] == "ready"


def test_libraries_do_not_print_tracebacks_of_their_own() -> None:
    configure_log("info", "json", node_name="mini-1")
    assert not logging.getLogger("grpc").isEnabledFor(logging.ERROR)
