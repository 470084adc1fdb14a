"""Runs with a model over HTTP."""

from __future__ import annotations

import attrs

from trio_agent._agent import Agent
from trio_agent._errors import UsageError
from trio_agent.providers import HTTPModel, Models, open_models

from ._session import Session

__all__ = ["run_with_model"]


async def run_with_model(
    session: Session, agent: Agent, prompt: str, save: str | None, *, name: str, base_url: str | None
) -> int:
    """Run a prompt with the model of that name; the exit code.

    Raises:
      UsageError: there is no such model, or the URL is none. Nothing was begun.
    """
    async with open_models() as models:
        agent.model = _model(models, name, base_url)
        return await session.run(prompt, save)


def _model(models: Models, name: str, base_url: str | None) -> HTTPModel:
    if base_url is None:
        return models[name]
    try:
        vendors = models[name]
    except UsageError:  # the server's own name for it, which may have a colon in it, too
        return models.openai_compatible(base_url, name)
    return attrs.evolve(vendors, base_url=base_url)
