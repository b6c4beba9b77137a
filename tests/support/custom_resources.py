"""JSON Schemas of the operators' resources that deploy/ uses, of the fields that it uses.

kubernetes-validate knows Kubernetes' own resources. These were rewritten from the definitions that
each operator installs, so that a misspelt field fails; no operator has read the files.
"""

from __future__ import annotations

from typing import Any

import jsonschema

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_POSITIVE: Schema = {"type": "integer", "minimum": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_DURATION: Schema = {"type": "string", "pattern": r"^(\d+(ms|[smhdwy]))+$"}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    return {
        "type": "object",
        "required": sorted(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _texts_by_name(values: Schema = _TEXT) -> Schema:
    return {"type": "object", "additionalProperties": values}


_SELECTOR = _object({"matchLabels": _texts_by_name()})
_OPERATIONS = (
    "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "AlterConfigs",
    "DescribeConfigs", "IdempotentWrite", "All",
)  # fmt: skip

# Strimzi, kafka.strimzi.io/v1
KAFKA_TOPIC = _object(
    {
        "partitions": {"type": "integer", "minimum": 1},
        "replicas": {"type": "integer", "minimum": 1},
    },
    config=_texts_by_name(),
    topicName=_TEXT,
)
_RULE = _object(
    {
        "resource": _object(
            {"type": {"enum": ["topic", "group", "cluster", "transactionalId"]}},
            name=_TEXT,
            patternType={"enum": ["literal", "prefix"]},
        ),
        "operations": _list({"enum": list(_OPERATIONS)}),
    },
    host=_TEXT,
    type={"enum": ["allow", "deny"]},
)
KAFKA_USER = _object(
    {"authentication": _object({"type": {"enum": ["tls", "tls-external", "scram-sha-512"]}})},
    authorization=_object({"type": {"const": "simple"}, "acls": _list(_RULE)}),
)

# KEDA, keda.sh/v1alpha1, with the trigger `kafka`
_KAFKA_TRIGGER = _object(
    {
        "type": {"const": "kafka"},
        "metadata": _object(
            {"bootstrapServers": _TEXT, "consumerGroup": _TEXT},
            topic=_TEXT,
            lagThreshold={"type": "string", "pattern": r"^[1-9]\d*$"},
            activationLagThreshold={"type": "string", "pattern": r"^\d+$"},
            offsetResetPolicy={"enum": ["earliest", "latest"]},
            allowIdleConsumers={"enum": ["true", "false"]},
            limitToPartitionsWithLag={"enum": ["true", "false"]},
            tls={"enum": ["enable", "disable"]},
            sasl={"enum": ["plaintext", "scram_sha256", "scram_sha512"]},
        ),
    },
    authenticationRef=_object({"name": _TEXT}),
)
SCALED_OBJECT = _object(
    {"scaleTargetRef": _object({"name": _TEXT}, kind=_TEXT), "triggers": _list(_KAFKA_TRIGGER)},
    minReplicaCount=_COUNT,
    maxReplicaCount=_COUNT,
    pollingInterval=_COUNT,
    cooldownPeriod=_COUNT,
    fallback=_object({"failureThreshold": _COUNT, "replicas": _COUNT}),
)
_SECRET_REFERENCE = _object({"parameter": _TEXT, "name": _TEXT, "key": _TEXT})
_ENVIRONMENT = _object({"parameter": _TEXT, "name": _TEXT}, containerName=_TEXT)
TRIGGER_AUTHENTICATION = {
    **_object({}, secretTargetRef=_list(_SECRET_REFERENCE), env=_list(_ENVIRONMENT)),
    "minProperties": 1,
}

# Prometheus operator, monitoring.coreos.com/v1
_ALERT = _object(
    {"alert": _TEXT, "expr": _TEXT},
    labels=_texts_by_name(),
    annotations=_texts_by_name(),
    **{"for": _DURATION},
)
PROMETHEUS_RULE = _object({"groups": _list(_object({"name": _TEXT, "rules": _list(_ALERT)}))})
_ENDPOINT = _object({"port": _TEXT}, path=_TEXT, interval=_DURATION, scrapeTimeout=_DURATION)
POD_MONITOR = _object({"selector": _SELECTOR, "podMetricsEndpoints": _list(_ENDPOINT)})

_SPECS: dict[tuple[str, str], Schema] = {
    ("kafka.strimzi.io/v1", "KafkaTopic"): KAFKA_TOPIC,
    ("kafka.strimzi.io/v1", "KafkaUser"): KAFKA_USER,
    ("keda.sh/v1alpha1", "ScaledObject"): SCALED_OBJECT,
    ("keda.sh/v1alpha1", "TriggerAuthentication"): TRIGGER_AUTHENTICATION,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULE,
    ("monitoring.coreos.com/v1", "PodMonitor"): POD_MONITOR,
}
_METADATA = _object(
    {"name": {"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}},
    namespace=_TEXT,
    labels=_texts_by_name({"type": "string", "maxLength": 63, "pattern": r"^[\w.-]*$"}),
    annotations=_texts_by_name({"type": "string"}),
)


def is_custom(resource: dict[str, Any]) -> bool:
    """Return whether a resource is an operator's."""
    return (resource["apiVersion"], resource["kind"]) in _SPECS


def check_custom_resource(resource: dict[str, Any]) -> None:
    """Check a resource of an operator.

    Raises
    ------
    jsonschema.ValidationError
        It lacks a field, has one that its definition does not, or a value of another kind.
    """
    kind = resource["apiVersion"], resource["kind"]
    jsonschema.validate(
        resource,
        _object(
            {
                "apiVersion": {"const": kind[0]},
                "kind": {"const": kind[1]},
                "metadata": _METADATA,
                "spec": _SPECS[kind],
            }
        ),
    )
