// Made from the classes in stepwell.journal.envelope; do not edit.

/** One thing to tell user interfaces. Drop what has an id that came already; put in order by seq. */
export type AgentEnvelope =
  | StatusEnvelope
  | StepStartedEnvelope
  | StepCompletedEnvelope
  | ToolStartedEnvelope
  | ToolCompletedEnvelope
  | StreamChunkEnvelope
  | ContinuationEnvelope;

/** The execution changed its status; a stop says why. */
export interface StatusEnvelope {
  id: string;
  seq: number;
  type: "agent.status";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: StatusPayload;
}

/** A step began. */
export interface StepStartedEnvelope {
  id: string;
  seq: number;
  type: "agent.step.started";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: StepStartedPayload;
}

/** A step ended, well or not; `errors` counts what failed. */
export interface StepCompletedEnvelope {
  id: string;
  seq: number;
  type: "agent.step.completed";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: StepCompletedPayload;
}

/** A tool call started; `args` is included only if the config says so. */
export interface ToolStartedEnvelope {
  id: string;
  seq: number;
  type: "agent.tool.started";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: ToolStartedPayload;
}

/** A tool call has its result, was blocked, failed, or waits for a person: see `outcome`. */
export interface ToolCompletedEnvelope {
  id: string;
  seq: number;
  type: "agent.tool.completed";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: ToolCompletedPayload;
}

/** A piece of text; the last one of a response is complete and may be empty. */
export interface StreamChunkEnvelope {
  id: string;
  seq: number;
  type: "agent.stream.chunk";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: StreamChunkPayload;
}

/** A decision with every vote. */
export interface ContinuationEnvelope {
  id: string;
  seq: number;
  type: "agent.continuation";
  session_id: string;
  execution_id: string;
  timestamp: string;
  payload: ContinuationPayload;
}

/** The execution changed its status; a stop says why. */
export interface StatusPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  status: BroadcastStatus;
  previous_status: BroadcastStatus;
  step_count: number;
  stop_reason: StopReason | null;
  reason: string | null;
  error_message: string | null;
  last_response: string | null;
  waits_for: Array<Waiting>;
  usage: Tokens | null;
  spawned: Spawn | null;
}

/** The status of an execution in envelopes. */
export type BroadcastStatus = "cancelled" | "completed" | "failed" | "idle" | "paused" | "processing" | "stopped";

/** Why a run ended, most urgent first; the order decides between several forbids. */
export type StopReason = "completed" | "cost_limit" | "error" | "finish_reason" | "guard" | "input_required" | "retry_limit" | "steps_limit" | "stop_requested" | "time_limit" | "token_limit" | "user_requested";

/** Something a paused execution waits for; an answer names its `question_id`. */
export interface Waiting {
  question_id: string;
  kind: string;
  prompt: string;
  call_id: string | null;
  tool_name: string | null;
}

/** Token counts: cached ones are part of the prompt, reasoning ones of the completion. */
export interface Tokens {
  prompt: number;
  completion: number;
  total: number;
  cached: number;
  reasoning: number;
}

/** As what a subagent was spawned: the beginning of its prompt, and how deep it is nested. */
export interface Spawn {
  prompt: string;
  depth: number;
}

/** A step began. */
export interface StepStartedPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  step_number: number;
  message_count: number;
  available_tools: Array<string>;
  spawned: Spawn | null;
}

/** A step ended, well or not; `errors` counts what failed. */
export interface StepCompletedPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  step_number: number;
  has_tool_calls: boolean;
  errors: number;
  error_messages: Array<string>;
  finish_reason: FinishReason | null;
  usage: Tokens;
  duration_ms: number;
}

/** Why the model ended its turn. */
export type FinishReason = "content_filter" | "error" | "length" | "other" | "stop" | "tool_calls";

/** A tool call started; `args` is included only if the config says so. */
export interface ToolStartedPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  step_number: number;
  tool_name: string;
  tool_call_id: string;
  args_summary: string;
  args: { [key: string]: unknown } | null;
}

/** A tool call has its result, was blocked, failed, or waits for a person: see `outcome`. */
export interface ToolCompletedPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  tool_name: string;
  tool_call_id: string;
  outcome: ToolOutcome;
  success: boolean;
  error: string | null;
  duration_ms: number;
  result_summary: string | null;
  note: string | null;
}

/** How a tool call ended. Only raised, invalid and timed_out count as errors. */
export type ToolOutcome = "blocked" | "cancelled" | "completed" | "failed" | "invalid" | "not_found" | "not_run" | "pending" | "raised" | "timed_out" | "unknown";

/** A piece of text; the last one of a response is complete and may be empty. */
export interface StreamChunkPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  step_number: number;
  content: string;
  is_complete: boolean;
  chunk_index: number;
}

/** A decision with every vote. */
export interface ContinuationPayload {
  agent_id: string;
  agent_name: string | null;
  parent_execution_id: string | null;
  parent_tool_call_id: string | null;
  truncated: boolean;
  step_number: number;
  should_continue: boolean;
  stop_reason: StopReason | null;
  resolved_by: string;
  evaluations: Array<Vote>;
}

/** One criterion's word on going on. */
export interface Vote {
  criterion: string;
  decision: ContinuationDecision;
  reason: string;
}

/** One vote on whether the run goes on. */
export type ContinuationDecision = "allow" | "allow_stop" | "forbid" | "request";
