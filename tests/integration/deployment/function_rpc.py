"""The messages between the Functions host and a language worker, for whichever protobuf the process has.

They are described here rather than generated: generated code asks for a protobuf of its own time, and a test
has the worker's on one side and the app's on the other. Only what the host and `azure_functions_runtime`
exchange is listed.
Source: FunctionRpc.proto of `Azure/azure-functions-language-worker-protobuf`.
"""

from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

PACKAGE: Final = "AzureFunctionsRpcMessages"
EVENT_STREAM: Final = f"/{PACKAGE}.FunctionRpc/EventStream"

# Name -> "number type". `*` repeats, `|` puts it into the oneof of that name, and a `map` leads from text to
# a message, or to text when it names none.
_MESSAGES: Final[dict[str, dict[str, str]]] = {
    "StreamingMessage": {
        "request_id": "1 string",
        "start_stream": "20|content StartStream",
        "worker_init_request": "17|content WorkerInitRequest",
        "worker_init_response": "16|content WorkerInitResponse",
        "function_load_request": "8|content FunctionLoadRequest",
        "function_load_response": "9|content FunctionLoadResponse",
        "invocation_request": "4|content InvocationRequest",
        "invocation_response": "5|content InvocationResponse",
        "functions_metadata_request": "29|content FunctionsMetadataRequest",
        "function_metadata_response": "30|content FunctionMetadataResponse",
    },
    "StartStream": {"worker_id": "2 string"},
    "WorkerInitRequest": {
        "host_version": "1 string",
        "capabilities": "2 map",
        "worker_directory": "4 string",
        "function_app_directory": "5 string",
    },
    "WorkerInitResponse": {
        "worker_version": "1 string",
        "capabilities": "2 map",
        "result": "3 StatusResult",
        "worker_metadata": "4 WorkerMetadata",
    },
    "WorkerMetadata": {
        "runtime_name": "1 string",
        "runtime_version": "2 string",
        "worker_version": "3 string",
        "worker_bitness": "4 string",
        "custom_properties": "5 map",
    },
    "StatusResult": {"status": "4 StatusResult.Status", "result": "1 string", "exception": "2 RpcException"},
    "RpcException": {
        "source": "3 string",
        "stack_trace": "1 string",
        "message": "2 string",
        "is_user_exception": "4 bool",
        "type": "5 string",
    },
    "FunctionsMetadataRequest": {"function_app_directory": "1 string"},
    "FunctionMetadataResponse": {
        "function_metadata_results": "1* RpcFunctionMetadata",
        "result": "2 StatusResult",
        "use_default_metadata_indexing": "3 bool",
    },
    "RpcFunctionMetadata": {
        "name": "4 string",
        "directory": "1 string",
        "script_file": "2 string",
        "entry_point": "3 string",
        "bindings": "6 map BindingInfo",
        "is_proxy": "7 bool",
        "status": "8 StatusResult",
        "language": "9 string",
        "raw_bindings": "10* string",
        "function_id": "13 string",
        "managed_dependency_enabled": "14 bool",
        "retry_options": "15 RpcRetryOptions",
        "properties": "16 map",
    },
    "RpcRetryOptions": {
        "max_retry_count": "2 int32",
        "delay_interval": "3 google.protobuf.Duration",
        "minimum_interval": "4 google.protobuf.Duration",
        "maximum_interval": "5 google.protobuf.Duration",
        "retry_strategy": "6 RpcRetryOptions.RetryStrategy",
    },
    "BindingInfo": {
        "type": "2 string",
        "direction": "3 BindingInfo.Direction",
        "data_type": "4 BindingInfo.DataType",
        "properties": "5 map",
    },
    "FunctionLoadRequest": {"function_id": "1 string", "metadata": "2 RpcFunctionMetadata"},
    "FunctionLoadResponse": {"function_id": "1 string", "result": "2 StatusResult"},
    "InvocationRequest": {
        "invocation_id": "1 string",
        "function_id": "2 string",
        "input_data": "3* ParameterBinding",
        "trigger_metadata": "4 map TypedData",
        "trace_context": "5 RpcTraceContext",
        "retry_context": "6 RetryContext",
    },
    "RpcTraceContext": {"trace_parent": "1 string", "trace_state": "2 string", "attributes": "3 map"},
    "RetryContext": {"retry_count": "1 int32", "max_retry_count": "2 int32", "exception": "3 RpcException"},
    "InvocationResponse": {
        "invocation_id": "1 string",
        "output_data": "2* ParameterBinding",
        "return_value": "4 TypedData",
        "result": "3 StatusResult",
    },
    "ParameterBinding": {"name": "1 string", "data": "2|rpc_data TypedData"},
    "TypedData": {
        "string": "1|data string",
        "json": "2|data string",
        "bytes": "3|data bytes",
        "http": "5|data RpcHttp",
        "int": "6|data sint64",
        "double": "7|data double",
        "collection_string": "9|data CollectionString",
    },
    "CollectionString": {"string": "1* string"},
    "RpcHttp": {
        "method": "1 string",
        "url": "2 string",
        "headers": "3 map",
        "body": "4 TypedData",
        "params": "10 map",
        "status_code": "12 string",
        "query": "15 map",
        "enable_content_negotiation": "16 bool",
        "cookies": "19* RpcHttpCookie",
    },
    "RpcHttpCookie": {"name": "1 string", "value": "2 string"},
}
_ENUMS: Final[dict[str, tuple[str, ...]]] = {
    "StatusResult.Status": ("Failure", "Success", "Cancelled"),
    "RpcRetryOptions.RetryStrategy": ("exponential_backoff", "fixed_delay"),
    "BindingInfo.Direction": ("in", "out", "inout"),
    "BindingInfo.DataType": ("undefined", "string", "binary", "stream"),
}


def make_messages() -> Any:
    """Return a namespace with a class per message, as the worker's `protos` module has."""
    pool = descriptor_pool.DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    found = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in _MESSAGES}
    return SimpleNamespace(**{name: message_factory.GetMessageClass(each) for name, each in found.items()})


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="function_rpc.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append("google/protobuf/duration.proto")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, form in fields.items():
            _add_field(message, field, form)
        for enum in (each for each in _ENUMS if each.startswith(f"{name}.")):
            described = message.enum_type.add(name=enum.partition(".")[2])
            for number, value in enumerate(_ENUMS[enum]):
                described.value.add(name=value, number=number)
    return file


def _add_field(message: Any, name: str, form: str) -> None:
    number, _, kind = form.partition(" ")
    number, _, oneof = number.partition("|")
    field = message.field.add(name=name, number=int(number.rstrip("*")))
    field.label = (
        field.LABEL_REPEATED if number.endswith("*") or kind.startswith("map") else field.LABEL_OPTIONAL
    )
    if oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = 0
    if kind.startswith("map"):
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", "1 string")
        _add_field(entry, "value", f"2 {kind.partition(' ')[2] or 'string'}")
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{entry.name}"
    elif kind in _ENUMS:
        field.type, field.type_name = field.TYPE_ENUM, f".{PACKAGE}.{kind}"
    elif "." in kind or kind in _MESSAGES:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{kind}" if "." in kind else f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
