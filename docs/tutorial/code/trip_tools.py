import trio

from trio_agent import ToolContext, tool

TEMPERATURES = {"Rome": 21.5, "Oslo": 4.0}


@tool
async def measure(city: str) -> dict[str, float]:
    """Measure the temperature in a city.

    Args:
      city: the name of the city, in English.
    """
    await trio.sleep(0.5)
    if city not in TEMPERATURES:
        raise LookupError(f"there is no station in {city}")
    return {"celsius": TEMPERATURES[city]}


@tool
def to_fahrenheit(celsius: float) -> str:
    """Convert a temperature from Celsius to Fahrenheit."""
    return f"{celsius * 9 / 5 + 32:.1f} F"


@tool
async def book_train(city: str, ctx: ToolContext) -> str:
    """Book a seat on the next train to a city."""
    for step in ("searching", "reserving", "paying"):
        await ctx.update(step)
        await trio.sleep(0.5)
    return f"booked: one seat to {city}"


TOOLS = [measure, to_fahrenheit, book_train]
