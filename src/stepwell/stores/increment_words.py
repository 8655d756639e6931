"""The preset dictionary of compressed increments: what all of them have in common. Never changes:
stored bytes can be read with exactly this text only.
"""

STATE = (
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

INCREMENT = (
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
