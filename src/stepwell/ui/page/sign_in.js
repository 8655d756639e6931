/** Asks for a key, where the server wants one. */

import { signIn, signInWanted } from "./api.js";
import { Icon } from "./icons.js";
import { html, useState } from "./html.js";

export const SignIn = () => {
  const [key, setKey] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (key.trim()) signIn(key);
  };
  return html`
    <main class="sign-in" id="main">
      <form onSubmit=${submit} aria-labelledby="sign-in-title">
        <h1 id="sign-in-title"><${Icon} name="key" /> Sign in</h1>
        ${signInWanted.value && html`<p class="problem" role="alert">${signInWanted.value}</p>`}
        <p>This server needs an API key. Its operator can create one with <code>stepwell keys create --user you</code>; it begins with <code>sw_</code>. A token of your identity provider works too, where the server takes those.</p>
        <label>API key <input type="password" name="key" autocomplete="current-password" value=${key} required onInput=${(event) => setKey(event.currentTarget.value)} /></label>
        <p class="quiet">The key is kept in this tab only, until you close it.</p>
        <button type="submit" class="primary" disabled=${!key.trim()}>Sign in</button>
      </form>
    </main>`;
};
