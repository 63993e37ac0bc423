"""A receiver of OTLP, by HTTP and by gRPC, that reads with the official classes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from tests.influxes import Reply, Request, Scripted

Attributes = dict[str, Any]


class Point(NamedTuple):
    """A reading, as a receiver has it."""

    node: str
    name: str
    unit: str
    shape: str
    """`gauge`, `counter` or `up-down counter`."""
    attributes: Attributes
    value: float
    start: int
    at: int


class Record(NamedTuple):
    """An event, as a receiver has it."""

    node: str
    name: str
    severity: int
    text: str
    attributes: Attributes
    at: int


def _pairs(listed: Any) -> Attributes:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in listed}


def points(body: bytes) -> list[Point]:
    """Read a request of metrics; no field of it may be unknown."""
    request = ExportMetricsServiceRequest.FromString(body)
    assert not _unknown(request)
    found = []
    for resource in request.resource_metrics:
        node = _pairs(resource.resource.attributes)["host.name"]
        for scope in resource.scope_metrics:
            for one in scope.metrics:
                kind = one.WhichOneof("data")
                data = getattr(one, kind)
                shape = "gauge"
                if kind == "sum":
                    assert data.aggregation_temporality == 2, "cumulative"
                    shape = "counter" if data.is_monotonic else "up-down counter"
                found += [
                    Point(
                        node,
                        one.name,
                        one.unit,
                        shape,
                        _pairs(point.attributes),
                        getattr(point, point.WhichOneof("value")),
                        point.start_time_unix_nano,
                        point.time_unix_nano,
                    )
                    for point in data.data_points
                ]
    return found


def records(body: bytes) -> list[Record]:
    """Read a request of logs; no field of it may be unknown."""
    request = ExportLogsServiceRequest.FromString(body)
    assert not _unknown(request)
    return [
        Record(
            _pairs(resource.resource.attributes)["host.name"],
            one.event_name,
            one.severity_number,
            one.body.string_value,
            _pairs(one.attributes),
            one.time_unix_nano,
        )
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for one in scope.log_records
    ]


def _unknown(message: Any) -> bool:
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != before)


class Otlp:
    """A receiver, and what it has received. `refuses`: points to refuse of each request, by partial success."""

    def __init__(self) -> None:
        self.url = ""
        self.points: list[Point] = []
        self.records: list[Record] = []
        self.tokens: set[str | None] = set()
        self.status = 200
        """Of HTTP; by gRPC 503 is UNAVAILABLE, 400 is INVALID_ARGUMENT."""
        self.refuses = 0

    def partly(self, answer: Any) -> Any:
        """Return an answer that tells what was refused."""
        if self.refuses:
            answer.partial_success.error_message = "no room"
            field = (
                "rejected_data_points"
                if hasattr(answer.partial_success, "rejected_data_points")
                else "rejected_log_records"
            )
            setattr(answer.partial_success, field, self.refuses)
        return answer


@contextmanager
def by_http() -> Iterator[Otlp]:
    """Receive by HTTP."""
    receiver = Otlp()

    def answer(request: Request) -> Reply:
        if receiver.status != 200:
            return Reply(receiver.status, "as you like")
        assert request.headers["content-type"] == "application/x-protobuf"
        body = gzip.decompress(request.body)
        receiver.tokens.add(request.headers.get("authorization"))
        if request.path == "/v1/metrics":
            receiver.points += points(body)
            return Reply(200, receiver.partly(ExportMetricsServiceResponse()).SerializeToString().decode())
        assert request.path == "/v1/logs"
        receiver.records += records(body)
        return Reply(200, receiver.partly(ExportLogsServiceResponse()).SerializeToString().decode())

    server = Scripted(answer)
    receiver.url = server.url
    try:
        yield receiver
    finally:
        server.close()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Otlp) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        _refuse(self._receiver, context)
        self._receiver.points += points(request.SerializeToString())
        return self._receiver.partly(ExportMetricsServiceResponse())


class _Logs(logs_service_pb2_grpc.LogsServiceServicer):
    def __init__(self, receiver: Otlp) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        _refuse(self._receiver, context)
        self._receiver.records += records(request.SerializeToString())
        return self._receiver.partly(ExportLogsServiceResponse())


def _refuse(receiver: Otlp, context: Any) -> None:
    code = {503: grpc.StatusCode.UNAVAILABLE, 400: grpc.StatusCode.INVALID_ARGUMENT}.get(receiver.status)
    if code is not None:
        context.abort(code, "as you like")
    receiver.tokens.add(dict(context.invocation_metadata()).get("authorization"))


@contextmanager
def by_grpc() -> Iterator[Otlp]:
    """Receive by gRPC, with the limits of the usual server."""
    receiver = Otlp()
    server = grpc.server(ThreadPoolExecutor(2))
    metrics_rpc: Any = metrics_service_pb2_grpc
    logs_rpc: Any = logs_service_pb2_grpc
    metrics_rpc.add_MetricsServiceServicer_to_server(_Metrics(receiver), server)
    logs_rpc.add_LogsServiceServicer_to_server(_Logs(receiver), server)
    receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
