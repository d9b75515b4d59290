from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.hostfiles.hostfile import (
    MAX_RANKS,
    GroupBackend,
    Host,
    Hostfile,
    HostfileError,
    hostfile_text,
    parse_hostfile,
)
from tests.support.breadth import again

A = {"ssh": "a", "ips": ["10.0.0.1"]}
B = {"ssh": "me@b", "ips": ["10.0.0.2"]}


def parsed(data: object) -> Hostfile:
    return parse_hostfile(json.dumps(data))


def where(data: object) -> str:
    with pytest.raises(HostfileError) as raised:
        parsed(data)
    assert raised.value.metadata == {"where": raised.value.where}
    assert str(raised.value).startswith(raised.value.where)
    return raised.value.where


def test_an_object_and_a_plain_list_of_hosts() -> None:
    hosts = (Host("a", ("10.0.0.1",)), Host("me@b", ("10.0.0.2",)))
    whole = parsed({"backend": "ring", "envs": ["A=1", "B=x=y", "A=2"], "hosts": [A, B]})
    assert whole == Hostfile(hosts, GroupBackend.RING, ("A=1", "B=x=y", "A=2"))
    assert whole.rank_count == 2
    assert whole.environment == {"A": "2", "B": "x=y"}
    assert parsed([A, B]) == Hostfile(hosts)
    # As mlx does: what is not given is empty, and so is the backend "".
    assert parsed({"backend": "", "hosts": [{"ssh": "a"}]}) == Hostfile((Host("a"),))


def test_devices_of_jaccl() -> None:
    hosts = [
        {"ssh": "a", "ips": ["10.0.0.1"], "rdma": [None, "rdma_en2"]},
        {"ssh": "b", "rdma": [["rdma_en2", "rdma_en3"], None]},
    ]
    found = parsed({"backend": "jaccl", "hosts": hosts})
    assert [host.rdma for host in found.hosts] == [
        ((), ("rdma_en2",)),
        (("rdma_en2", "rdma_en3"), ()),
    ]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"hosts": []}, "hosts"),
        ([], ""),
        ({"envs": []}, "hosts"),
        ({"hosts": {}}, "hosts"),
        ({"hosts": [A], "host": []}, "host"),
        ({"hosts": [A, 1]}, "hosts[1]"),
        ([A, {"ips": []}], "[1].ssh"),
        ({"hosts": [A, {"ssh": ""}]}, "hosts[1].ssh"),
        ({"hosts": [A, {"ssh": "-oProxyCommand=x"}]}, "hosts[1].ssh"),
        ({"hosts": [{"ssh": "a b"}]}, "hosts[0].ssh"),
        ({"hosts": [{"ssh": "-v@b"}]}, "hosts[0].ssh"),
        ({"hosts": [{"ssh": "@b"}]}, "hosts[0].ssh"),
        ({"hosts": [{"ssh": ["a"]}]}, "hosts[0].ssh"),
        ({"hosts": [A | {"ip": "10.0.0.1"}]}, "hosts[0].ip"),
        ({"hosts": [A | {"ips": "10.0.0.1"}]}, "hosts[0].ips"),
        ({"hosts": [A | {"ips": ["10.0.0.1", "10.0.0.1:8"]}]}, "hosts[0].ips[1]"),
        ({"hosts": [A | {"ips": [7]}]}, "hosts[0].ips[0]"),
        ({"hosts": [A], "backend": "nccl"}, "backend"),
        ({"hosts": [A], "backend": 3}, "backend"),
        ({"hosts": [A], "envs": ["A=1", "B"]}, "envs[1]"),
        ({"hosts": [A], "envs": ["1A=1"]}, "envs[0]"),
        ({"hosts": [A], "envs": "A=1"}, "envs"),
        ({"hosts": [A] * (MAX_RANKS + 1)}, "hosts"),
        ("a", ""),
        # What the back ends need.
        ({"hosts": [A, {"ssh": "b"}], "backend": "ring"}, "hosts[1].ips"),
        ({"hosts": [A, B | {"ips": ["10.0.0.2", "10.0.1.2"]}], "backend": "ring"}, "hosts[1].ips"),
        ({"hosts": [A, B | {"ips": ["fd00::2"]}], "backend": "ring"}, "hosts[1].ips[0]"),
        ({"hosts": [{"ssh": "a"}, B], "backend": "gloo"}, "hosts[0].ips"),
        ({"hosts": [A, B], "backend": "jaccl"}, "hosts[0].rdma"),
        ({"hosts": [A | {"rdma": ["x"]}], "backend": "jaccl"}, "hosts[0].rdma[0]"),
        (
            {"hosts": [A | {"rdma": [None, "x"]}, B | {"rdma": [None, None]}], "backend": "jaccl"},
            "hosts[1].rdma[0]",
        ),
        ({"hosts": [A | {"rdma": [3]}]}, "hosts[0].rdma[0]"),
    ],
)
def test_a_mistake_is_told_with_its_key(data: object, place: str) -> None:
    assert where(data) == place


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"hosts": [\n  {"ssh": "a",}\n]}', "line 2, column 15", "no JSON"),
        ("", "line 1, column 1", "no JSON"),
        ('{"hosts": [], "hosts": []}', "hosts", "twice"),
        ('{"hosts": [{"ssh": "a", "ssh": "b"}]}', "ssh", "twice"),
        ("[NaN]", "", "NaN"),
        ("[" * 100_000, "", "nested"),
        (f"[{'9' * 10_000}]", "", "no JSON"),
        ("[" + " " * (1 << 20) + "]", "", "characters"),
    ],
)
def test_a_text_that_is_no_hostfile(text: str, place: str, words: str) -> None:
    with pytest.raises(HostfileError, match=words) as raised:
        parse_hostfile(text)
    assert raised.value.where == place
    assert raised.value.reason == "BAD_HOSTFILE"


def test_gloo_takes_ipv6_and_a_ring_of_jaccl_needs_its_neighbours_alone() -> None:
    assert parsed({"backend": "gloo", "hosts": [A | {"ips": ["fd00::1"]}, {"ssh": "b"}]})
    devices = [[None, "x", None, "x"], ["x", None, "x", None]] * 2
    devices[2] = [None, "x", None, "x"]
    devices[3] = ["x", None, "x", None]
    hosts = [A | {"rdma": line} for line in devices]
    assert parsed({"backend": "jaccl-ring", "hosts": hosts}).rank_count == 4
    assert where({"backend": "jaccl", "hosts": hosts}) == "hosts[0].rdma[2]"


names = st.from_regex(r"[a-z0-9_]([a-z0-9.-]{0,8}[a-z0-9_])?", fullmatch=True)
hosts = st.builds(
    Host,
    ssh=names | st.builds("{}@{}".format, names, names),
    ips=st.lists(names | st.ip_addresses().map(str), max_size=2).map(tuple),
    rdma=st.lists(st.lists(names, max_size=2).map(tuple), max_size=2).map(tuple),
)


@again(4)
@given(
    st.builds(
        Hostfile,
        hosts=st.lists(hosts, min_size=1, max_size=4).map(tuple),
        envs=st.lists(
            st.builds("{}={}".format, st.sampled_from(["A", "b_1"]), st.text(max_size=6)).filter(
                lambda env: "\0" not in env
            ),
            max_size=2,
        ).map(tuple),
    )
)
@settings(deadline=None, max_examples=25)
def test_what_is_written_is_read_back(hostfile: Hostfile) -> None:
    text = hostfile_text(hostfile)
    assert parse_hostfile(text) == hostfile
    assert isinstance(json.loads(text), dict) is bool(hostfile.envs)


@again(4)
@given(st.text(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["hosts", "ssh", "ips"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["hosts", "ssh", "ips", "rdma", "envs", "x"]), inner),
    max_leaves=12,
).map(json.dumps))  # fmt: skip
@settings(deadline=None, max_examples=50)
def test_anything_is_a_hostfile_or_refused_by_name(text: str) -> None:
    try:
        hostfile = parse_hostfile(text)
    except HostfileError:
        return
    assert hostfile.rank_count > 0


EXAMPLES = sorted((Path(__file__).parents[2] / "hostfiles").glob("*.json"))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # mlx leaves it open
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_is_read_by_us_and_by_mlx_alike(path: Path) -> None:
    # Not a part of mlx's public face, and what mlx.launch itself reads hostfiles with.
    theirs = pytest.importorskip("mlx._distributed_utils.common").Hostfile.from_file(path)
    ours = parse_hostfile(path.read_text())
    assert ours.backend is not None
    assert (theirs.backend, theirs.envs) == (ours.backend.value, list(ours.envs))
    assert [(host.ssh_hostname, host.ips) for host in theirs.hosts] == [
        (host.ssh, list(host.ips)) for host in ours.hosts
    ]
    if ours.backend.uses_rdma:
        told = [[(name,) if name else () for name in host.rdma] for host in theirs.hosts]
        assert told == [list(host.rdma) for host in ours.hosts]
    # They are written as `fleet hostfile` writes them, and the README has each.
    assert hostfile_text(ours) == path.read_text()
    assert f"]({path.name})" in (path.parent / "README.md").read_text()


def test_the_examples_are_those_that_are_promised() -> None:
    found = {path.stem: parse_hostfile(path.read_text()) for path in EXAMPLES}
    backends = {name: hostfile.backend for name, hostfile in found.items()}
    assert backends == {
        "two-minis-thunderbolt": GroupBackend.JACCL,
        "macs-and-linux": GroupBackend.RING,
        "one-linux-host-gloo": GroupBackend.GLOO,
        "one-host-ring": GroupBackend.RING,
    }
    for name in ("one-linux-host-gloo", "one-host-ring"):
        assert {host.ssh for host in found[name].hosts} == {"127.0.0.1"}
        assert found[name].rank_count == 2
