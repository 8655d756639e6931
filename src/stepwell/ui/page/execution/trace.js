/** The trace of an execution, kept up to date while it is not over. */

import { get } from "../api.js";
import { useCallback, useEffect, useRef, useState } from "../html.js";
import { isRunning } from "./formats.js";

const RUNNING_MS = 2_000;
const PAUSED_MS = 6_000;
const REST = 3;
const OVER = new Set(["completed", "stopped", "failed", "cancelled"]);

export const pathOf = (id, part = "") =>
  `agent/executions/${encodeURIComponent(id)}${part === "" ? "" : `/${part}`}`;

const mark = ({ status, step_count: steps, updated_at: at, attempt, cancel_requested: isCancelled }) =>
  [status, steps, Date.parse(at), attempt, isCancelled].join(" ");

/** The whole trace: the server gives its steps and messages in parts. */
export const readTrace = async (id) => {
  let whole = null;
  for (let query = "?limit=200"; query !== null;) {
    const part = await get(`${pathOf(id, "trace")}${query}`);
    whole = whole === null ? part : {
      ...part, steps: [...whole.steps, ...part.steps], messages: [...whole.messages, ...part.messages],
    };
    query = part.next ? `?limit=200&cursor=${encodeURIComponent(part.next)}` : null;
  }
  return whole;
};

const nothing = { trace: null, row: null, problem: null, isLoading: true };

/**
 * The row is there first, so that the page can say where the execution stands: the trace of a long
 * one is large. While it runs the row is asked for, and the trace only when the row has changed.
 */
export const useTrace = (id) => {
  const [held, setHeld] = useState({ id, ...nothing });
  const shown = held.id === id ? held : { id, ...nothing };
  const newest = useRef(null);
  const asked = useRef(0);
  // A trace that took long to read is not read again at once: {isBusy, until}.
  const rest = useRef({ isBusy: false, until: 0 });

  const load = useCallback(async () => {
    const own = (asked.current += 1);
    const start = performance.now();
    rest.current.isBusy = true;
    const answer = await readTrace(id).then(
      (trace) => ({ id, trace, problem: null, isLoading: false }),
      (problem) => ({ id, problem, isLoading: false }),
    );
    if (own !== asked.current) return;
    const now = performance.now();
    rest.current = { isBusy: false, until: now + REST * (now - start) };
    if (answer.trace !== undefined) newest.current = mark(answer.trace.execution);
    // What was read before stays on the page when the server is away for a moment.
    setHeld((before) => ({ ...(before.id === id ? before : nothing), ...answer }));
  }, [id]);

  useEffect(() => {
    let isWanted = true;
    load();
    get(pathOf(id)).then(
      (row) => isWanted
        && setHeld((before) => (before.id === id ? { ...before, row } : { id, ...nothing, row })),
      () => null, // the trace reports the problem
    );
    return () => {
      isWanted = false;
      asked.current += 1;
    };
  }, [id, load]);

  const status = shown.trace?.execution.status;
  const isAway = shown.problem !== null && shown.problem?.status === 0;
  useEffect(() => {
    if (status === undefined || (OVER.has(status) && !isAway)) return undefined;
    const timer = setInterval(async () => {
      if (document.hidden || rest.current.isBusy || performance.now() < rest.current.until) return;
      const row = await get(pathOf(id)).catch(() => null);
      if (row === null ? !isAway : isAway || mark(row) !== newest.current) load();
    }, isRunning(status) ? RUNNING_MS : PAUSED_MS);
    return () => clearInterval(timer);
  }, [id, status, isAway, load]);

  return { ...shown, reload: load };
};
