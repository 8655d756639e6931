"""Serves runs to pages that use AG-UI (CopilotKit and others).

The page sends a RunAgentInput (``state_from_ag_ui``) and receives server-sent events
(``ag_ui_stream``, with ``AG_UI_HEADERS``). Docs: docs/howto/ag-ui.md.
"""

from stepwell.protocols.ag_ui.input import state_from_ag_ui
from stepwell.protocols.ag_ui.stream import AG_UI_HEADERS, ag_ui_events, ag_ui_stream
from stepwell.protocols.ag_ui.translator import AgUiTranslator
from stepwell.protocols.client_stream import encode_sse

__all__ = [
    "AG_UI_HEADERS",
    "AgUiTranslator",
    "ag_ui_events",
    "ag_ui_stream",
    "encode_sse",
    "state_from_ag_ui",
]
