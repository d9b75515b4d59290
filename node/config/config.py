"""The node's configuration: built once, from file, environment and flags.

Later ones win: defaults, the TOML file, `KAKEYA_*` variables, flags. A key that
is not known is an error, in the file and in the environment alike.
"""

from __future__ import annotations

import ipaddress
import socket
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_config_path

from kakeya_fleet.engine.contracts.device import DEVICES
from kakeya_fleet.engine.models.weight_choice import WEIGHTS
from kakeya_fleet.node.config.ports import AUTO_PORT
from kakeya_fleet.node.config.state_directory import default_state
from kakeya_fleet.node.errors import BadConfig, InsecureBind, LoopbackBind

ENVIRONMENT_PREFIX = "KAKEYA_"
# KAKEYA_CONFIG names the file, KAKEYA_COMPILED is the engine's, KAKEYA_NODE belongs to clients that
# share the environment.
OTHER_VARIABLES = frozenset({"KAKEYA_CONFIG", "KAKEYA_COMPILED", "KAKEYA_NODE"})
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "json", "console")
DTYPES = ("auto", "float32", "bfloat16")
BACKENDS = ("auto", "torch", "mlx")
MEMBERS_BIND = "0.0.0.0:auto"
"""Where a member of a fleet with an authority answers other machines, if nothing is said."""
LINKS = ("auto", "grpc", "local", "ring")


@dataclass(frozen=True, slots=True)
class Config:
    """One node's configuration. Check it with `build`, which reads all sources."""

    name: str = field(default_factory=socket.gethostname)
    """Name for people, 1 to 64 characters; the state directory is named after it."""
    bind: str = "127.0.0.1:auto"
    """host:port of the gRPC server; port auto takes the last one again, or 7600, or the next free
    one behind it, and port 0 the last one again, or any free one. A member of a fleet with an
    authority is at 0.0.0.0:auto if nothing is said."""
    state: str = ""
    """State directory; empty for $XDG_STATE_HOME/kakeya/NAME."""
    fleet_name: str = "default"
    """Fleets of different names never mix."""
    peers: tuple[str, ...] = ()
    """Seed peers, host:port; one unknown or dead one is dialled every 10 s.

    A node that is bound to loopback takes peers on loopback alone.
    """
    serve: tuple[str, ...] = ()
    """Roles, each "verifier=MODEL", "proposer=MODEL" or "archive=512MiB"."""
    mdns: bool = True
    """Whether to announce and find nodes by multicast DNS."""
    insecure: bool = False
    """Allows an address beyond loopback, without encryption or authentication."""
    http_bind: str = "127.0.0.1:auto"
    """host:port of HTTP (/v1, /health, /metrics), or "off"; port auto as that of `bind`, from 7180
    on, and 0 likewise."""
    http_hosts: tuple[str, ...] = ()
    """Further names under which HTTP may be asked for, such as a proxy's; without ports."""
    http_origins: tuple[str, ...] = ()
    """Origins of pages elsewhere that may use HTTP from a browser, each scheme://host[:port]."""
    applications_port: int = 0
    """Port at which applications with a key call gRPC, in a fleet with an authority, on the host of
    `bind`; 0 takes the last one again, or a free one, -1 opens none."""
    https_port: int = 0
    """The same of HTTP by TLS, for clients with a key."""
    kv_budget_bytes: int = 0
    """K/V bytes of all sessions together, and half as many again of each plain model that drafts; 0
    is a quarter of the free memory at start."""
    codec_sampling: bool = True
    """Whether idle verifiers measure what `--kv-quality` does to their models, 2 % of the time.

    See `fleet codecs` for what they found, and docs/long-sessions.md."""
    session_ttl_seconds: float = 1800.0
    """Idle seconds after which a session is evicted."""
    unload_after_seconds: float = 0.0
    """Seconds without a session, or a draft stream, after which a model is unloaded; 0 is never.

    `fleet load --unload-after` says it of one model.
    """
    draft_deadline_seconds: float = 0.25
    """Longest wait for one draft, up to 60 s; a later one is a fault of the proposer."""
    archive_deadline_seconds: float = 2.0
    """Longest wait for an archive's answer, up to 60 s; then what it kept is made anew."""
    restorer_wait_seconds: float = 15.0
    """Longest wait for another archive after a loss, up to 600 s; then the operation fails."""
    period_seconds: float = 1.0
    """Gossip period T, 0.02 to 60 s. A dead node of a fleet of two is known within 7 T."""
    dtype: str = "auto"
    """Number format of the models' computation: float32, bfloat16, or auto: the checkpoint's own.

    Of a checkpoint in float16 it is float32, of a GGUF of quantized blocks bfloat16.
    """
    weights: str = "auto"
    """What verifiers and plain drafters take weights as: auto (the checkpoint's), bf16, int8, int4.

    Which models have whole numbers, and what they cost: docs/models.md.
    """
    backend: str = "auto"
    """What computes: torch, mlx, or auto: mlx on Apple silicon, torch elsewhere."""
    device: str = "auto"
    """What computes: cpu, cuda, mps, or auto: Metal with MLX on Apple silicon, else the processor.

    cuda and mps are torch's: docs/models.md says what they have been proven to do.
    """
    group: str = ""
    """Hostfile of the ranks that serve the verifier together; empty for this process alone."""
    group_deadline_seconds: float = 10.0
    """A rank silent for longer, 0.5 to 3600 s, is lost, and its group is started again."""
    links: str = "auto"
    """What carries tensors between nodes: grpc, local, ring, or auto: the fastest measured."""
    trusted_network: bool = False
    """Lets rings and groups carry tensors in the clear between hosts of a fleet with an authority.

    Without it such a fleet keeps them within their hosts; links go by gRPC, which is encrypted.
    """
    drain_seconds: float = 5.0
    """What running generations get when the node leaves, up to 3600 s."""
    log_level: str = "info"
    """debug, info, warning or error."""
    log_format: str = "auto"
    """json, console, or auto: console on a terminal."""
    log_file: str = ""
    """File of the log, in place of standard error, mode 0600; empty for standard error."""
    log_file_bytes: int = 10 << 20
    """Size at which the log's file becomes FILE.1, and FILE.1 becomes FILE.2; 4096 or more."""
    log_file_count: int = 5
    """How many such older files of the log are kept, 1 to 1000."""
    traces_endpoint: str = ""
    """URL of an OpenTelemetry collector (OTLP over HTTP), http://HOST:4318; empty for no traces."""

    @property
    def state_path(self) -> Path:
        """The state directory."""
        return Path(self.state).expanduser() if self.state else default_state(self.name)

    @property
    def log_path(self) -> Path | None:
        """The file that the log goes to, from the root; None without one."""
        return Path(self.log_file).expanduser().absolute() if self.log_file else None

    @property
    def bind_address(self) -> tuple[str, int | None]:
        """Host and port to bind; None for a port that is found."""
        return _to_bind("bind", self.bind)

    @property
    def http_address(self) -> tuple[str, int | None] | None:
        """Host and port of HTTP to bind, None when it is off; None for a port that is found."""
        if self.http_bind == "off":
            return None
        return _to_bind("http_bind", self.http_bind)


_TYPES: Mapping[str, str] = {each.name: str(each.type) for each in fields(Config)}


def default_file() -> Path:
    """$XDG_CONFIG_HOME/kakeya/config.toml."""
    return user_config_path("kakeya") / "config.toml"


def build(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | None = None,
    fleet_of: Callable[[Path], str | None] = lambda _: None,
) -> Config:
    """The checked configuration.

    `fleet_of` a state directory is the fleet whose member the node is, None without one: then
    others reach it by encrypted connections alone, and it binds to all its addresses.

    `flags` holds only what was given. `file` must exist; None takes
    $KAKEYA_CONFIG, or else the default file if there is one. Raises
    `BadConfig` with the key, `InsecureBind` and `LoopbackBind`.
    """
    values: dict[str, object] = {}
    named = environment.get("KAKEYA_CONFIG")
    if file is None and named:
        file = Path(named)
    if file is not None or default_file().exists():
        values.update(_from_file(file or default_file()))
    values.update(_from_environment(environment))
    values.update(_checked(flags, "flags"))
    config = Config(**values)  # type: ignore[arg-type]  # _checked proved each type
    fleet_name = fleet_of(config.state_path)
    if fleet_name is not None:
        _require(
            values.get("fleet_name", fleet_name) == fleet_name,
            "fleet_name",
            f"leave it out: this node is a member of {fleet_name}; or give another --name",
        )
        config = replace(config, fleet_name=fleet_name, bind=str(values.get("bind", MEMBERS_BIND)))
    _check(config, is_member=fleet_name is not None)
    return config


def split_address(key: str, address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[host]:port". Raises `BadConfig`."""
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise BadConfig(
            f"{key} = {address!r} is no address",
            "write HOST:PORT, such as 127.0.0.1:7600",
            key=key,
        )
    return host, int(port)


def _to_bind(key: str, address: str) -> tuple[str, int | None]:
    host, separator, port = address.rpartition(":")
    if separator and port == AUTO_PORT:
        return split_address(key, f"{host}:0")[0], None
    return split_address(key, address)


def join_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host: localhost, 127.0.0.0/8, ::1."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def answerable(hosts: Collection[str], addresses: Iterable[str]) -> tuple[str, ...]:
    """Those of `addresses` (host:port) whose machines reach a node that is bound to `hosts`.

    A node that only its own machine reaches can ask others, and is dead to them.
    """
    if not all(map(is_loopback, hosts)):
        return tuple(addresses)
    return tuple(each for each in addresses if is_loopback(split_address("peers", each)[0]))


def require_answerable(hosts: Collection[str], peers: Sequence[str]) -> None:
    """Raises `LoopbackBind` for the first seed peer that could not answer to such a node."""
    reached = answerable(hosts, peers)
    for peer in peers:
        if peer not in reached:
            every = "[::]:auto" if peer.startswith("[") else "0.0.0.0:auto"
            raise LoopbackBind(
                f"the peer {peer} is not on loopback, where alone this node would be reached "
                f"({', '.join(hosts)})",
                f"add `--bind {every} --insecure` if everyone on this network may use this node, "
                "or give a peer on 127.0.0.1",
                key="bind",
                peer=peer,
            )


def _from_file(path: Path) -> dict[str, object]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadConfig(
            f"the configuration {path} cannot be read ({error.strerror})",
            "name another file with --config",
            key="config",
        ) from error
    except ValueError as error:
        raise BadConfig(
            f"the configuration {path} is not TOML ({error})", "mend that line", key="config"
        ) from error
    return _checked(document, str(path))


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    given = {
        variable: value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES
    }
    known = {ENVIRONMENT_PREFIX + name.upper(): name for name in _TYPES}
    values: dict[str, object] = {}
    for variable, text in given.items():
        if variable not in known:
            raise _unknown(variable, known, "the environment")
        values[known[variable]] = _parsed(variable, _TYPES[known[variable]], text)
    return values


def _parsed(variable: str, kind: str, text: str) -> object:
    try:
        match kind:
            case "bool":
                return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "tuple[str, ...]":
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case _:
                return text
    except (KeyError, ValueError) as error:
        raise BadConfig(
            f"{variable} = {text!r} is not {described(kind)}", "correct or unset it", key=variable
        ) from error


def _checked(values: Mapping[str, object], source: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in values.items():
        if key not in _TYPES:
            raise _unknown(key, _TYPES, source)
        result[key] = _typed(key, _TYPES[key], value, source)
    return result


def _typed(key: str, kind: str, value: object, source: str) -> object:
    match kind, value:
        case ("bool", bool()) | ("str", str()):
            return value
        case ("int" | "float", int()) if not isinstance(value, bool):
            return float(value) if kind == "float" else value
        case ("float", float()):
            return value
        case ("tuple[str, ...]", list() | tuple()) if all(isinstance(part, str) for part in value):
            return tuple(value)
    raise BadConfig(
        f"{key} = {value!r} in {source} is not {described(kind)}", "correct it", key=key
    )


def described(kind: str) -> str:
    """A field's type in words: `true or false`, `a number`, `a list of texts`."""
    return {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
    }.get(kind, "a list of texts")


def _unknown(key: str, known: Collection[str], source: str) -> BadConfig:
    import difflib  # noqa: PLC0415 - for mistakes alone

    # What all variables begin with says nothing about how near they are.
    named = {each.removeprefix(ENVIRONMENT_PREFIX): each for each in known}
    (near,) = difflib.get_close_matches(
        key.removeprefix(ENVIRONMENT_PREFIX), named, n=1, cutoff=0.0
    )
    return BadConfig(
        f"{key} in {source} is not known",
        f"did you mean {named[near]}? docs/configuration.md lists all",
        key=key,
        nearest=named[near],
    )


def _check(config: Config, *, is_member: bool) -> None:
    _require(0 < len(config.name) <= 64, "name", "give it 1 to 64 characters")
    _require(config.name.isprintable(), "name", "leave out control characters")
    _require(config.fleet_name.isprintable(), "fleet_name", "leave out control characters")
    _require("/" not in config.name and config.name not in {".", ".."}, "name", "leave out /")
    _require(0 < len(config.fleet_name) <= 64, "fleet_name", "give it 1 to 64 characters")
    _require(-1 <= config.applications_port <= 65535, "applications_port", "give -1 to 65535")
    _require(-1 <= config.https_port <= 65535, "https_port", "give -1 to 65535")
    _require(config.kv_budget_bytes >= 0, "kv_budget_bytes", "give 0 or more bytes")
    _require(0 < config.session_ttl_seconds < 1e9, "session_ttl_seconds", "give seconds above 0")
    _require(
        0 <= config.unload_after_seconds <= 31_536_000, "unload_after_seconds", "give up to a year"
    )
    _require(0 < config.draft_deadline_seconds <= 60, "draft_deadline_seconds", "give 0 to 60 s")
    _require(
        0 < config.archive_deadline_seconds <= 60, "archive_deadline_seconds", "give 0 to 60 s"
    )
    _require(0 <= config.restorer_wait_seconds <= 600, "restorer_wait_seconds", "give 0 to 600 s")
    _require(0.02 <= config.period_seconds <= 60, "period_seconds", "give 0.02 to 60 s")
    _require(0 <= config.drain_seconds <= 3600, "drain_seconds", "give 0 to 3600 s")
    _require(config.backend in BACKENDS, "backend", f"give one of {', '.join(BACKENDS)}")
    _require(config.device in DEVICES, "device", f"give one of {', '.join(DEVICES)}")
    _require(
        0.5 <= config.group_deadline_seconds <= 3600, "group_deadline_seconds", "give 0.5 to 3600 s"
    )
    _require(config.links in LINKS, "links", f"give one of {', '.join(LINKS)}")
    _require(config.weights in WEIGHTS, "weights", f"give one of {', '.join(WEIGHTS)}")
    _require(config.dtype in DTYPES, "dtype", f"give one of {', '.join(DTYPES)}")
    _require(config.log_level in LOG_LEVELS, "log_level", f"give one of {', '.join(LOG_LEVELS)}")
    _require(
        config.log_format in LOG_FORMATS, "log_format", f"give one of {', '.join(LOG_FORMATS)}"
    )
    _require(config.log_file_bytes >= 4096, "log_file_bytes", "give 4096 bytes or more")
    _require(1 <= config.log_file_count <= 1000, "log_file_count", "give 1 to 1000 files")
    _require(
        not config.traces_endpoint or _is_http_url(config.traces_endpoint),
        "traces_endpoint",
        "give the collector's URL, such as http://127.0.0.1:4318",
    )
    for origin in config.http_origins:
        _require(
            _is_origin(origin), "http_origins", "give scheme://host[:port], such as https://my.page"
        )
    for peer in config.peers:
        split_address("peers", peer)
    http = config.http_address
    if is_member and http is not None and not is_loopback(http[0]):
        raise InsecureBind(
            f"http_bind = {http[0]} would answer other machines in plain text",
            "leave it on loopback: they call HTTPS with a key, at https_port",
            key="http_bind",
        )
    addresses = {"http_bind": http}
    if not is_member:
        addresses["bind"] = config.bind_address
    for key, address in addresses.items():
        if address is not None and not is_loopback(address[0]) and not config.insecure:
            raise InsecureBind(
                f"{key} = {address[0]} is reachable from other machines, without encryption "
                "or authentication",
                "add --insecure if everyone on that network may use this node, or bind 127.0.0.1",
                key=key,
            )
    require_answerable((config.bind_address[0],), config.peers)


def _is_origin(text: str) -> bool:
    """Whether a browser could say so of a page: no path, and no `*`, which is everybody."""
    try:
        split = urlsplit(text)
    except ValueError:
        return False
    is_whole = text == f"{split.scheme}://{split.netloc}" and bool(split.hostname)
    return is_whole and split.scheme in ("http", "https") and not {"*", "@"} & set(text)


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _require(holds: bool, key: str, mend: str) -> None:  # noqa: FBT001
    if not holds:
        raise BadConfig(f"the value of {key} is outside its range", mend, key=key)
