// The large map to take away: a picture (PNG), and its numbers (TSV).

import { make } from "./dom.js";
import { triangle } from "./maps.js";
import { markedText } from "./names.js";

const GAP = 24;
const HEADING = 20;

function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function fileName(scene, ending) {
  const words = [scene.view.name, scene.name, scene.nowName].join(" ");
  return `${words
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 80)}.${ending}`;
}

// pictures: [[caption, canvas], …], drawn side by side under their captions.
export function exportPicture(scene, pictures) {
  const scale = window.devicePixelRatio || 1;
  const [gap, heading] = [GAP * scale, HEADING * scale];
  const canvas = make("canvas", {
    width: gap + pictures.reduce((width, [, picture]) => width + picture.width + gap, 0),
    height: 2 * gap + 2 * heading + Math.max(...pictures.map(([, picture]) => picture.height)),
  });
  const context = canvas.getContext("2d");
  context.fillStyle = scene.page.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = scene.page.ink;
  context.font = `${15 * scale}px system-ui, sans-serif`;
  context.fillText(`${scene.view.name} · ${scene.name}`, gap, gap + heading / 2);
  context.font = `${12 * scale}px system-ui, sans-serif`;
  let x = gap;
  for (const [caption, picture] of pictures) {
    context.fillText(caption, x, gap + 1.5 * heading);
    context.drawImage(picture, x, gap + 2 * heading);
    x += picture.width + gap;
  }
  canvas.toBlob((blob) => download(blob, fileName(scene, "png")), "image/png");
}

// A line a query: the map's name, the query, its weights on every key. The number before a token keeps spreadsheets
// from reading it as a formula.
function tableOf({ view, planes }) {
  const lines = [];
  for (const { plane, caption } of planes) {
    const blocks = Array.from({ length: plane.side }, (_, i) => i * plane.pool);
    const labels = blocks.map((token) => `${token} ${markedText(view.tokens[token].text)}`);
    const name = markedText(caption);
    lines.push([name, "query \\ key", ...labels]);
    labels.forEach((label, i) => {
      const row = plane.values.subarray(triangle(i), triangle(i + 1));
      lines.push([name, label, ...Array.from(row, (value) => (Number.isNaN(value) ? "NaN" : value.toFixed(5)))]);
    });
  }
  return lines.map((line) => line.join("\t")).join("\n") + "\n";
}

export function exportTable(scene) {
  download(new Blob([tableOf(scene)], { type: "text/tab-separated-values" }), fileName(scene, "tsv"));
}
