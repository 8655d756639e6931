/** Small pictures as vnodes. They say nothing by themselves: what they stand for is said in words. */

import { html } from "./html.js";

const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.5 3.5",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M4 4l8 8M12 4l-8 8",
  pencil: "M3 13l.7-3L10.5 3.2a1.4 1.4 0 0 1 2 0l.3.3a1.4 1.4 0 0 1 0 2L6 12.3 3 13z",
  archive: "M2 3h12v3H2zM3 6v7h10V6M6.5 9h3",
  restore: "M2 3h12v3H2zM3 6v7h10V6M8 12V8.5M6.2 10L8 8.2 9.8 10",
  send: "M8 13V3M4 7l4-4 4 4",
  blocked: "M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM3.5 3.5l9 9",
  stop: "M4.5 4.5h7v7h-7z",
  down: "M8 3v10M4 9l4 4 4-4",
  chevron: "M6 4l4 4-4 4",
  check: "M3 8.5l3.2 3.2L13 5",
  cross: "M4 4l8 8M12 4l-8 8",
  alert: "M8 2.5l6 10.5H2L8 2.5zM8 6.5v3M8 11.3v.2",
  question: "M6 6a2 2 0 1 1 2.8 1.8c-.5.3-.8.7-.8 1.4M8 11.4v.2M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13z",
  pause: "M6 3.5v9M10 3.5v9",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z",
  auto: "M8 1.5a6.5 6.5 0 1 0 0 13zM8 1.5a6.5 6.5 0 0 1 0 13",
  key: "M10.5 9a3.5 3.5 0 1 0-3.2-2L2 12.3V14h2v-1.5h1.5V11H7l1-1.3a3.5 3.5 0 0 0 2.5-.7z",
  leave: "M6 2.5H3v11h3M10 5l3 3-3 3M13 8H6",
  tool: "M9.5 2.5a3.5 3.5 0 0 0-3 5L2.5 11.5l2 2 4-4a3.5 3.5 0 0 0 4.8-4.2L11 7.5 8.5 5l2.2-2.3a3.5 3.5 0 0 0-1.2-.2z",
  why: "M2.5 3.5h11M2.5 8h7M2.5 12.5h4M12 8.5v5M9.5 11h5",
};

export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
