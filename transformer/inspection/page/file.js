// The viewer over one file: its views stand in the page itself, nothing is fetched.

import { bytesOfBase64 } from "./maps.js";
import { followTheme } from "./theme.js";
import { mount } from "./app.js";

export async function openFile() {
  followTheme((dark) => dark);
  const { views } = JSON.parse(document.getElementById("views").textContent);
  await mount(document.getElementById("viewer"), fileSource(views));
}

// Two views of one name (a run at two checkpoints) are told apart by number. Two views are shown against each other.
function fileSource(views) {
  const named = new Map();
  for (const view of views) {
    let name = view.name;
    for (let number = 2; named.has(name); number++) name = `${view.name} (${number})`;
    named.set(name, { ...view, name });
  }
  return {
    paired: views.length === 2,
    names: () => [...named.keys()],
    open: async (name) => named.get(name),
    maps: async (view, index) => {
      const { maps, detail } = view.frames[index];
      return { maps: bytesOfBase64(maps), detail: detail && { heads: detail.heads, maps: bytesOfBase64(detail.maps) } };
    },
  };
}
