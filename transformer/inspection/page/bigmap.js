// The stage: one large map, or, where two are compared, the map now, the map it is compared with, and the difference.

import { make, makeMemo, setAttribute, setText } from "./dom.js";
import { cellAt, drawCells, drawMarks, layOut } from "./picture.js";

const WIDEST = 620;

// actions: {point({query, key} | null), pick({query, key}), resized()}.
export function makeStage(actions) {
  const figures = [0, 1, 2].map((index) => makeFigure(actions, index));
  const element = make("div", { className: "figures" }, ...figures.map((figure) => figure.element));
  new ResizeObserver(() => actions.resized()).observe(element);
  return {
    element,
    pictures: () =>
      figures.filter((figure) => !figure.element.hidden).map(({ base, caption }) => [caption.textContent, base]),
    update(scene) {
      element.classList.toggle("compared", scene.planes.length > 1);
      figures.forEach((figure, index) => {
        figure.element.hidden = index >= scene.planes.length;
        if (!figure.element.hidden) updateFigure(figure, scene, scene.planes[index]);
      });
    },
  };
}

function makeFigure(actions, index) {
  const caption = make("figcaption", {});
  const canvas = make("canvas", {
    className: "map",
    tabIndex: 0,
    role: "application",
    "aria-roledescription": "attention map",
  });
  canvas.setAttribute("aria-describedby", "readout");
  const figure = {
    element: make("figure", {}, caption, canvas),
    canvas,
    caption,
    index,
    place: null,
    base: null,
    differs: makeMemo(),
  };
  const pointed = (event) => figure.place && cellAt(figure.place, event.offsetX, event.offsetY);
  canvas.addEventListener("pointermove", (event) => actions.point(pointed(event)));
  canvas.addEventListener("pointerleave", () => actions.point(null));
  canvas.addEventListener("click", (event) => {
    if (pointed(event)) actions.pick(pointed(event));
  });
  canvas.addEventListener("blur", () => actions.point(null));
  return figure;
}

function updateFigure(figure, scene, { plane, signed, caption, label }) {
  const width = Math.min(figure.element.clientWidth, WIDEST);
  const scale = window.devicePixelRatio || 1;
  if (width > 0 && figure.differs(plane, signed, scene.tables, width, scale, scene.view.tokens)) {
    figure.place = layOut(plane, scene.view.tokens, width, scale);
    figure.base = drawCells(figure.place, scene.view.tokens, { signed, tables: scene.tables, page: scene.page });
    figure.canvas.style.width = `${figure.place.width / scale}px`;
  }
  const line = scene.token === null ? null : { token: scene.token, direction: scene.direction };
  if (figure.place) drawMarks(figure.canvas, figure.base, figure.place, { line, cell: scene.cell }, scene.page);
  setText(figure.caption, caption);
  setAttribute(figure.canvas, "aria-label", label);
}
