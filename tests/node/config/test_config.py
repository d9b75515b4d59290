from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled import library
from kakeya_fleet.node.config.config import (
    Config,
    answerable,
    build,
    is_loopback,
    join_address,
    split_address,
)
from kakeya_fleet.node.errors import BadConfig, InsecureBind, LoopbackBind


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('name = "from-file"\nperiod_seconds = 2\npeers = ["127.0.0.1:1"]\n')
    return path


def test_flags_win_over_environment_over_file_over_defaults(file: Path) -> None:
    environment = {"KAKEYA_NAME": "from-environment", "KAKEYA_FLEET_NAME": "desk"}
    config = build({"name": "from-flag"}, environment, file)
    assert (config.name, config.fleet_name, config.period_seconds) == ("from-flag", "desk", 2.0)
    assert build({}, environment, file).name == "from-environment"
    assert build({}, {}, file).name == "from-file"
    assert build({}, {}, file).peers == ("127.0.0.1:1",)
    assert build({}, {}).period_seconds == 1.0


def test_environment_is_parsed_by_type() -> None:
    config = build(
        {},
        {
            "KAKEYA_MDNS": "false",
            "KAKEYA_SERVE": "verifier=tiny, proposer=ngram",
            "KAKEYA_KV_BUDGET_BYTES": "1024",
            "KAKEYA_DRAIN_SECONDS": "0.5",
            "PATH": "/bin",
        },
    )
    assert config.mdns is False
    assert config.serve == ("verifier=tiny", "proposer=ngram")
    assert (config.kv_budget_bytes, config.drain_seconds) == (1024, 0.5)


def test_the_file_is_found_by_the_environment_and_by_convention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    assert build({}, {"KAKEYA_CONFIG": str(file)}).name == "from-file"
    conventional = tmp_path / "xdg" / "kakeya" / "config.toml"
    conventional.parent.mkdir(parents=True)
    conventional.write_text('name = "by-convention"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert build({}, {}).name == "by-convention"


def test_a_variable_of_the_engines_is_no_key() -> None:
    assert build({}, {library.SWITCH: "off"}) == Config()


def test_unknown_keys_name_the_nearest_known_one(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("peroid_seconds = 1.0\n")
    with pytest.raises(BadConfig, match=r"peroid_seconds.*period_seconds") as caught:
        build({}, {}, path)
    assert caught.value.metadata == {"key": "peroid_seconds", "nearest": "period_seconds"}
    with pytest.raises(BadConfig, match=r"KAKEYA_BINT .*KAKEYA_BIND"):
        build({}, {"KAKEYA_BINT": "127.0.0.1:0"})


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(BadConfig, match=str(missing)):
        build({}, {}, missing)
    broken = tmp_path / "broken.toml"
    broken.write_text("name = \n")
    with pytest.raises(BadConfig, match="not TOML"):
        build({}, {}, broken)


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": 7}, "name"),
        ({"mdns": 1}, "mdns"),
        ({"backend": True}, "backend"),
        ({"backend": "cuda"}, "backend"),
        ({"device": "gpu"}, "device"),
        ({"links": "tcp"}, "links"),
        ({"links": True}, "links"),
        ({"period_seconds": 0}, "period_seconds"),
        ({"period_seconds": float("nan")}, "period_seconds"),
        ({"session_ttl_seconds": float("inf")}, "session_ttl_seconds"),
        ({"kv_budget_bytes": -1}, "kv_budget_bytes"),
        ({"dtype": "int3"}, "dtype"),
        ({"peers": "127.0.0.1:1"}, "peers"),
        ({"peers": ["nowhere"]}, "peers"),
        ({"bind": "127.0.0.1"}, "bind"),
        ({"bind": "127.0.0.1:70000"}, "bind"),
        ({"http_bind": "on"}, "http_bind"),
        ({"log_level": "loud"}, "log_level"),
    ],
)
def test_values_outside_their_range_name_the_key(flags: dict[str, object], key: str) -> None:
    with pytest.raises(BadConfig) as caught:
        build(flags, {})
    assert caught.value.metadata["key"] == key


@pytest.mark.parametrize("key", ["bind", "http_bind"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "[::]", "mini-1.local"])
def test_another_interface_needs_the_insecure_flag(key: str, host: str) -> None:
    with pytest.raises(InsecureBind, match="--insecure"):
        build({key: f"{host}:0"}, {})
    assert getattr(build({key: f"{host}:0", "insecure": True}, {}), key) == f"{host}:0"


def test_loopback() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example"))


def test_addresses() -> None:
    assert split_address("bind", "[::1]:80") == ("::1", 80)
    assert join_address("::1", 80) == "[::1]:80"
    assert join_address("127.0.0.1", 80) == "127.0.0.1:80"


def test_configuration_is_a_value() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().name = "other"  # type: ignore[misc]
    assert Config(http_bind="off").http_address is None
    assert Config(name="mini-1").state_path.name == "mini-1"
    assert Config(state="/x/y").state_path == Path("/x/y")


@pytest.mark.parametrize(
    ("peer", "mend"),
    [
        ("192.168.1.20:7600", "--bind 0.0.0.0:auto --insecure"),
        ("mini-1.local:7600", "--bind 0.0.0.0:auto --insecure"),
        ("[fd00::1]:7600", r"--bind \[::\]:auto --insecure"),
    ],
)
def test_a_peer_that_could_not_answer_to_a_node_on_loopback_is_refused(
    peer: str, mend: str
) -> None:
    with pytest.raises(LoopbackBind, match=mend) as caught:
        build({"peers": ["127.0.0.1:1", peer]}, {})
    assert caught.value.metadata == {"key": "bind", "peer": peer}
    config = build({"peers": [peer], "bind": "192.168.1.21:0", "insecure": True}, {})
    assert config.peers == (peer,)
    build({"peers": ["127.0.0.1:1", "localhost:2", "[::1]:3"]}, {})


def test_peers_of_an_earlier_bind_that_could_not_answer_now_are_not_called() -> None:
    known = ("192.168.1.20:7600", "127.0.0.1:7600")
    assert answerable(("127.0.0.1",), known) == ("127.0.0.1:7600",)
    assert answerable(("127.0.0.1", "192.168.1.21"), known) == known
