"""The JSON Schema of a configuration file, for editors."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sluicegate.config.root import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE: JsonSchemaValue = {"type": "string", "pattern": r"\$\{"}


def _or_variable(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [schema, _VARIABLE]}


class _FileSchema(GenerateJsonSchema):
    """What a file may hold, as against what it holds once variables are put in: a number may be `${PORT}`."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return _or_variable(super().int_schema(schema))

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _or_variable(super().float_schema(schema))

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return _or_variable(super().bool_schema(schema))

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return _or_variable(super().literal_schema(schema))


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12. It holds no values but the defaults."""
    schema = Config.model_json_schema(mode="validation", schema_generator=_FileSchema)
    # An upstream that lists its models makes them unnecessary, which `required` cannot say.
    schema["required"].remove("models")
    # So does a profile an upstream's address.
    schema["$defs"]["UpstreamConfig"]["required"].remove("base_url")
    return {"$schema": DIALECT, **schema}
