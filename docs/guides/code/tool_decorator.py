import json
from typing import Annotated, Literal

import attrs
import msgspec

from trio_agent import tool


@attrs.frozen
class Place:
    """A place on the map."""

    name: str
    country: str = "Italy"


@tool(label="Route")
def find_route(
    start: Place,
    stops: list[Place],
    by: Literal["train", "ship"] = "train",
    seats: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1,
) -> str:
    """Find a route.

    Args:
      start: where it begins.
      stops: the places to visit, in their order.
      by: how to travel.
      seats: how many people travel.
    """
    return f"{start.name} to {', '.join(stop.name for stop in stops)} by {by}, {seats} seats"


print(find_route.name, "-", find_route.description)
print(json.dumps(find_route.parameters["properties"]["seats"]))
print(find_route.parameters["required"])
