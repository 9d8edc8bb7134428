"""What every part of the configuration's model is made of."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, hide_input_in_errors=True)
