"""Agent specs as text that ``AgentSpecParser`` reads back to an equal spec."""

import json
import re
from typing import Any

from stepwell.agent.spec import AgentSpec

_SAFE = re.compile(r"[A-Za-z](?:[\w ./()-]*[\w.)])?", re.ASCII)
_LINES = re.compile(r"[!-~](?:[ -~\n\xa1-\u1fff\u3040-\ud7ff]*[!-~])?")


def markdown_of(spec: AgentSpec) -> str:
    """Front matter and, as body, the prompt."""
    fields = spec.to_dict()
    prompt = fields.pop("system_prompt")
    return f"---\n{yaml_of(fields)}---\n\n{prompt}\n"


def json_of(spec: AgentSpec) -> str:
    """Indented JSON."""
    return json.dumps(spec.to_dict(), indent=2, ensure_ascii=False) + "\n"


def yaml_of(fields: dict[str, Any]) -> str:
    """YAML in which all text that could be taken for something else is quoted."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Lists are indented, texts of several lines are blocks, nothing is an alias."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def represented(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represented)
    return str(yaml.dump(fields, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**9))


def _style(text: str) -> str | None:
    """Plain where nobody can misread it, a block for prose, quotes for the rest."""
    if _SAFE.fullmatch(text):
        return None
    is_block = "\n" in text and _LINES.fullmatch(text) and " \n" not in text
    return "|" if is_block else '"'
