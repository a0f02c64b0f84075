"""Options that several commands take together: what is asked, and how files are read.

A command names a group as one parameter; `takes` puts the group's options into the command's
signature, which is what typer reads, and hands over what the group makes of them. May import typer.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from docmill.cli import document_options as options


def takes(
    **groups: Callable[..., Any],
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Let a command take groups of options: by parameter, the function that has them."""
    names = {group: set(inspect.signature(make).parameters) for group, make in groups.items()}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def call(**given: Any) -> int:
            for group, make in groups.items():
                own = {name: given.pop(name) for name in names[group]}
                given[group] = make(**own)
            return command(**given)

        parameters = [
            part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            for part in _parameters(groups.get(name), parameter)
        ]
        # both are what typer reads
        vars(call)["__signature__"] = inspect.Signature(parameters, return_annotation=int)
        call.__annotations__ = {part.name: part.annotation for part in parameters}
        return call

    return decorate


def _parameters(
    group: Callable[..., Any] | None, parameter: inspect.Parameter
) -> list[inspect.Parameter]:
    return [parameter] if group is None else list(inspect.signature(group).parameters.values())


def question(
    prompt: options.Prompt = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    stop: options.Stop = None,
    seed: options.Seed = None,
    truncate: options.Truncate = None,
    max_document_tokens: options.MaxDocumentTokens = None,
    combine_prompt: options.CombinePrompt = None,
    rule: options.Rule = None,
    dedup: options.Dedup = None,
    near_threshold: options.NearThreshold = None,
) -> dict[str, Any]:
    """Return what is asked about each document, by the names of `Client.submit`."""
    from docmill.cli.input import read_prompt

    named = {
        "prompt": read_prompt(prompt),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "stop": stop,
        "seed": seed,
        "truncate": truncate,
        "max_document_tokens": max_document_tokens,
        "combine_prompt": read_prompt(combine_prompt, "--combine-prompt"),
        "rules": _policies(rule or []),
        "dedup": dedup,
        "near_threshold": near_threshold,
    }
    return {name: value for name, value in named.items() if value not in (None, [], {})}


def _policies(given: list[str]) -> dict[str, str]:
    policies: dict[str, str] = {}
    for text in given:
        rule, equals, policy = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--rule {text!r} is no RULE=POLICY")
        if policies.setdefault(rule, policy) != policy:
            raise typer.BadParameter(f"--rule {rule} is given two policies")
    return policies


def reading(
    encoding: options.Encoding = None,
    column: options.Column = None,
    id_column: options.IdColumn = None,
    separator: options.Separator = None,
) -> dict[str, str]:
    """Return how files are read, by the names of `docmill.read`."""
    named = {
        "encoding": encoding,
        "text_column": column,
        "id_column": id_column,
        "separator": separator,
    }
    return {name: value for name, value in named.items() if value is not None}
