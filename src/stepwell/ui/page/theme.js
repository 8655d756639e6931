/** Light, dark, or as the system says. */

import { signal } from "./html.js";

const NAME = "stepwell.theme";
const THEMES = ["auto", "light", "dark"];

const stored = () => {
  try {
    const found = localStorage.getItem(NAME);
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
};

export const theme = signal(stored());

function apply() {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

export function cycleTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  try {
    localStorage.setItem(NAME, theme.value);
  } catch {
    // Not kept, then.
  }
  apply();
}

apply();
