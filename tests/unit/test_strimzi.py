"""Strimzi's topics and users are those that the workers create and scripts/kafka_acls.py grants."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

import manifests
from kafka_acls import rights
from lethe.consumers.contract import topics
from lethe.consumers.log.kafka.settings import topic_settings
from tests.support.custom_resources import check_custom_resource

RESOURCES: list[dict[str, Any]] = list(
    yaml.safe_load_all((manifests.DEPLOY / "strimzi" / "lethe.yaml").read_text(encoding="utf-8"))
)
TOPICS = {each["metadata"]["name"]: each for each in RESOURCES if each["kind"] == "KafkaTopic"}
USERS = {each["metadata"]["name"]: each for each in RESOURCES if each["kind"] == "KafkaUser"}


def test_the_files_that_are_made_from_the_code_are_up_to_date() -> None:
    for path, content in manifests.contents().items():
        assert path.read_text(encoding="utf-8") == content, f"{path}: run `make manifests`"


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource["metadata"]["name"])
def test_each_resource_has_the_fields_that_strimzi_defines(resource: dict[str, Any]) -> None:
    check_custom_resource(resource)


def test_a_field_that_strimzi_does_not_define_is_noticed() -> None:
    wrong = {**RESOURCES[0], "spec": {**RESOURCES[0]["spec"], "partition": 16}}
    with pytest.raises(jsonschema.ValidationError, match="partition"):
        check_custom_resource(wrong)


@pytest.mark.parametrize("spec", topics.specs(), ids=lambda spec: spec.name)
def test_a_topic_is_as_the_workers_would_create_it_and_keeps_what_it_acknowledged(
    spec: Any,
) -> None:
    resource = TOPICS[spec.name]["spec"]
    assert resource["partitions"] == spec.partitions
    assert resource["replicas"] == 3
    assert resource["config"] == {**topic_settings(spec), "min.insync.replicas": "2"}


def test_there_is_no_other_topic() -> None:
    assert set(TOPICS) == {spec.name for spec in topics.specs()}


def test_each_role_has_the_rights_of_the_list_and_no_others() -> None:
    granted = {
        (
            user,
            rule["resource"]["type"],
            rule["resource"]["name"],
            rule["resource"]["patternType"] == "prefix",
            operation,
        )
        for user, resource in USERS.items()
        for rule in resource["spec"]["authorization"]["acls"]
        for operation in rule["operations"]
    }
    listed = {
        (right.user, right.resource, right.name.removesuffix("*"), right.prefixed, operation)
        for right in rights({})
        for operation in right.operations
    }
    assert granted == listed
