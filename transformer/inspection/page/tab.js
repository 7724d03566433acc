// The viewer over the records of a folder of runs, served by TensorBoard and growing while they train.

import { followTheme } from "./theme.js";
import { mount } from "./app.js";

const POLL_MILLISECONDS = 3000;

export async function openTab(root) {
  const ask = followTheme((dark) => hostIsDark() ?? dark);
  const host = hostBody();
  if (host) new MutationObserver(ask).observe(host, { attributeFilter: ["class"] });
  const source = await tabSource();
  const viewer = await mount(root, source);
  const poll = async () => {
    if (!document.hidden) {
      const changes = await source.poll().catch(() => ({}));
      if (changes.restarted) viewer.forget();
      if (changes.changed) await viewer.refresh();
    }
    setTimeout(poll, POLL_MILLISECONDS);
  };
  setTimeout(poll, POLL_MILLISECONDS);
}

// TensorBoard frames this page and marks its own body when it is dark.
function hostBody() {
  return window.parent === window ? null : window.parent.document.body;
}

function hostIsDark() {
  return hostBody()?.classList.contains("dark-mode");
}

async function answer(route, parameters = {}) {
  const address = new URL(route, import.meta.url);
  address.search = new URLSearchParams(parameters);
  const response = await fetch(address);
  if (response.ok) return response;
  const isSaid = response.headers.get("content-type")?.startsWith("text/plain");
  throw new Error(isSaid ? await response.text() : `TensorBoard answered ${response.status} to ${route}`);
}

async function tabSource() {
  const fetchRuns = async () => (await (await answer("runs")).json()).runs;
  let runs = await fetchRuns();
  const views = new Map();
  return {
    names: () => runs.map(({ name }) => name),
    async open(name) {
      if (!views.has(name)) views.set(name, await (await answer("view", { run: name })).json());
      return views.get(name);
    },
    async maps(view, index) {
      const response = await answer("maps", { run: view.name, step: view.frames[index].step });
      return { maps: new Uint8Array(await response.arrayBuffer()), detail: null };
    },
    // Asks what has grown since: {changed, restarted}. A run whose steps vanished was started anew.
    async poll() {
      const before = new Map(runs.map((run) => [run.name, run]));
      runs = await fetchRuns();
      const grown = runs.filter((run) => before.get(run.name)?.changed !== run.changed);
      for (const { name } of grown) views.delete(name);
      const restarted = grown.some(({ name, steps }) => before.get(name)?.steps.some((step) => !steps.includes(step)));
      return { changed: grown.length > 0 || before.size !== runs.length, restarted };
    },
  };
}
