"""The preset dictionary of the packed documents of migrations 0001 and 0002. Never changes: those
databases can be read with exactly this text only.
"""

from stepwell.stores.increment_words import INCREMENT, STATE

_MESSAGES = (
    '{"event_type":"message.sent","steers":true}{"fingerprint":"'
    '{"event_type":"execution.paused","waits_for":[{"kind":"approval","prompt":"question"'
    '{"event_type":"execution.failed","status":"failed","stop_reason":"error","error_message":"'
    '{"event_type":"execution.cancelled","status":"cancelled","stop_reason":"user_requested"}'
    '{"event_type":"execution.completed","status":"completed","stop_reason":"completed"}'
)

_AGENT = (
    '{"agent_id":"","agent_name":null,"parent_execution_id":null,"parent_tool_call_id":null,'
    '"truncated":false,'
)
_EVENTS = (
    f'{_AGENT}"status":"completed","previous_status":"processing","step_count":1,'
    '"stop_reason":"completed","reason":"the model called no tools","error_message":null,'
    '"last_response":"","waits_for":[]}'
    f'{_AGENT}"step_number":1,"content":"","is_complete":true,"chunk_index":0}}'
    f'{_AGENT}"step_number":1,"message_count":1,"available_tools":["'
    f'{_AGENT}"step_number":1,"tool_name":"","tool_call_id":"","args_summary":"","args":null}}'
    f'{_AGENT}"tool_name":"","tool_call_id":"","outcome":"completed","success":true,"error":null,'
    '"duration_ms":0.,"result_summary":"'
    f'{_AGENT}"step_number":1,"has_tool_calls":true,"errors":0,"error_messages":[],'
    '"finish_reason":"tool_calls","usage":{"prompt":10,"completion":5,"total":15,"cached":0,'
    '"reasoning":0},"duration_ms":1.'
)

_SAID = '"},"agent_execution_id":"","created_at":"2026-01-01T00:00:00.000000Z"}{"message_id":"'
_MESSAGE_EVENTS = (
    '{"message_id":"","event_type":"message.sent","role":"user","content":"","metadata":{}'
    '","event_type":"execution.completed","role":"assistant","content":"","metadata":'
    f'{_MESSAGES}{_SAID}","event_type":"execution.queued","role":"info",'
    '"content":"Execution queued"'
    f',"metadata":{{"event_type":"execution.queued{_SAID}","event_type":"execution.started",'
    '"role":"info","content":"Execution started","metadata":{"event_type":"execution.started'
    f'{_SAID}","event_type":"tool.called","role":"info","content":"Calling (","metadata":'
    f'{{"event_type":"tool.called","step_number":1,"tool":"","call_id":"{_SAID}"'
    ',"event_type":"tool.completed","role":"info","content":" done in 0.0 s","metadata":'
    '{"event_type":"tool.completed","step_number":1,"tool":"","call_id":"","outcome":"completed'
    f'{_SAID}","event_type":"step.started","role":"info","content":"Step 1","metadata":'
    '{"event_type":"step.started","step_number":1},"agent_execution_id":""'
    ',"event_type":"step.completed","role":"info","content":"Step 1 done in 0.0 s","metadata":'
    f'{{"event_type":"step.completed","step_number":1,"duration_ms":1.{_SAID}'
)

WORDS = (STATE + INCREMENT + _EVENTS + _MESSAGE_EVENTS).encode()
