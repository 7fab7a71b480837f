"""What an exception of a client library means when no answer with a status says more, by its qualified name.

An exception has the names of its class and of the bases of that, the most special first, and before them
those with a code that it carries: ClientError.SlowDown (see `base.foreign.names_of`).
No library is imported. Each table names its source; a base class that is `transient` makes its library known.

A code says more than the status beside it: AWS throttles with 400, and ABORTED of gRPC, which asks for
another try, is a 409.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from durable_retry.base.names import Category
from durable_retry.rules.retry.classify import UNAUTHORIZED, Classification
from durable_retry.rules.retry.rules import NO_RULES, Rules, ruled_name

_TRANSIENT: Final = Classification(Category.TRANSIENT)
_THROTTLED: Final = Classification(Category.THROTTLED)
_MALFORMED: Final = Classification(Category.MALFORMED)
_BUSINESS_RULE: Final = Classification(Category.BUSINESS_RULE)
_NOT_FOUND: Final = Classification(Category.NOT_FOUND)
_FORBIDDEN: Final = Classification(Category.UNAUTHORIZED)
"""A missing right, as 403; `UNAUTHORIZED` is a refused credential, as 401."""


def _named(prefix: str, kinds: Mapping[Classification, str]) -> Iterator[tuple[str, Classification]]:
    return ((f"{prefix}.{name}", kind) for kind, names in kinds.items() for name in names.split())


GRPC_STATUS: Final[Mapping[str, int]] = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""The HTTP status of each code of gRPC: github.com/googleapis/googleapis, google/rpc/code.proto."""

_GRPC: Final = {_TRANSIENT: "ABORTED CANCELLED"}

_BY_CODE: Final[Mapping[str, Classification]] = dict(
    (
        # grpc.github.io/grpc/core/md_doc_statuscodes.html: ABORTED is retried at a higher level.
        *_named("grpc.RpcError", _GRPC),
        *_named("google.api_core.exceptions.GoogleAPICallError", _GRPC),
        # docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html, botocore/retries/standard.py,
        # docs.aws.amazon.com/AWSEC2/latest/APIReference/CommonErrors.html, and DynamoDB's Programming.Errors
        *_named(
            "botocore.exceptions.ClientError",
            {
                _THROTTLED: "BandwidthLimitExceeded EC2ThrottledException LimitExceededException"
                " ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled"
                " RequestThrottledException SlowDown ThrottledException Throttling ThrottlingException"
                " TooManyRequestsException",
                _TRANSIENT: "PriorRequestNotComplete RequestTimeout RequestTimeoutException"
                " TransactionConflictException TransactionInProgressException",
                _BUSINESS_RULE: "ConditionalCheckFailedException",
                _NOT_FOUND: "ResourceNotFoundException",
                _FORBIDDEN: "AccessDenied AccessDeniedException UnauthorizedOperation",
                UNAUTHORIZED: "AuthFailure ExpiredToken ExpiredTokenException IncompleteSignature"
                " InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException"
                " MissingAuthenticationToken MissingAuthenticationTokenException SignatureDoesNotMatch"
                " UnrecognizedClientException",
            },
        ),
        # learn.microsoft.com/azure/cosmos-db/nosql/conceptual-resilient-sdk-applications
        *_named("azure.cosmos.exceptions.CosmosHttpResponseError", {_TRANSIENT: "410 449"}),
        # learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes, and those of each service:
        # 409 while a container is deleted, which takes half a minute.
        *_named(
            "azure.core.exceptions.HttpResponseError",
            {
                _TRANSIENT: "AccountBeingCreated ContainerBeingDeleted QueueBeingDeleted ShareBeingDeleted"
                " TableBeingDeleted"
            },
        ),
    )
)
"""The code decides before the status of an answer."""

_BY_CLASS: Final[Mapping[str, Classification]] = dict(
    (
        # our own words
        *_named(
            "durable_retry",
            {_TRANSIENT: "Transient", _THROTTLED: "Throttled", _BUSINESS_RULE: "Rejected"},
        ),
        # docs.python.org/3/library/exceptions.html: OSError has the lost connections and TimeoutError.
        *_named("builtins", {_TRANSIENT: "GeneratorExit KeyboardInterrupt OSError SystemExit"}),
        *_named("asyncio.exceptions", {_TRANSIENT: "CancelledError"}),
        *_named("httpx", {_TRANSIENT: "HTTPError StreamError"}),
        # github.com/pydantic/httpx2: the classes of httpx
        *_named(
            "httpx2",
            {
                _TRANSIENT: "HTTPError StreamError",
                _MALFORMED: "InvalidURL LocalProtocolError TooManyRedirects UnsupportedProtocol",
            },
        ),
        # docs.aiohttp.org/en/stable/client_reference.html#client-exceptions
        *_named(
            "aiohttp",
            {_TRANSIENT: "ClientError", _MALFORMED: "InvalidURL NonHttpUrlClientError TooManyRedirects"},
        ),
        # requests.readthedocs.io/en/latest/api/#exceptions
        *_named(
            "requests",
            {
                _TRANSIENT: "RequestException",
                _MALFORMED: "InvalidHeader InvalidSchema InvalidURL MissingSchema TooManyRedirects",
            },
        ),
        *_named("urllib3", {_TRANSIENT: "HTTPError"}),
        # github.com/openai/openai-python, "Handling errors": what a stream breaks off with has no status
        *_named(
            "openai",
            {
                _TRANSIENT: "OpenAIError",
                _THROTTLED: "APIError.rate_limit_exceeded",
                _MALFORMED: "LengthFinishReasonError",
                _BUSINESS_RULE: "ContentFilterFinishReasonError",
            },
        ),
        # platform.claude.com/docs/en/api/errors
        *_named("anthropic", {_TRANSIENT: "AnthropicError", UNAUTHORIZED: "CredentialsError"}),
        # docs.stripe.com/error-handling
        *_named("stripe", {_TRANSIENT: "StripeError"}),
        # grpc.github.io/grpc/python/grpc.html, googleapis.dev/python/google-api-core/latest/exceptions.html
        *_named("grpc", {_TRANSIENT: "RpcError"}),
        *_named("google.api_core.exceptions", {_TRANSIENT: "GoogleAPIError"}),
        # googleapis.dev/python/google-auth/latest/reference/google.auth.exceptions.html
        *_named(
            "google.auth.exceptions",
            {_TRANSIENT: "GoogleAuthError", UNAUTHORIZED: "DefaultCredentialsError RefreshError"},
        ),
        # docs.aws.amazon.com/boto3/latest/guide/error-handling.html, and botocore/exceptions.py
        *_named(
            "botocore.exceptions",
            {
                _TRANSIENT: "BotoCoreError ClientError",
                _MALFORMED: "ParamValidationError ValidationError",
                UNAUTHORIZED: "CredentialRetrievalError NoAuthTokenError NoCredentialsError"
                " PartialCredentialsError SSOError TokenRetrievalError",
            },
        ),
        # learn.microsoft.com/python/api/azure-core/azure.core.exceptions
        *_named(
            "azure.core.exceptions", {_TRANSIENT: "AzureError", UNAUTHORIZED: "ClientAuthenticationError"}
        ),
        # learn.microsoft.com/azure/service-bus-messaging/service-bus-messaging-exceptions-latest: a full or
        # disabled entity may be had again; a lock that is lost stays lost, and the message comes anew
        *_named(
            "azure.servicebus.exceptions",
            {
                _THROTTLED: "ServiceBusServerBusyError",
                _MALFORMED: "MessageSizeExceededError",
                _BUSINESS_RULE: "MessageAlreadySettled MessageLockLostError MessagingEntityAlreadyExistsError"
                " SessionLockLostError",
                _NOT_FOUND: "MessageNotFoundError MessagingEntityNotFoundError",
                _FORBIDDEN: "ServiceBusAuthorizationError",
                UNAUTHORIZED: "ServiceBusAuthenticationError",
            },
        ),
        # learn.microsoft.com/azure/event-hubs/exceptions-dotnet, azure/eventhub/exceptions.py: `error` is the
        # condition of AMQP
        *_named(
            "azure.eventhub.exceptions",
            {
                _TRANSIENT: "EventHubError",
                _THROTTLED: "EventHubError.server-busy",
                _MALFORMED: "EventDataError EventHubError.link:message-size-exceeded",
                _BUSINESS_RULE: "OwnershipLostError",
                _NOT_FOUND: "EventHubError.not-found",
                _FORBIDDEN: "EventHubError.unauthorized-access",
                UNAUTHORIZED: "AuthenticationError",
            },
        ),
        # pymongo.readthedocs.io/en/stable/api/pymongo/errors.html; codes and labels:
        # www.mongodb.com/docs/manual/reference/error-codes
        *_named(
            "pymongo.errors",
            {
                _TRANSIENT: "PyMongoError PyMongoError.RetryableWriteError"
                " PyMongoError.TransientTransactionError",
                _THROTTLED: "PyMongoError.SystemOverloadedError",
                _MALFORMED: "ConfigurationError InvalidName InvalidOperation"
                " OperationFailure.2 OperationFailure.9 OperationFailure.14 OperationFailure.59",
                _BUSINESS_RULE: "DuplicateKeyError OperationFailure.121",
                _NOT_FOUND: "OperationFailure.26",
                _FORBIDDEN: "OperationFailure.13",
                UNAUTHORIZED: "OperationFailure.18 OperationFailure.391",
            },
        ),
        *_named("bson.errors", {_MALFORMED: "BSONError"}),
        # redis.readthedocs.io/en/stable/exceptions.html; its replies begin with a code:
        # redis.io/docs/latest/develop/reference/protocol-spec#simple-errors
        *_named(
            "redis.exceptions",
            {
                _TRANSIENT: "RedisError RedisClusterException AskError BusyLoadingError ClusterDownError"
                " OutOfMemoryError ReadOnlyError TryAgainError"
                " ResponseError.BUSY ResponseError.MISCONF ResponseError.NOREPLICAS",
                _MALFORMED: "CrossSlotTransactionError DataError ResponseError",
                _BUSINESS_RULE: "LockNotOwnedError",
                _FORBIDDEN: "AuthorizationError NoPermissionError",
                UNAUTHORIZED: "AuthenticationError AuthenticationWrongNumberOfArgsError",
            },
        ),
        # www.psycopg.org/psycopg3/docs/api/errors.html, and PEP 249
        *_named(
            "psycopg",
            {
                _TRANSIENT: "Error",
                _MALFORMED: "DataError NotSupportedError ProgrammingError",
                _BUSINESS_RULE: "IntegrityError",
                _FORBIDDEN: "InsufficientPrivilege",
                UNAUTHORIZED: "InvalidAuthorizationSpecification InvalidPassword",
            },
        ),
        # docs.sqlalchemy.org/en/21/core/exceptions.html
        *_named(
            "sqlalchemy.exc",
            {
                _TRANSIENT: "SQLAlchemyError",
                _MALFORMED: "ArgumentError CompileError DataError NotSupportedError ProgrammingError",
                _BUSINESS_RULE: "IntegrityError",
            },
        ),
    )
)


_KNOWN: Final = {**_BY_CLASS, **_BY_CODE}


def kind_by_code(names: Iterable[str]) -> Classification | None:
    """Return what a code means, which goes before the status of its answer; None where the status decides."""
    return next((_BY_CODE[name] for name in names if name in _BY_CODE), None)


def kind_of(names: Iterable[str], *, rules: Rules = NO_RULES) -> Classification | None:
    """Return what an exception that a handler raised means; None where it is not known.

    What a handler has sent before it failed is not known here, so every attempt of it counts, unless its
    credential is refused.
    """
    names = list(names)
    ruled = ruled_name(names, rules)
    if ruled is not None:
        return Classification(ruled, counted=ruled is not Category.UNAUTHORIZED)
    return next((_KNOWN[name] for name in names if name in _KNOWN), None)
