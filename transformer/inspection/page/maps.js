// Attention maps: the binary format, and planes, which are one lower triangle of numbers each.
//
// A plane is {side, pool, tokens, values}: values[i(i+1)/2 + j] is the weight from query block i to key block j.
// A block is pool tokens long and holds the greatest weight in it, so pooling never hides a strong one.

const MAPS_MAGIC = "ATTNMAPS";
const MAPS_VERSION = 1;
const MAPS_HEADER = 24;
const WEIGHT_ONE = 65534;
const WEIGHT_NAN = 65535;

export function triangle(side) {
  return (side * (side + 1)) / 2;
}

// The bytes of a map file -> {pool, side, tokens, values}. Throws an Error in words where they are damaged.
export async function decodeMaps(bytes) {
  const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < MAPS_HEADER || String.fromCharCode(...bytes.subarray(0, 8)) !== MAPS_MAGIC)
    throw new Error("these are no attention maps");
  if (header.getUint16(8, true) !== MAPS_VERSION) throw new Error("these maps were written by a newer version");
  const [count, side, tokens] = [12, 16, 20].map((offset) => header.getUint32(offset, true));
  const body = await inflate(bytes.subarray(MAPS_HEADER));
  const size = count * triangle(side);
  if (body.length !== 2 * size) throw new Error("these maps are cut short");
  const values = new Uint16Array(size);
  for (let k = 0; k < size; k++) values[k] = (body[k] << 8) | body[size + k];
  return { pool: header.getUint16(10, true), side, tokens, values };
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function bytesOfBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = binary.charCodeAt(k);
  return bytes;
}

// One map of a file as a plane.
export function planeOf(maps, index) {
  const size = triangle(maps.side);
  const values = new Float32Array(size);
  for (let k = 0, from = index * size; k < size; k++, from++) {
    const value = maps.values[from];
    values[k] = value === WEIGHT_NAN ? NaN : value / WEIGHT_ONE;
  }
  return { side: maps.side, pool: maps.pool, tokens: maps.tokens, values };
}

// Mean or max over planes, cell by cell; NaN in one is NaN in the result.
function combinePlanes(planes, mode) {
  const values = planes[0].values.slice();
  for (const plane of planes.slice(1))
    for (let k = 0; k < values.length; k++)
      values[k] = mode === "mean" ? values[k] + plane.values[k] : Math.max(values[k], plane.values[k]);
  if (mode === "mean") for (let k = 0; k < values.length; k++) values[k] /= planes.length;
  return { ...planes[0], values };
}

// What `now` has more than `then`; the finer of the two is pooled to the other's blocks.
export function subtractPlanes(now, then) {
  const pool = Math.max(now.pool, then.pool);
  const [a, b] = [now, then].map((plane) => coarsen(plane, pool / plane.pool));
  return { ...a, values: a.values.map((value, k) => value - b.values[k]) };
}

// Blocks `factor` times as long; each takes the value furthest from 0 in it, NaN before all.
export function coarsen(plane, factor) {
  if (factor === 1) return plane;
  const side = Math.ceil(plane.side / factor);
  const values = new Float32Array(triangle(side));
  for (let i = 0, k = 0; i < plane.side; i++) {
    const row = triangle(Math.floor(i / factor));
    for (let j = 0; j <= i; j++, k++) {
      const cell = row + Math.floor(j / factor);
      const value = plane.values[k];
      if (Math.abs(value) > Math.abs(values[cell]) || value !== value) values[cell] = value;
    }
  }
  return { side, pool: plane.pool * factor, tokens: plane.tokens, values };
}

// The weight from a query token to a key token; null where the key is in the query's future.
export function weightAt(plane, query, key) {
  if (key > query) return null;
  return plane.values[triangle(Math.floor(query / plane.pool)) + Math.floor(key / plane.pool)];
}

// What one token gives ("to") or receives ("by"): a number, NaN or null for every token.
export function weightsOf(plane, token, direction) {
  return Array.from({ length: plane.tokens }, (_, other) =>
    direction === "to" ? weightAt(plane, token, other) : weightAt(plane, other, token),
  );
}

// The map of a head, or the mean or max over a layer's heads, at the finest that a frame has of it.
export function framePlane(frame, view, layer, head, mode) {
  const key = `${layer} ${mode === "head" ? head : mode}`;
  frame.planes ??= new Map();
  if (!frame.planes.has(key)) {
    if (frame.planes.size >= 8) frame.planes.delete(frame.planes.keys().next().value);
    const heads = mode === "head" ? [head] : Array.from({ length: view.n_heads }, (_, h) => h);
    const indices = heads.map((h) => frame.detailHeads.indexOf(`${layer} ${h}`));
    const planes = indices.every((index) => index >= 0)
      ? indices.map((index) => planeOf(frame.detail, index))
      : heads.map((h) => planeOf(frame.maps, layer * view.n_heads + h));
    frame.planes.set(key, mode === "head" ? planes[0] : combinePlanes(planes, mode));
  }
  return frame.planes.get(key);
}
