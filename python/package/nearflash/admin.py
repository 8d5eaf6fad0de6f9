"""The admin API of a server: made from its OpenAPI document by ``tools/generate_admin.py``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from ._http import Http


class AddDevice(TypedDict):
    """A device that the server exports."""

    #: Limits the requests in flight at the device to what the strictest latency objective allows.
    bound_depth: NotRequired[bool]

    #: Corrects the device model by measured delays.
    correct_online: NotRequired[bool]

    #: Refuses requests that would miss their latency objective at once.
    fail_fast: NotRequired[bool]

    #: Device model: a file, `a` or `cloud` (docs/reference/device-models.md).
    #: By default `sim:a` and `sim:cloud` have their own model, and other devices have none.
    model: NotRequired[str | None]

    #: Name of the device, by which namespaces and tenants refer to it.
    name: str

    #: The extent for which promised percentiles hold: `in-windows` of 1 000 reads (95th
    #: percentile) and of 10 s (99th), for which a part of the rate is kept back. By default
    #: `on-average`.
    promises: NotRequired[Promises]

    #: Automatic recalibration of a device that differs from its model: `off`, or `idle` for when
    #: the device is idle.
    recalibrate: NotRequired[Automatic]

    #: Seconds of little load after which the device counts as idle.
    recalibrate_idle_seconds: NotRequired[int | None]

    #: Namespace, by name or number, that a recalibration may overwrite.
    #: A recalibration without one only reads.
    recalibrate_scratch: NotRequired[str | None]

    #: A device spec (docs/reference/devices.md).
    spec: str


class AddListener(TypedDict):
    """A listener: an address at which clients connect."""

    #: Number of the listener, by which operators and `ana` refer to it.
    #: By default its position among the listeners.
    number: NotRequired[int | None]

    #: URL of the listener: protocol, address and options (docs/reference/configuration.md).
    url: str


class AddNamespace(TypedDict):
    """A namespace to add."""

    #: Size in bytes: a multiple of 512.
    bytes: int

    #: The device of the namespace; the first device by default.
    device: NotRequired[str | None]

    #: Name for operators: letters, digits, `-`, `_` and `.`, not digits alone.
    name: str

    #: `true` to refuse all writes.
    read_only: NotRequired[bool]

    #: The subsystems that contain the namespace; by default, the subsystems that have all
    #: namespaces.
    subsystems: NotRequired[list[str] | None]

    #: The UUID by which NVMe hosts know the namespace: 32 hexadecimal digits, with or without
    #: hyphens. By default the server chooses one.
    uuid: NotRequired[str | None]


class AddSubsystem(TypedDict):
    """A subsystem to add."""

    #: `true` to refuse hosts without a key.
    authenticate: NotRequired[bool]

    #: The hosts that may connect; all by default.
    hosts: NotRequired[list[str] | None]

    #: The namespaces of the subsystem, by name or number; all by default.
    namespaces: NotRequired[list[str] | None]

    #: Qualified name of the subsystem.
    nqn: str

    #: The tenant that the subsystem's I/O is charged to.
    tenant: NotRequired[str | None]


class AddTenant(TypedDict):
    """A tenant to add."""

    #: The device of the SLO; the first device by default.
    device: NotRequired[str | None]

    #: Name of the tenant: 1 to 64 bytes.
    name: str

    #: Free text about the tenant, at most 200 characters.
    note: NotRequired[str | None]

    #: The share of a best-effort tenant; by default, an equal share without a cap.
    share: NotRequired[Share | None]

    #: The SLO; without it, the tenant is best effort.
    slo: NotRequired[Slo | None]


class Admitted(TypedDict):
    """The figures of an admitted tenant."""

    #: The device of the SLO.
    device: str

    #: `false` if the device has no model, and so limits nobody.
    has_model: NotRequired[bool]

    #: Name of the tenant.
    name: str

    #: Number of the tenant, as in workers' logs.
    number: int

    #: The share of a best-effort tenant.
    share: NotRequired[Share]

    #: Tokens per second of the device that are left for best effort.
    tokens_left: int

    #: Tokens per second that the SLO needs; zero for best effort.
    tokens_needed: int


class Ana(TypedDict):
    """The ANA state of a namespace group of a subsystem through a listener."""

    #: Identifier of the group.
    group: int

    #: Number of the listener.
    listener: int

    #: The state.
    state: AnaState

    #: Qualified name of the subsystem.
    subsystem: str


#: A state of asymmetric namespace access (ANA).
AnaState = Literal[
    "optimized", "non-optimized", "inaccessible", "persistent-loss", "change"
]


#: The start condition of automatic recalibration, after a drift from the model.
Automatic = Literal[
    "off", "idle"
]


class ChangeTenantAdd(TypedDict):
    """Adds a tenant."""

    add: AddTenant


class ChangeTenantSet(TypedDict):
    """Changes the SLO, its device, the share and the note of a tenant."""

    set: SetNamed


class ChangeTenantRemove(TypedDict):
    """Removes a tenant."""

    remove: RemoveNamed


#: A change within a batch of changes of tenants.
ChangeTenant = ChangeTenantAdd | ChangeTenantSet | ChangeTenantRemove


class ChangeTenants(TypedDict):
    """Changes of tenants that are made together, or not at all."""

    #: The changes, one per tenant, at most 10 000, made in this order. Removals are made last:
    #: the tokens that they free are there for the next request.
    changes: list[ChangeTenant]


class ChangedTenants(TypedDict):
    """The counts of a batch of changes."""

    #: Number of added tenants.
    added: int

    #: Number of changed tenants.
    changed: int

    #: Number of removed tenants.
    removed: int


class Check(TypedDict):
    """A question whether an SLO would be admitted, for a new or for an existing tenant."""

    #: The device of a new tenant; the first device by default.
    device: NotRequired[str | None]

    #: The SLO in question.
    slo: Slo

    #: The tenant that would change; a new one by default.
    tenant: NotRequired[str | None]


#: The class of a tenant.
Class = Literal[
    "latency-critical", "best-effort"
]


#: The code of an error, for programs.
Code = Literal[
    "invalid", "taken", "no-tenant", "no-device", "in-use", "table-full", "no-model",
    "not-measured", "too-tight", "too-much", "no-namespace", "no-subsystem", "no-host",
    "no-listener", "not-opened", "not-kept", "shrinks", "no-room", "fixed", "busy",
    "unsupported", "unauthorized", "too-often", "forbidden", "no-worker", "no-connection",
    "not-found", "no-method", "too-large", "time-out", "no-audit", "not-audited", "internal"
]


class Compliance(TypedDict):
    """The compliance with a tenant's SLO."""

    #: Share of seconds of the last minute in which the bound held at its percentile. Only seconds
    #: count that had reads, and in which the tenant spent at most 1.05 times its promised tokens.
    kept: NotRequired[float | None]

    #: Share of the reads of the last minute within the bound, 0 to 1; `null` without reads or SLO.
    minute: NotRequired[float | None]

    #: Share of the reads of the last second within the bound, 0 to 1; `null` without reads or SLO.
    second: NotRequired[float | None]


class Connection(TypedDict):
    """A connection of a client or host."""

    #: `true` if the connection's session can move.
    can_move: bool

    #: `true` if its end has begun: it accepts no more requests.
    ending: NotRequired[bool]

    #: Identifier of the connection, `WORKER:PLACE.GENERATION`. A move changes it.
    id: str

    #: Number of its requests in flight.
    in_flight: int

    #: Number of the listener that accepted the connection.
    listener: NotRequired[int]

    #: Number of messages received on it at this worker; wraps at 2³².
    messages: int

    #: Address of the peer.
    peer: str

    #: The connection's tenant; `null` while it has no rights.
    tenant: NotRequired[str | None]

    #: The transport by which the peer came: `tcp` (with TLS or without), `udp` or `unix`.
    transport: NotRequired[str]

    #: Number of the worker that serves the connection.
    worker: int


class Connections(TypedDict):
    """The list of connections."""

    #: The connections, ordered by worker.
    connections: list[Connection]

    #: Number of all connections, including those not listed.
    total: NotRequired[int]


class Contained(TypedDict):
    """A namespace in a subsystem."""

    #: The operators' name of the namespace.
    name: str

    #: Namespace identifier in the subsystem.
    nsid: int

    #: Number of the namespace on the server.
    number: int


class Controller(TypedDict):
    """A controller: the association of a host with a subsystem."""

    #: Identifier of the controller.
    cntlid: int

    #: Qualified name of the host.
    host: str

    #: Number of the listener that accepted the host.
    listener: int

    #: Number of I/O queues.
    queues: int


class Correction(TypedDict):
    """The measured correction of a device's model."""

    #: Tokens per second, in percent of the model's.
    rate_percent: float

    #: Price of a write, in percent of the model's.
    write_price_percent: float


class Device(TypedDict):
    """A device."""

    #: The current correction of the model; `null` if `correct_online` is off.
    correction: NotRequired[Correction | None]

    #: The device's drift from its model; `null` without a model.
    drift: NotRequired[Drift | None]

    #: `true` if the device has a model. Without a model, the device admits no SLO and limits no
    #: tenant.
    has_model: bool

    #: Name of the device.
    name: str

    #: `true` if the model comes from a recalibration, not from the configuration.
    recalibrated: NotRequired[bool]

    #: The device's settings, from the configuration or changed since.
    settings: NotRequired[DeviceSettings | None]

    #: The strictest latency bound; `null` without SLOs.
    strictest: NotRequired[Strictest | None]

    #: Tokens per second that the device delivers with its current tenants; `null` without a model.
    tokens: NotRequired[int | None]

    #: Tokens per second that are kept back, so that SLOs hold in windows: the device would deliver
    #: them, beyond `tokens`, if its strictest SLO held on average only. Zero if promises hold on
    #: average.
    tokens_headroom: NotRequired[int]

    #: Tokens per second that are left for best effort; `null` without a model.
    tokens_left: NotRequired[int | None]

    #: Tokens per second that are promised.
    tokens_promised: int


class DeviceSettings(TypedDict):
    """The settings of a device, from the configuration or changed since."""

    #: `true` if the requests at the device are limited to what the strictest latency bound allows.
    bound_depth: bool

    #: `true` if the model is corrected by measured delays.
    correct_online: bool

    #: `true` if requests that would miss their latency bound are refused at once.
    fail_fast: bool

    #: Name of the model; `null` for the model of the spec, or none.
    model: NotRequired[str | None]

    #: Name of the device.
    name: str

    #: Extent for which promised percentiles hold.
    promises: NotRequired[Promises]

    #: Start condition of automatic recalibration.
    recalibrate: Automatic

    #: Period of low load before an automatic recalibration, in seconds.
    recalibrate_idle_seconds: int

    #: The scratch namespace that automatic recalibration may overwrite; `null`: the device is only
    #: read.
    recalibrate_scratch: NotRequired[str | None]

    #: Spec of the device.
    spec: str


class Devices(TypedDict):
    """The list of devices."""

    #: The devices, in the order of configuration.
    devices: list[Device]


class Drain(TypedDict):
    """The state of the server's drain."""

    #: Number of connections.
    connections: int

    #: Number of requests in flight, as last reported by the workers.
    in_flight: int

    #: Remaining time in milliseconds until connections end in any case.
    left_ms: NotRequired[int | None]

    #: The state.
    state: DrainState


class DrainListener(TypedDict):
    """The parameters of a drain of a listener."""

    #: Time in milliseconds after which connections with requests in flight end in any case; ten
    #: seconds by default.
    deadline_ms: NotRequired[int | None]


class DrainServer(TypedDict):
    """The parameters of a drain of the server."""

    #: Time in milliseconds, at most a day, after which connections with requests in flight end in
    #: any case. The default is `limits.drain_seconds` of the configuration.
    deadline_ms: NotRequired[int | None]


#: The state of a server that may drain.
DrainState = Literal[
    "serving", "draining"
]


class Drift(TypedDict):
    """The drift of a device from its model."""

    #: Delivered rate in percent of the model's rate at the measured p95 of reads: the median of
    #: five to eight measurements of half a second each; `null` if unknown.
    percent: NotRequired[float | None]

    #: Time since the drift is known, in seconds; `null` without drift.
    seconds: NotRequired[float | None]

    #: The state of the drift.
    state: DriftState

    #: The reason that the drift is unknown.
    why: NotRequired[str | None]


#: The state of a device's drift.
DriftState = Literal[
    "unknown", "fits", "drifted"
]


class Exported(TypedDict):
    """A namespace's membership in a subsystem."""

    #: Namespace identifier in the subsystem.
    nsid: int

    #: Qualified name of the subsystem.
    subsystem: str


class Failure(TypedDict):
    """A problem as the body of a response."""

    error: Problem


class FlowOfDevice(TypedDict):
    """The activity of a device in the last second."""

    #: Number of requests at the device.
    depth: int

    #: Successful requests per second.
    iops: float

    #: Name of the device.
    name: str

    #: p95 of sampled reads at the device in microseconds: the upper edge of a bucket that is twice
    #: as wide as the one below it; `null` without samples.
    p95_us: NotRequired[float | None]

    #: Number of requests that wait in its schedulers.
    queued: int

    #: Bytes read per second.
    read_bytes: float

    #: The flow of its tokens.
    tokens: TokenRates

    #: Bytes written per second.
    written_bytes: float


class FlowOfNamespace(TypedDict):
    """The activity of a namespace in the last second."""

    #: Successful requests per second.
    iops: float

    #: Number of the namespace.
    number: int

    #: Bytes read per second.
    read_bytes: float

    #: The time per stage of its reads.
    stages: NotRequired[StageTails]

    #: Bytes written per second.
    written_bytes: float


class FlowOfWorker(TypedDict):
    """The activity of a worker in the last second."""

    #: Number of buffers in use.
    buffers: int

    #: Share of the time in which the worker was busy, in percent.
    busy_percent: float

    #: Number of open connections.
    connections: int

    #: Number of requests in flight.
    in_flight: int

    #: Successful requests per second.
    iops: NotRequired[float]

    #: Number of the worker.
    number: int

    #: Parts of its busy time in percent: network, protocol, scheduling, device, kernel, upkeep.
    parts: list[float]

    #: Bytes read per second.
    read_bytes: NotRequired[float]

    #: The time per stage of its reads.
    stages: NotRequired[StageTails]

    #: Turns per second that did something.
    turns: float

    #: Share of the time for which the worker's thread was ready to run and did not, in percent.
    waited_percent: NotRequired[float]

    #: Bytes written per second.
    written_bytes: NotRequired[float]


class Flows(TypedDict):
    """The server's activity in the last second."""

    #: The devices, in the order of configuration.
    devices: list[FlowOfDevice]

    #: The namespaces that were ever used, by number.
    namespaces: list[FlowOfNamespace]

    #: The verdict on a machine whose workers wait for processors, so that latencies are not those
    #: of the devices; `null` if the workers get the time that they need.
    overcommitted: NotRequired[str | None]

    #: The workers, by number.
    workers: list[FlowOfWorker]


class Found(TypedDict):
    """The model that a recalibration has found."""

    #: Deviation of the worst point from the fitted curve, in percent.
    off_percent: float

    #: The rates by p95 latency.
    rates: list[FoundRate]

    #: Price of a write in tokens.
    write_price: float

    #: Price of a write in tokens, before.
    write_price_before: float

    #: `true` if the price was measured; otherwise it is unchanged.
    write_price_measured: bool


class FoundRate(TypedDict):
    """A row of the model, before and after."""

    #: Latency in microseconds.
    latency_us: int

    #: `true` if the row was measured. Otherwise it was scaled like the measured rows, and never
    #: up.
    measured: bool

    #: Tokens per second of any mix, as found.
    mixed: int

    #: Tokens per second of any mix, before.
    mixed_before: int

    #: Reads per second of a read-only load, as found.
    read_only: int

    #: Reads per second of a read-only load, before.
    read_only_before: int


#: A Diffie-Hellman group of DH-HMAC-CHAP. `none` is authentication without an exchange.
GroupName = Literal[
    "none", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"
]


class HasMoved(TypedDict):
    """The result of a move."""

    #: New identifier of the connection.
    id: str

    #: Time in microseconds during which the connection was not received from.
    pause_us: int

    #: Number of the worker that serves the connection now.
    worker: int


#: A hash of DH-HMAC-CHAP.
HashName = Literal[
    "sha256", "sha384", "sha512"
]


class History(TypedDict):
    """The figures of the last five minutes, or of the last day."""

    #: Names of the devices.
    devices: list[str]

    #: Upper edges of the latency buckets in microseconds; one more bucket has no edge.
    edges_us: list[float]

    #: The seconds or minutes, oldest first.
    seconds: list[Second]

    #: The version of the server.
    version: str


class Host(TypedDict):
    """A registered host."""

    #: The groups that the host may authenticate with; all of the configuration if absent.
    groups: NotRequired[list[GroupName]]

    #: `true` if the server can authenticate to the host.
    has_controller_key: bool

    #: `true` if the host has a key, and so must authenticate. The key itself is never shown.
    has_key: bool

    #: The hashes that the host may authenticate with; all of the configuration if absent.
    hashes: NotRequired[list[HashName]]

    #: Qualified name of the host.
    nqn: str

    #: `true` if the host may also use the key that it had before.
    overlaps: NotRequired[bool]

    #: The tenant that the host's I/O is charged to.
    tenant: NotRequired[str | None]

    #: The state of the host's key for TLS. The key itself is never shown.
    tls_key: NotRequired[KeyState]


class Hosts(TypedDict):
    """The list of registered hosts."""

    #: The hosts, in order of registration.
    hosts: list[Host]


class ImportState(TypedDict):
    """A document to import."""

    #: The document, as exported. The server keeps the objects of tables that it leaves out.
    document: str

    #: `true` to return the changes without making them.
    dry_run: NotRequired[bool]


class Imported(TypedDict):
    """The outcome of an import."""

    #: The differences between the server and the document, one a line.
    changes: list[str]

    #: The differences that remain, with the reasons.
    left: list[str]


#: The state of a host's key for TLS.
KeyState = Literal[
    "none", "known", "overlaps"
]


class Listener(TypedDict):
    """A listener of the server."""

    #: The ANA states through the listener, except `optimized`.
    ana: list[Ana]

    #: Number of its connections, while it is drained.
    connections: NotRequired[int | None]

    #: Number of the listener, from 1. By default, its position in the configuration, or a free
    #: number for a listener that was added later.
    number: int

    #: State of the listener.
    state: ListenerState

    #: URL of the listener.
    url: str


#: The state of a listener.
ListenerState = Literal[
    "open", "draining", "drained"
]


class Listeners(TypedDict):
    """The list of listeners."""

    #: The listeners, ordered by number.
    listeners: list[Listener]


class Measured(TypedDict):
    """The measurements of a tenant in the last second."""

    #: Tokens per second that the tenant took out of the devices' buckets.
    borrowed: NotRequired[float]

    #: Compliance with the SLO.
    compliance: NotRequired[Compliance]

    #: Number of rounds below the deficit limit since the tenant was added.
    deficits: int

    #: Tokens per second that the tenant put into the devices' buckets because it had more than it
    #: could use.
    donated: NotRequired[float]

    #: Failed requests per second, without those that were refused as busy.
    failures: NotRequired[float]

    #: Requests answered per second.
    iops: float

    #: p95 of reads in microseconds, from the last byte of the request to the reply handed to the
    #: socket; `null` without reads.
    p95_us: NotRequired[float | None]

    #: Bytes read per second.
    read_bytes: NotRequired[float]

    #: Share of reads in percent; `null` without requests.
    read_percent: NotRequired[float | None]

    #: Number of successful requests since the tenant was added.
    requests_total: int

    #: Requests per second that were refused as busy.
    retries: NotRequired[float]

    #: Latency of reads in microseconds at the percentile of the SLO; `null` without reads.
    slo_percentile_us: NotRequired[float | None]

    #: Share of the second in which its requests waited for tokens, 0 to 1.
    throttled: float

    #: Tokens spent per second, on all devices.
    tokens: float

    #: Bytes written per second.
    written_bytes: NotRequired[float]


class Model(TypedDict):
    """The model of a device: as measured, before corrections."""

    #: Rates by latency at the 95th percentile.
    p95: list[Rate]

    #: Rates by latency at the 99th percentile; empty if not measured.
    p99: list[Rate]

    #: Price of a read of 4 KiB in a read-only load, in tokens.
    read_only_price: float

    #: Tokens per second without a latency bound.
    tokens_max: int

    #: Price of a write of 4 KiB in tokens.
    write_price: float


class MoveTo(TypedDict):
    """The destination of a move."""

    #: Number of the worker that is to serve the connection.
    to: int


class Namespace(TypedDict):
    """A namespace: a range of a device that clients and hosts use."""

    #: Size in bytes.
    bytes: int

    #: The device of the namespace.
    device: str

    #: The operators' name of the namespace.
    name: str

    #: Number of the namespace on the server, by which clients of protocol `reflex` name it.
    number: int

    #: Offset on the device in bytes.
    offset: int

    #: `true` if all writes are refused.
    read_only: bool

    #: The subsystems that contain the namespace.
    subsystems: list[Exported]

    #: The UUID of the namespace; absent if it has another one in each subsystem.
    uuid: NotRequired[str | None]


class Namespaces(TypedDict):
    """The list of namespaces."""

    #: The namespaces, ordered by number.
    namespaces: list[Namespace]


class OpenedDevice(TypedDict):
    """A device that was opened."""

    #: Size in bytes.
    bytes: int

    #: `true` if the device has a model. Without a model, the device admits no SLO.
    has_model: bool

    #: Name of the device for namespaces and tenants.
    name: str

    #: Spec of the device.
    spec: str


#: The order of a list of tenants.
Order = Literal[
    "worst", "name", "requests", "tokens", "latency"
]


#: The origin of a tenant.
Origin = Literal[
    "configured", "operator", "client"
]


#: The phase of a recalibration.
Phase = Literal[
    "waiting", "measuring", "held", "accepted", "refused", "cancelled"
]


class Problem(TypedDict):
    """The reason that a request failed."""

    #: Error code for programs.
    code: Code

    #: Message for people: the error and its remedy.
    message: str

    #: The figures of an SLO that does not fit.
    shortage: NotRequired[Shortage | None]

    #: Remedies for a refused SLO.
    ways: NotRequired[Ways | None]


#: The extent for which the percentiles that a device promises hold.
Promises = Literal[
    "on-average", "in-windows"
]


class Rate(TypedDict):
    """The rate of a device at a latency."""

    #: Tail latency of reads in microseconds.
    latency_us: int

    #: Tokens per second of a mixed load.
    mixed: int

    #: Tokens per second of a read-only load, at the price of a read in a mixed load.
    read_only: int


#: A histogram of read latencies, without the empty buckets at both ends.
Reads = TypedDict(
    "Reads",
    {
        #: Reads in this bucket and in the following ones.
        "counts": "list[int]",
        #: Number of the first bucket.
        "from": "int",
    },
)


class Recalibration(TypedDict):
    """A recalibration of a device."""

    #: The requested parameters.
    asked: StartRecalibration

    #: `true` if the server started the recalibration by itself.
    automatic: bool

    #: The device.
    device: str

    #: Tenants that would have to go for the other SLOs to fit.
    displaced: list[str]

    #: The model that was found.
    found: NotRequired[Found | None]

    #: Number of times that it paused for load and started anew.
    gave_way: int

    #: p95 of all reads at the device in the last step, in microseconds.
    p95_us: NotRequired[float | None]

    #: The phase.
    phase: Phase

    #: Progress in percent.
    progress_percent: float

    #: Number of steps so far: loads that were measured.
    steps: int

    #: The reason that it waits, or that it ended.
    why: NotRequired[str | None]


class RemoveNamed(TypedDict):
    """A tenant to remove."""

    #: The tenant's name.
    name: str


class RemovedListener(TypedDict):
    """A listener that was closed."""

    #: Number of its connections that are left; `null` if a worker did not answer.
    connections: NotRequired[int | None]

    #: Number that the listener had.
    number: int

    #: URL that the listener had.
    removed: str


class Second(TypedDict):
    """The server's figures of one second, or of one minute: then rates are means, and standings
    and latencies of devices those of the worst second.
    """

    #: Time since its end, in seconds.
    age: float

    #: The devices, in the order of configuration.
    devices: list[SecondOfDevice]

    #: Failed requests per second, without those that were refused as busy.
    failures: float

    #: Number of the second or minute, counted from the start of the server.
    number: int

    #: Bytes read per second.
    read_bytes: float

    #: The latencies of reads.
    reads: Reads

    #: Requests answered per second.
    requests: float

    #: The number of tenants by standing.
    standings: Standings

    #: Bytes written per second.
    written_bytes: float


class SecondOfDevice(TypedDict):
    """A device's figures of one second."""

    #: The strictest latency bound in microseconds.
    bound_us: NotRequired[int | None]

    #: Tokens per second that the device delivers; `null` without a model.
    made: NotRequired[int | None]

    #: p95 of sampled reads at the device in microseconds, as in `/v1/flows`.
    p95_us: NotRequired[float | None]

    #: Tokens per second that are reserved for SLOs.
    promised: int

    #: The flow of the device's tokens.
    tokens: TokenRates


class ServerState(TypedDict):
    """The state of a server: its devices, namespaces, tenants, subsystems, hosts, listeners and
    access rules.
    """

    #: The document, in the form of a configuration file (TOML). It has `(hidden)` in place of keys
    #: and tokens.
    document: str


class SetAna(TypedDict):
    """A change of the ANA state of namespaces through a listener."""

    #: Identifier of the group; 1 by default, which contains all namespaces.
    group: NotRequired[int | None]

    #: The new state.
    state: AnaState

    #: Qualified name of the subsystem; all subsystems by default.
    subsystem: NotRequired[str | None]


class SetDevice(TypedDict):
    """A change of a device's settings; omitted members keep their value."""

    #: `true` to limit the requests at the device to what the strictest latency bound allows.
    bound_depth: NotRequired[bool | None]

    #: `true` to correct the model by measured delays.
    correct_online: NotRequired[bool | None]

    #: `true` to refuse at once requests that would miss their latency bound.
    fail_fast: NotRequired[bool | None]

    #: The model: a file on the server's machine, `a` or `cloud`. The same name reads the file
    #: again. The device must have a model, and the new model must fit all SLOs.
    model: NotRequired[str | None]

    #: Name of the device, which cannot change: any other name is refused.
    name: NotRequired[str | None]

    #: Extent for which promised percentiles hold. Present SLOs stay; if they leave no headroom,
    #: each gets a proportional part.
    promises: NotRequired[Promises | None]

    #: Start condition of automatic recalibration.
    recalibrate: NotRequired[Automatic | None]

    #: Period of low load before an automatic recalibration, in seconds.
    recalibrate_idle_seconds: NotRequired[int | None]

    #: The scratch namespace, by name or number, that automatic recalibration may overwrite: all
    #: its data is lost. Empty: none.
    recalibrate_scratch: NotRequired[str | None]

    #: Spec of the device, which cannot change: any other spec is refused.
    spec: NotRequired[str | None]


class SetHost(TypedDict):
    """A registration of a host. Omitted members keep their value; empty members are removed."""

    #: The key with which the server authenticates to the host.
    controller_key: NotRequired[str | None]

    #: The groups that the host may authenticate with, as `hashes`.
    groups: NotRequired[list[GroupName] | None]

    #: The hashes that the host may authenticate with, the preferred one first; empty for all of
    #: the configuration. They hold from the host's next authentication on.
    hashes: NotRequired[list[HashName] | None]

    #: The host's key, `DHHC-1:…`.
    key: NotRequired[str | None]

    #: `true`: with a new key, the key before goes on. `false`: it ends. A new key ends it, too.
    overlap: NotRequired[bool | None]

    #: The tenant that the host's I/O is charged to.
    tenant: NotRequired[str | None]

    #: The host's key for TLS, `NVMeTLSkey-1:…`.
    tls_key: NotRequired[str | None]

    #: `true`: with a new TLS key, the one before goes on. `false`: it ends. A new key ends it,
    #: too.
    tls_overlap: NotRequired[bool | None]


class SetListener(TypedDict):
    """A change of a listener; omitted members keep their value."""

    #: Deadline of a drain in milliseconds, at which connections with requests in flight end in any
    #: case; ten seconds by default.
    deadline_ms: NotRequired[int | None]

    #: Number of the listener, which cannot change: any other number is refused.
    number: NotRequired[int | None]

    #: `open`: the listener accepts connections. `draining` or `drained`: it refuses connections,
    #: and its connections end.
    state: NotRequired[ListenerState | None]

    #: URL of the listener with its access rules, which cannot change: any other URL is refused.
    url: NotRequired[str | None]


class SetNamed(TypedDict):
    """A change of a named tenant's SLO, its device, share and note."""

    #: The device of the SLO; unchanged by default.
    device: NotRequired[str | None]

    #: The tenant's name.
    name: str

    #: Free text about the tenant, at most 200 characters; unchanged by default. An empty text
    #: removes it.
    note: NotRequired[str | None]

    #: The share of a best-effort tenant; unchanged by default.
    share: NotRequired[Share | None]

    #: The new SLO; `null`: best effort.
    slo: Slo | None


class SetNamespace(TypedDict):
    """A change of a namespace; omitted members keep their value."""

    #: Size in bytes: a multiple of 512.
    bytes: NotRequired[int | None]

    #: New name for operators: letters, digits, `-`, `_` and `.`, not digits alone.
    name: NotRequired[str | None]

    #: `true` to refuse all writes.
    read_only: NotRequired[bool | None]

    #: `true` if the namespace may become smaller, which loses the data after its new end.
    shrink: NotRequired[bool]


class SetRecalibration(TypedDict):
    """A decision on the result of a recalibration."""

    #: Accepts the result; must be `true`.
    accept: bool


class SetSubsystem(TypedDict):
    """A change of a subsystem; omitted members keep their value."""

    #: Hosts that may connect from now on.
    allow: NotRequired[list[str]]

    #: `true` to let all hosts connect.
    allow_all: NotRequired[bool]

    #: Namespaces to add, by name or number.
    attach: NotRequired[list[str]]

    #: `true` to refuse hosts without a key.
    authenticate: NotRequired[bool | None]

    #: Hosts that may not connect any more.
    deny: NotRequired[list[str]]

    #: Namespaces to remove, by name or number.
    detach: NotRequired[list[str]]

    #: The tenant that the subsystem's I/O is charged to; empty for the tenant of the connection.
    tenant: NotRequired[str | None]


class SetTenant(TypedDict):
    """A change of a tenant's SLO, its device, share and note."""

    #: The device of the SLO; unchanged by default.
    device: NotRequired[str | None]

    #: Free text about the tenant, at most 200 characters; unchanged by default. An empty text
    #: removes it.
    note: NotRequired[str | None]

    #: The share of a best-effort tenant; unchanged by default.
    share: NotRequired[Share | None]

    #: The new SLO; `null`: best effort.
    slo: Slo | None


class SetWorker(TypedDict):
    """A change of a worker's state."""

    #: For `parked`: time in milliseconds after which connections end that cannot move; none by
    #: default.
    deadline_ms: NotRequired[int | None]

    #: `active`, or `parked`. A parked worker is first `retiring`, until it has moved its
    #: connections away.
    state: WorkerState


class Share(TypedDict):
    """A best-effort tenant's share of the tokens that SLOs leave."""

    #: Maximum tokens per second, whatever others leave; `null` for no cap.
    cap_tokens: NotRequired[int | None]

    #: Weight relative to the other tenants, from 1 to 1000.
    weight: NotRequired[int]


class Shortage(TypedDict):
    """The figures of an SLO that does not fit."""

    #: The strictest latency in microseconds.
    latency_us: int

    #: The tenant with the strictest latency; `null` for the requested SLO.
    limited_by: NotRequired[str | None]

    #: Tokens per second that the other tenants leave.
    tokens_available: int

    #: Tokens per second that the device delivers at the strictest latency.
    tokens_device: int

    #: Tokens per second that the SLO needs.
    tokens_needed: int


class Slo(TypedDict):
    """A service level objective (SLO): the promise to a tenant."""

    #: Guaranteed requests per second.
    iops: int

    #: Bound of the tail latency of reads in microseconds; more than zero.
    latency_us: int

    #: Percentile that the bound applies to, in percent.
    percentile: NotRequired[float]

    #: Share of reads in percent.
    read_percent: NotRequired[int]

    #: Size of a typical request in bytes.
    request_bytes: NotRequired[int]


class StageTails(TypedDict):
    """The time per stage of the last second's sampled reads: p95 in microseconds, the upper edge
    of a bucket that is twice as wide as the one below it; `null` without samples.
    """

    #: At the device.
    device_us: NotRequired[float | None]

    #: From the socket to the time when the network has taken the reply.
    reply_us: NotRequired[float | None]

    #: From the last byte of a request to its submission.
    scheduler_us: NotRequired[float | None]


class Stages(TypedDict):
    """The time per stage of a tenant's requests since the tenant was added."""

    #: Sampled reads by their time at the device.
    device: list[int]

    #: Upper edges of the buckets in microseconds; one more bucket has no edge.
    edges_us: list[float]

    #: Reads by latency.
    latency: list[int]

    #: Sampled reads by the time that the network took for their replies.
    reply: list[int]

    #: Sampled reads by their time in the scheduler.
    scheduler: list[int]


#: The standing of a tenant: a comparison of its demand and latency with its SLO.
Standing = Literal[
    "late", "over", "kept", "best-effort", "idle", "leaving"
]


class StandingList(TypedDict):
    """The list of tenants with their standings."""

    #: Number of tenants whose name contains the search text.
    matched: int

    #: Number of tenants by standing, over all tenants.
    standings: Standings

    #: The first matching tenants in the requested order.
    tenants: list[TenantStanding]

    #: Number of all tenants.
    total: int


class Standings(TypedDict):
    """The number of tenants by standing."""

    #: Tenants without an SLO that were active.
    best_effort: int

    #: Tenants that were inactive.
    idle: int

    #: Tenants whose SLO was met.
    kept: int

    #: Tenants whose reads exceeded their latency bound.
    late: int

    #: Tenants that were removed.
    leaving: int

    #: Tenants that demanded more than their SLO, so that the latency bound did not hold.
    over: int


class StartRecalibration(TypedDict):
    """The parameters of a recalibration."""

    #: `true` to use the new model even if the tenants' SLOs do not fit into it.
    accept: NotRequired[bool]

    #: The scratch namespace, by name or number, that may be overwritten: all its data is lost.
    #: Without a scratch namespace, the device is only read, and the price of writes stays.
    scratch: NotRequired[str | None]

    #: The start condition.
    when: NotRequired[When]


#: The state of a tenant.
State = Literal[
    "active", "leaving"
]


#: The length of the windows of a history.
Step = Literal[
    "second", "minute"
]


class Strictest(TypedDict):
    """The latency bound that limits a device's rate."""

    #: The bound in microseconds.
    latency_us: int

    #: The tenant with this bound.
    tenant: str


class Subsystem(TypedDict):
    """An NVMe subsystem: namespaces under a qualified name."""

    #: The ANA states of namespace groups, except `optimized`.
    ana: list[Ana]

    #: `true` if hosts without a key are refused.
    authenticate: bool

    #: The controllers of connected hosts.
    controllers: list[Controller]

    #: The hosts that may connect; `null` for all.
    hosts: NotRequired[list[str] | None]

    #: The namespaces of the subsystem.
    namespaces: list[Contained]

    #: Qualified name of the subsystem.
    nqn: str

    #: The tenant that the subsystem's I/O is charged to; `null` for the tenant of the connection.
    tenant: NotRequired[str | None]


class Subsystems(TypedDict):
    """The list of subsystems."""

    #: The subsystems, in order of creation.
    subsystems: list[Subsystem]


#: A tenant.
Tenant = TypedDict(
    "Tenant",
    {
        #: Class of the tenant.
        "class": "Class",
        #: Number of its connections.
        "connections": "int",
        #: The device of the SLO.
        "device": "str",
        #: Number of requests admitted and not yet answered.
        "in_flight": "int",
        #: The measurements of the last second.
        "measured": "Measured",
        #: Name of the tenant.
        "name": "str",
        #: Free text about the tenant; left out if there is none.
        "note": "NotRequired[str | None]",
        #: Number of the tenant, as in workers' logs.
        "number": "int",
        #: Origin of the tenant.
        "origin": "Origin",
        #: The share of a best-effort tenant.
        "share": "Share",
        #: The SLO; `null` for best effort.
        "slo": "NotRequired[Slo | None]",
        #: State of the tenant.
        "state": "State",
        #: Tokens per second that the SLO needs; zero for best effort.
        "tokens_needed": "int",
    },
)


class TenantStanding(TypedDict):
    """A tenant with its standing."""

    #: The tenant's standing in the last second.
    standing: Standing

    #: Measured tail latency as a share of its bound; `null` without reads or SLO.
    tail_share: NotRequired[float | None]

    #: The tenant.
    tenant: Tenant


class Tenants(TypedDict):
    """The list of tenants."""

    #: The verdict on a machine whose workers wait for processors, as in `/v1/flows`.
    overcommitted: NotRequired[str | None]

    #: The tenants, ordered by number.
    tenants: list[Tenant]


class TokenRates(TypedDict):
    """The flow of tokens; in the admin API, in tokens per second."""

    #: Taken out of the bucket.
    borrowed: float

    #: Tokens that tenants with a surplus put into the bucket, also on behalf of idle tenants.
    donated: float

    #: Discarded when the bucket was emptied.
    expired: float

    #: Tokens generated.
    generated: float

    #: Spent on requests, and on the chores of the device.
    spent: float

    #: Taxed for the chores of the device.
    taxed: NotRequired[float]


class Verdict(TypedDict):
    """The answer to a [`Check`]."""

    #: `true` if the SLO would be admitted.
    admitted: bool

    #: The number of new tenants with this SLO that would be admitted one after another; `null` if
    #: the question is about a tenant that exists.
    fits: NotRequired[int | None]

    #: The reason for a refusal.
    refusal: NotRequired[Problem | None]

    #: Tokens per second that are kept back with this SLO, so that SLOs hold in windows: the device
    #: would deliver them if SLOs held on average only. Zero if promises hold on average.
    tokens_headroom: NotRequired[int]

    #: Tokens per second that would be left for best effort; on refusal, the available tokens.
    tokens_left: NotRequired[int | None]

    #: Tokens per second that the SLO needs, if known.
    tokens_needed: NotRequired[int | None]


class Violation(TypedDict):
    """A violation of a promise: seconds in which the reads of a tenant that kept to its rate
    exceeded their bound. Seconds with less than ten between them are one violation.
    """

    #: Time since the first late second, in seconds.
    age: float

    #: Name of the device of the promise.
    device: str

    #: Time from the first late second to the end of the last one, in seconds.
    duration: float

    #: `true` if the last late second is less than ten seconds ago.
    goes_on: bool

    #: Number of late seconds.
    late_seconds: int

    #: The promise that was broken.
    slo: Slo

    #: Number of late seconds in which workers waited for processors: the machine was
    #: overcommitted.
    starved_seconds: int

    #: Name of the tenant.
    tenant: str

    #: The highest latency of a second, at the percentile of the promise, in microseconds.
    worst_us: float


class Violations(TypedDict):
    """The latest violations of promises since the start of the server."""

    #: The violations, the latest first.
    violations: list[Violation]


class Ways(TypedDict):
    """Remedies for a refused SLO: each one on its own is sufficient."""

    #: Requests per second that would be admitted at the requested latency and mix.
    iops: NotRequired[int | None]

    #: The lowest latency in microseconds at which the requested rate would be admitted.
    latency_us: NotRequired[int | None]

    #: Tenants whose removal would free enough.
    leave: list[str]


#: The start condition of a recalibration.
When = Literal[
    "now", "idle"
]


class Worker(TypedDict):
    """A worker."""

    #: Connections that came from other workers.
    arrived: int

    #: Share of the last second in which the worker was busy, in percent.
    busy_percent: float

    #: Number of its connections.
    connections: int

    #: The processor that the worker is pinned to.
    cpu: NotRequired[int | None]

    #: Connections that have left for other workers.
    moved: int

    #: Number of the worker.
    number: int

    #: Longest time in microseconds during which a leaving connection was not received from.
    pause_us_max: int

    #: State of the worker.
    state: WorkerState

    #: Connections that were to leave and stayed.
    stayed: int

    #: Share of the last second for which the worker's thread was ready to run and did not, in
    #: percent.
    waited_percent: NotRequired[float]


#: The state of a worker.
WorkerState = Literal[
    "active", "retiring", "parked"
]


class Workers(TypedDict):
    """The list of workers."""

    #: The workers, ordered by number.
    workers: list[Worker]


class Admin(Http):
    """The admin API: a method for each operation."""

    def scrape(
        self,
        *,
        tenants: int | None = None,
    ) -> str:
        """Returns the metrics for Prometheus: text in the format of OpenMetrics
        (docs/reference/metrics.md).
        """
        return self._text(
            "GET", ("metrics",), None, {"tenants": tenants}
        )

    def list_connections(
        self,
        *,
        limit: int | None = None,
        search: str | None = None,
    ) -> Connections:
        """Lists the connections of all workers."""
        answer: Connections = self._json(
            "GET", ("v1", "connections"), None, {"limit": limit, "search": search}
        )
        return answer

    def end_connection(
        self,
        id: str,
        *,
        deadline_ms: int | None = None,
    ) -> Connection:
        """Ends a connection. The connection accepts no more requests, and ends when its requests
        in flight have ended, or at the deadline. Returns without waiting for the end. The client
        may connect again.
        """
        answer: Connection = self._json(
            "DELETE", ("v1", "connections", id), None, {"deadline_ms": deadline_ms}
        )
        return answer

    def get_connection(
        self,
        id: str,
    ) -> Connection:
        """Returns one connection."""
        answer: Connection = self._json(
            "GET", ("v1", "connections", id), None, {}
        )
        return answer

    def move_connection(
        self,
        id: str,
        body: MoveTo,
    ) -> HasMoved:
        """Moves a connection to another worker while it is in use. The client notices only a
        pause.
        """
        answer: HasMoved = self._json(
            "POST", ("v1", "connections", id, "move"), body, {}
        )
        return answer

    def list_devices(
        self,
    ) -> Devices:
        """Lists all devices, with their current rate and the tenant whose latency bound limits the
        rate.
        """
        answer: Devices = self._json(
            "GET", ("v1", "devices"), None, {}
        )
        return answer

    def add_device(
        self,
        body: AddDevice,
    ) -> OpenedDevice:
        """Opens a device. The device persists after a restart of the server, and can have
        namespaces.
        """
        answer: OpenedDevice = self._json(
            "POST", ("v1", "devices"), body, {}
        )
        return answer

    def remove_device(
        self,
        name: str,
    ) -> None:
        """Closes a device that has no namespace and no tenant, and that is not being measured."""
        self._nothing(
            "DELETE", ("v1", "devices", name), None, {}
        )

    def get_device(
        self,
        name: str,
    ) -> Device:
        """Returns one device."""
        answer: Device = self._json(
            "GET", ("v1", "devices", name), None, {}
        )
        return answer

    def patch_device(
        self,
        name: str,
        body: SetDevice,
    ) -> DeviceSettings:
        """Changes the settings of a device while it is in use."""
        answer: DeviceSettings = self._json(
            "PATCH", ("v1", "devices", name), body, {}
        )
        return answer

    def set_device(
        self,
        name: str,
        body: SetDevice,
    ) -> DeviceSettings:
        """Changes the settings of a device while it is in use."""
        answer: DeviceSettings = self._json(
            "PUT", ("v1", "devices", name), body, {}
        )
        return answer

    def reset_model(
        self,
        name: str,
    ) -> None:
        """Restores the model that the configuration names."""
        self._nothing(
            "DELETE", ("v1", "devices", name, "model"), None, {}
        )

    def get_model(
        self,
        name: str,
    ) -> Model:
        """Returns the model of a device."""
        answer: Model = self._json(
            "GET", ("v1", "devices", name, "model"), None, {}
        )
        return answer

    def cancel_recalibration(
        self,
        name: str,
    ) -> None:
        """Ends a recalibration, or discards a model that is not in use."""
        self._nothing(
            "DELETE", ("v1", "devices", name, "recalibration"), None, {}
        )

    def get_recalibration(
        self,
        name: str,
    ) -> Recalibration:
        """Returns the last recalibration of a device."""
        answer: Recalibration = self._json(
            "GET", ("v1", "devices", name, "recalibration"), None, {}
        )
        return answer

    def start_recalibration(
        self,
        name: str,
        body: StartRecalibration,
    ) -> Recalibration:
        """Starts a recalibration of a device beside its tenants. Its probes spend only spare
        tokens.
        """
        answer: Recalibration = self._json(
            "POST", ("v1", "devices", name, "recalibration"), body, {}
        )
        return answer

    def accept_recalibration(
        self,
        name: str,
        body: SetRecalibration,
    ) -> Recalibration:
        """Accepts a model that was held back, since not all tenants fit into it. Each tenant gets
        its part of the device's rate.
        """
        answer: Recalibration = self._json(
            "PUT", ("v1", "devices", name, "recalibration"), body, {}
        )
        return answer

    def get_drain(
        self,
    ) -> Drain:
        """Returns the state of the server's drain."""
        answer: Drain = self._json(
            "GET", ("v1", "drain"), None, {}
        )
        return answer

    def drain_server(
        self,
        body: DrainServer,
    ) -> Drain:
        """Drains the server. The server refuses new connections and requests, and ends when its
        requests in flight have ended, or at the deadline. Returns without waiting for the end. A
        drain cannot be cancelled. Another request changes the deadline.
        """
        answer: Drain = self._json(
            "POST", ("v1", "drain"), body, {}
        )
        return answer

    def get_flows(
        self,
    ) -> Flows:
        """Returns the server's activity in the last second."""
        answer: Flows = self._json(
            "GET", ("v1", "flows"), None, {}
        )
        return answer

    def get_history(
        self,
        *,
        after: int | None = None,
        step: Step | None = None,
    ) -> History:
        """Returns the figures of the last five minutes, second by second, or of the last day,
        minute by minute.
        """
        answer: History = self._json(
            "GET", ("v1", "history"), None, {"after": after, "step": step}
        )
        return answer

    def list_hosts(
        self,
    ) -> Hosts:
        """Lists all registered hosts, without their keys."""
        answer: Hosts = self._json(
            "GET", ("v1", "hosts"), None, {}
        )
        return answer

    def remove_host(
        self,
        name: str,
    ) -> None:
        """Removes the registration of a host."""
        self._nothing(
            "DELETE", ("v1", "hosts", name), None, {}
        )

    def get_host(
        self,
        name: str,
    ) -> Host:
        """Returns a registered host, without its keys."""
        answer: Host = self._json(
            "GET", ("v1", "hosts", name), None, {}
        )
        return answer

    def patch_host(
        self,
        name: str,
        body: SetHost,
    ) -> Host:
        """Registers a host, or changes its tenant and its keys."""
        answer: Host = self._json(
            "PATCH", ("v1", "hosts", name), body, {}
        )
        return answer

    def set_host(
        self,
        name: str,
        body: SetHost,
    ) -> Host:
        """Registers a host, or changes its tenant and its keys."""
        answer: Host = self._json(
            "PUT", ("v1", "hosts", name), body, {}
        )
        return answer

    def list_listeners(
        self,
    ) -> Listeners:
        """Lists all listeners."""
        answer: Listeners = self._json(
            "GET", ("v1", "listeners"), None, {}
        )
        return answer

    def add_listener(
        self,
        body: AddListener,
    ) -> Listener:
        """Opens a listener, which persists after a restart of the server."""
        answer: Listener = self._json(
            "POST", ("v1", "listeners"), body, {}
        )
        return answer

    def remove_listener(
        self,
        name: str,
        *,
        drain_ms: int | None = None,
    ) -> RemovedListener:
        """Closes a listener. Its connections stay, unless a drain is requested."""
        answer: RemovedListener = self._json(
            "DELETE", ("v1", "listeners", name), None, {"drain_ms": drain_ms}
        )
        return answer

    def get_listener(
        self,
        name: str,
    ) -> Listener:
        """Returns one listener."""
        answer: Listener = self._json(
            "GET", ("v1", "listeners", name), None, {}
        )
        return answer

    def patch_listener(
        self,
        name: str,
        body: SetListener,
    ) -> Listener:
        """Opens or drains a listener."""
        answer: Listener = self._json(
            "PATCH", ("v1", "listeners", name), body, {}
        )
        return answer

    def set_listener(
        self,
        name: str,
        body: SetListener,
    ) -> Listener:
        """Opens or drains a listener."""
        answer: Listener = self._json(
            "PUT", ("v1", "listeners", name), body, {}
        )
        return answer

    def set_ana(
        self,
        name: str,
        body: SetAna,
    ) -> Listener:
        """Sets the ANA state of namespaces through a listener. Connected hosts are notified."""
        answer: Listener = self._json(
            "PUT", ("v1", "listeners", name, "ana"), body, {}
        )
        return answer

    def drain_listener(
        self,
        name: str,
        body: DrainListener,
    ) -> Listener:
        """Drains a listener: it refuses new connections, and its connections end. The drain lasts
        until the listener is resumed or the server restarts.
        """
        answer: Listener = self._json(
            "POST", ("v1", "listeners", name, "drain"), body, {}
        )
        return answer

    def resume_listener(
        self,
        name: str,
    ) -> Listener:
        """Resumes a listener, which accepts connections again."""
        answer: Listener = self._json(
            "POST", ("v1", "listeners", name, "resume"), None, {}
        )
        return answer

    def list_namespaces(
        self,
    ) -> Namespaces:
        """Lists all namespaces."""
        answer: Namespaces = self._json(
            "GET", ("v1", "namespaces"), None, {}
        )
        return answer

    def add_namespace(
        self,
        body: AddNamespace,
    ) -> Namespace:
        """Adds a namespace, which reads as zeroes. Connected hosts are notified."""
        answer: Namespace = self._json(
            "POST", ("v1", "namespaces"), body, {}
        )
        return answer

    def remove_namespace(
        self,
        name: str,
        *,
        discard: bool | None = None,
        force: bool | None = None,
    ) -> None:
        """Removes a namespace. Connected hosts are notified."""
        self._nothing(
            "DELETE", ("v1", "namespaces", name), None, {"discard": discard, "force": force}
        )

    def get_namespace(
        self,
        name: str,
    ) -> Namespace:
        """Returns one namespace."""
        answer: Namespace = self._json(
            "GET", ("v1", "namespaces", name), None, {}
        )
        return answer

    def patch_namespace(
        self,
        name: str,
        body: SetNamespace,
    ) -> Namespace:
        """Changes the size, the name or the write protection of a namespace. Connected hosts are
        notified. After the answer to a write protection, no write to the namespace is at a device.
        """
        answer: Namespace = self._json(
            "PATCH", ("v1", "namespaces", name), body, {}
        )
        return answer

    def set_namespace(
        self,
        name: str,
        body: SetNamespace,
    ) -> Namespace:
        """Changes the size, the name or the write protection of a namespace. Connected hosts are
        notified. After the answer to a write protection, no write to the namespace is at a device.
        """
        answer: Namespace = self._json(
            "PUT", ("v1", "namespaces", name), body, {}
        )
        return answer

    def get_standing(
        self,
        *,
        limit: int | None = None,
        order: Order | None = None,
        search: str | None = None,
    ) -> StandingList:
        """Lists the first tenants of an order, with their standings."""
        answer: StandingList = self._json(
            "GET", ("v1", "standing"), None, {"limit": limit, "order": order, "search": search}
        )
        return answer

    def export_state(
        self,
    ) -> ServerState:
        """Returns the state of the server as one document, without keys and tokens."""
        answer: ServerState = self._json(
            "GET", ("v1", "state"), None, {}
        )
        return answer

    def import_state(
        self,
        body: ImportState,
    ) -> Imported:
        """Brings the server to the state of a document, as far as possible, or returns what would
        change.
        """
        answer: Imported = self._json(
            "PUT", ("v1", "state"), body, {}
        )
        return answer

    def list_subsystems(
        self,
    ) -> Subsystems:
        """Lists all subsystems, with their connected hosts."""
        answer: Subsystems = self._json(
            "GET", ("v1", "subsystems"), None, {}
        )
        return answer

    def add_subsystem(
        self,
        body: AddSubsystem,
    ) -> Subsystem:
        """Adds a subsystem. Discovery controllers are notified."""
        answer: Subsystem = self._json(
            "POST", ("v1", "subsystems"), body, {}
        )
        return answer

    def remove_subsystem(
        self,
        name: str,
    ) -> None:
        """Removes a subsystem; the connections of its hosts end."""
        self._nothing(
            "DELETE", ("v1", "subsystems", name), None, {}
        )

    def get_subsystem(
        self,
        name: str,
    ) -> Subsystem:
        """Returns one subsystem."""
        answer: Subsystem = self._json(
            "GET", ("v1", "subsystems", name), None, {}
        )
        return answer

    def patch_subsystem(
        self,
        name: str,
        body: SetSubsystem,
    ) -> Subsystem:
        """Changes a subsystem: the hosts that may connect, its namespaces, the tenant that is
        charged.
        """
        answer: Subsystem = self._json(
            "PATCH", ("v1", "subsystems", name), body, {}
        )
        return answer

    def set_subsystem(
        self,
        name: str,
        body: SetSubsystem,
    ) -> Subsystem:
        """Changes a subsystem: the hosts that may connect, its namespaces, the tenant that is
        charged.
        """
        answer: Subsystem = self._json(
            "PUT", ("v1", "subsystems", name), body, {}
        )
        return answer

    def list_tenants(
        self,
    ) -> Tenants:
        """Lists all tenants, with their measurements of the last second."""
        answer: Tenants = self._json(
            "GET", ("v1", "tenants"), None, {}
        )
        return answer

    def change_tenants(
        self,
        body: ChangeTenants,
    ) -> ChangedTenants:
        """Adds, changes and removes tenants: all changes, or none."""
        answer: ChangedTenants = self._json(
            "PATCH", ("v1", "tenants"), body, {}
        )
        return answer

    def add_tenant(
        self,
        body: AddTenant,
    ) -> Admitted:
        """Adds a tenant."""
        answer: Admitted = self._json(
            "POST", ("v1", "tenants"), body, {}
        )
        return answer

    def check_tenant(
        self,
        body: Check,
    ) -> Verdict:
        """Checks whether an SLO would be admitted, and reports remedies if not. Changes nothing.
        """
        answer: Verdict = self._json(
            "POST", ("v1", "tenants", "check"), body, {}
        )
        return answer

    def remove_tenant(
        self,
        name: str,
    ) -> None:
        """Removes a tenant. Its rate is free at once; its requests in flight are still answered.
        """
        self._nothing(
            "DELETE", ("v1", "tenants", name), None, {}
        )

    def get_tenant(
        self,
        name: str,
    ) -> Tenant:
        """Returns one tenant."""
        answer: Tenant = self._json(
            "GET", ("v1", "tenants", name), None, {}
        )
        return answer

    def set_tenant(
        self,
        name: str,
        body: SetTenant,
    ) -> Admitted:
        """Changes the SLO of a tenant. If the new SLO is refused, the old one stands."""
        answer: Admitted = self._json(
            "PUT", ("v1", "tenants", name), body, {}
        )
        return answer

    def get_stages(
        self,
        name: str,
    ) -> Stages:
        """Returns the time per stage of a tenant's reads since the tenant was added."""
        answer: Stages = self._json(
            "GET", ("v1", "tenants", name, "stages"), None, {}
        )
        return answer

    def get_trace(
        self,
        *,
        one_in: int | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Traces some requests, and returns them in the trace-event format of Chrome."""
        return self._bytes(
            "GET", ("v1", "trace"), None, {"one_in": one_in, "seconds": seconds}
        )

    def get_violations(
        self,
    ) -> Violations:
        """Returns the latest violations of promises, at most 500, the latest first."""
        answer: Violations = self._json(
            "GET", ("v1", "violations"), None, {}
        )
        return answer

    def list_workers(
        self,
    ) -> Workers:
        """Lists all workers."""
        answer: Workers = self._json(
            "GET", ("v1", "workers"), None, {}
        )
        return answer

    def get_worker(
        self,
        number: int,
    ) -> Worker:
        """Returns one worker."""
        answer: Worker = self._json(
            "GET", ("v1", "workers", number), None, {}
        )
        return answer

    def set_worker(
        self,
        number: int,
        body: SetWorker,
    ) -> None:
        """Activates a worker, or retires it. The sizing does not change the number of workers for
        a minute.
        """
        self._nothing(
            "PUT", ("v1", "workers", number), body, {}
        )
