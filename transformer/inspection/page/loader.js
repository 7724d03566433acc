// Decoded frames: fetched when first shown, the latest ones kept.

import { decodeMaps } from "./maps.js";

const KEPT_BYTES = 64e6;

// source.maps(view, index) gives {maps: bytes, detail: null | {heads, maps: bytes}} of a frame.
export function makeLoader(source) {
  const kept = new Map();
  const keyOf = (view, index) => `${view.frames[index].step} ${view.name}`;
  const sizeOf = (frame) => frame.maps.values.byteLength + (frame.detail?.values.byteLength ?? 0);

  async function load(view, index) {
    const key = keyOf(view, index);
    if (!kept.has(key)) {
      const bytes = await source.maps(view, index);
      const detail = bytes.detail ? await decodeMaps(bytes.detail.maps) : null;
      const detailHeads = (bytes.detail?.heads ?? []).map(([layer, head]) => `${layer} ${head}`);
      kept.set(key, { maps: await decodeMaps(bytes.maps), detail, detailHeads });
    }
    const frame = kept.get(key);
    kept.delete(key);
    kept.set(key, frame);
    let total = [...kept.values()].reduce((sum, other) => sum + sizeOf(other), 0);
    for (const [oldest, other] of kept) {
      if (total <= KEPT_BYTES || kept.size <= 2) break;
      kept.delete(oldest);
      total -= sizeOf(other);
    }
    return frame;
  }
  return { load, forget: () => kept.clear() };
}
