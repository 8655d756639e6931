"""A run as AG-UI events, for pages that speak AG-UI (CopilotKit and others).

The page that asks sends a RunAgentInput (``state_from_ag_ui``) and is sent server-sent events
(``encode_sse``). Docs: docs/howto/ag-ui.md.
"""

from stepwell.broadcasting.ag_ui.input import state_from_ag_ui
from stepwell.broadcasting.ag_ui.stream import ag_ui_events, encode_sse
from stepwell.broadcasting.ag_ui.translator import AgUiTranslator

__all__ = ["AgUiTranslator", "ag_ui_events", "encode_sse", "state_from_ag_ui"]
