/** A step whose large values were cut in the list: read whole when it is unfolded. */

import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { Failure } from "./notes.js";
import { StepDetail } from "./step.js";
import { pathOf } from "./trace.js";

/** @param {{step: object, execution: object}} props */
export const WholeStep = ({ step, execution }) => {
  const [{ whole, problem }, setAnswer] = useState({ whole: null, problem: null });
  const path = step.truncated ? pathOf(execution.id, `steps/${step.number}`) : null;
  useEffect(() => {
    if (path === null) return undefined;
    let isWanted = true;
    get(path).then(
      (answer) => isWanted && setAnswer({ whole: answer, problem: null }),
      (failure) => isWanted && setAnswer({ whole: null, problem: failure }),
    );
    return () => {
      isWanted = false;
    };
  }, [path]);
  return html`${path !== null && whole === null && problem === null
    && html`<p class="x-note" role="status">Loading all of it …</p>`}
    ${problem && html`<${Failure} problem=${problem} />`}
    <${StepDetail} step=${whole ?? step} execution=${execution} />`;
};
