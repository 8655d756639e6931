/** Where the keys go when what had the focus is gone: never to nowhere. */

import { useLayoutEffect } from "./html.js";

const isNowhere = () => document.activeElement === null || document.activeElement === document.body;

/** To what is asked. What it is about comes first, never the button that allows it: whoever types "a "
 * meant neither. Returns whether there is an open question. */
export function focusAsked() {
  const control = document.querySelector("[data-asking] :is(pre, button:not(.primary), input, select):not(:disabled)");
  control?.focus();
  return control !== null;
}

/** A form went away, and with it the focus: the next one is to be answered, or something is to be said. */
export function focusAfterForm() {
  if (!isNowhere() || focusAsked()) return;
  // With a finger it would open the keyboard over what is read.
  if (matchMedia("(hover: hover)").matches) document.querySelector(".composer textarea")?.focus();
}

/** For a list whose rows move and go while one of them has the focus: it stays in that row, or goes to
 * the one that stands there now, or to `otherwise`. Moving an element takes the focus from it. */
export function useFocusInRows(list, otherwise) {
  const rows = () => [...(list.current?.querySelectorAll("li") ?? [])];
  const held = list.current?.contains(document.activeElement) ? document.activeElement.closest("li") : null;
  const [place, id] = [rows().indexOf(held), held?.dataset.session];
  useLayoutEffect(() => {
    if (!held || !isNowhere()) return;
    const now = rows();
    const next = now.find((one) => one.dataset.session === id) ?? now[Math.min(place, now.length - 1)];
    (next?.querySelector("a, input") ?? document.querySelector(otherwise))?.focus();
  });
}
