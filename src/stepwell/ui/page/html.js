/**
 * The one door to the libraries in ../vendor: what components are written with.
 */

import { h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

/** Markup as vnodes: html`<p class=${name}>${text}</p>`. Text is always text, never markup. */
export const html = htm.bind(h);

export { h, Fragment, render } from "../vendor/preact.js";
export {
  useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState,
} from "../vendor/preact-hooks.js";
export {
  batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect,
} from "../vendor/signals.js";
