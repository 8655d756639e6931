"""The text that packed documents are packed against: what increments, events and session messages
have in common. Stored bytes can be read with exactly this text only, so it never changes; a better
one gets a mark of its own in ``packing`` and stands beside it.
"""

_MESSAGES = (
    '{"event_type":"message.sent","steers":true}{"fingerprint":"'
    '{"event_type":"execution.paused","waits_for":[{"kind":"approval","prompt":"question"'
    '{"event_type":"execution.failed","status":"failed","stop_reason":"error","error_message":"'
    '{"event_type":"execution.cancelled","status":"cancelled","stop_reason":"user_requested"}'
    '{"event_type":"execution.completed","status":"completed","stop_reason":"completed"}'
)

_STATE = (
    '{"format":"stepwell.state","schema_version":1,"checksum":"sha256:","body":{"agent_id":"'
    '","created_at":"2026-01-01T00:00:00.000000Z","updated_at":"","parent_agent_id":"'
    '","pending":[{"signal":"approval","prompt":"","call_id":"","tool_name":"","details":{}'
    '"role":"system","parts":[{"type":"thinking","text":""}],"metadata":{"type":"image","data":"'
    '"error":{"type":"ToolError","message":""},"outcome":"failed","consecutive_failures":1,'
    '"outcome":"blocked","stop_reason":"steps_limit","decision":"forbid","reason":"TokenLimit'
    'ExecutionTimeLimit CostLimit tokens used seconds used"ContinuationRequest"}],"id":"'
    '"usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,'
    '"reasoning_tokens":0},"finish_reason":"length","model":"'
    '","messages":[{"role":"user","parts":[{"type":"text","text":"","finish_reason":"stop",'
)

_INCREMENT = (
    '{"format":"stepwell.state.increment","schema_version":1,"checksum":"sha256:","body":{"since":"'
    '","agent_id":"","updated_at":"2026-01-01T00:00:00.000000Z","execution_count":1,'
    '"cumulative_seconds":0.,"execution":{"id":"","started_at":"","status":"completed",'
    '"status":"in_progress","outcome":"last step","usage":{"input_tokens":10,"output_tokens":5},'
    '"cost":0.0,"granted":{"steps":0,"tokens":0,"seconds":0.0,"cost":0.0}},"kept_messages":1,'
    '"kept_steps":1,"messages":[{"role":"assistant","parts":[{"type":"text","text":"'
    '"},{"type":"tool_call","id":"","name":"","arguments":{"number":1}}],"id":":1:0"},'
    '{"role":"tool","parts":[{"type":"tool_result","call_id":"","tool_name":"","content":"'
    '"}],"id":":1:1"}],"steps":[{"number":1,"outcome":{"decision":"allow_stop",'
    '"resolved_by":"ToolCallPresenceCheck","stop_reason":"completed","decision":"request",'
    '"resolved_by":"ToolCallPresenceCheck","stop_reason":null,"evaluations":['
    '{"criterion":"StepsLimit","decision":"allow","reason":"1 of 10 steps used",'
    '"context":{"current":1,"maximum":10}},{"criterion":"FinishReasonCheck","decision":"allow",'
    '"reason":"finish reason tool_calls does not stop the run",'
    '"context":{"finish_reason":"tool_calls","stop_on":[]}},'
    '{"criterion":"ErrorPolicyCriterion","decision":"allow",'
    '"reason":"nothing failed in the newest step","context":{"consecutive_failures":0}},'
    '{"criterion":"ToolCallPresenceCheck","decision":"allow_stop",'
    '"reason":"the model called no tools","context":{"tool_calls":0},"decision":"request",'
    '"reason":"the model called 1 tool","context":{"tool_calls":1}}]},'
    '"started_at":"2026-01-01T00:00:00.000000Z","completed_at":"2026-01-01T00:00:00.000000Z",'
    '"duration_seconds":0.00,"said":[1,2],"tools":[{"call":0,"outcome":"completed","started_at":"'
    '","completed_at":"","duration_seconds":0.,"usage":{},"cost":0.0}],'
    '"usage":{"input_tokens":10,"output_tokens":5},"cost":0.0,"finish_reason":"tool_calls",'
    '"model":""}]}}'
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

FIRST_WORDS = (_STATE + _INCREMENT + _EVENTS + _MESSAGE_EVENTS).encode()
"""What marks 1 and 2 were packed against."""
