// All heads of all layers as small maps: one canvas a head, and under it what the head has become.

import { make, makeMemo, setAttribute } from "./dom.js";
import { coarsen, planeOf, subtractPlanes } from "./maps.js";
import { pixelsOf } from "./colours.js";

const SMALL_SIDE = 96;
const [FEWEST_COLUMNS, MOST_COLUMNS] = [4, 16];

// actions: {choose(layer, head), preview([layer, head] | null)}.
export function makeGrid(view, actions) {
  const heads = [];
  const rows = Array.from({ length: view.n_layers }, (_, layer) => {
    const buttons = Array.from({ length: view.n_heads }, (_, head) => {
      const canvas = make("canvas", { width: 1, height: 1 });
      const button = make("button", { type: "button", className: "head", tabIndex: -1 }, canvas);
      button.dataset.head = `${layer} ${head}`;
      heads.push({ layer, head, button, canvas });
      return button;
    });
    const maps = make("div", { className: "layer-heads" }, ...buttons);
    return make(
      "div",
      { className: "layer", role: "group", "aria-label": `Layer ${layer}`, "data-layer": `layer ${layer}` },
      maps,
    );
  });
  const element = make("div", { className: "grid" }, ...rows);
  element.style.setProperty("--columns", Math.min(Math.max(view.n_heads, FEWEST_COLUMNS), MOST_COLUMNS));
  const headOf = (target) => target.closest(".head")?.dataset.head.split(" ").map(Number) ?? null;
  element.addEventListener("click", (event) => {
    const chosen = headOf(event.target);
    if (chosen) actions.choose(...chosen);
  });
  element.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse") actions.preview(headOf(event.target));
  });
  element.addEventListener("pointerleave", () => actions.preview(null));
  const [pictureDiffers, choiceDiffers] = [makeMemo(), makeMemo()];
  return {
    element,
    contains: (target) => element.contains(target),
    focus: (layer, head) => heads[layer * view.n_heads + head].button.focus(),
    update(scene) {
      const redrawn = pictureDiffers(scene.frame, scene.referenceFrame, scene.tables);
      if (redrawn) heads.forEach((head, index) => drawSmall(head, index, scene));
      if (choiceDiffers(scene.layer, scene.head, scene.mode, scene.report) || redrawn)
        for (const head of heads) nameHead(head, scene);
    },
  };
}

function nameHead({ layer, head, button }, scene) {
  const chosen = layer === scene.layer && (head === scene.head || scene.mode !== "head");
  const badges = scene.report?.badges?.[layer][head] ?? [];
  setAttribute(button, "aria-pressed", String(chosen));
  const facts = button.classList.contains("nan") ? [...badges, "not a number"] : badges;
  setAttribute(button, "aria-label", [`layer ${layer} head ${head}`, ...facts].join(", "));
  setAttribute(button, "data-badge", badges.map((badge) => badge.replace("-token", "")).join(" · ") || " ");
  button.tabIndex = layer === scene.layer && head === scene.head ? 0 : -1;
}

function drawSmall({ canvas, button }, index, { frame, referenceFrame, tables, page }) {
  let plane = planeOf(frame.maps, index);
  if (referenceFrame) plane = subtractPlanes(plane, planeOf(referenceFrame.maps, index));
  plane = coarsen(plane, Math.ceil(plane.side / SMALL_SIDE));
  canvas.width = canvas.height = plane.side;
  const drawn = pixelsOf(plane, referenceFrame !== null, tables, page);
  canvas.getContext("2d").putImageData(drawn.image, 0, 0);
  button.classList.toggle("nan", drawn.notFinite);
}
