// The viewer: state in, pictures out. `mount` puts it into an element and shows what a source offers.
//
// A source is {names(): names of runs, open(name): Promise<View>, maps(view, index): Promise of a frame's bytes,
// paired: whether it is two runs to be compared from the start}.

import { setText, fillSelect } from "./dom.js";
import { colourTables, pageColours } from "./colours.js";
import { exportPicture, exportTable } from "./export.js";
import { listenToKeys } from "./keyboard.js";
import { makeGrid } from "./grid.js";
import { makeLoader } from "./loader.js";
import { makeScene, whyIncomparable } from "./scene.js";
import { makeSentence } from "./sentence.js";
import { makeShell } from "./shell.js";
import { readout } from "./readout.js";
import { stepText } from "./numbers.js";
import { DIRECTIONS, MODES, SAME_STEP, fitState, nearestFrame, readHash, writeHash } from "./state.js";

const HASH_MILLISECONDS = 150;

export async function mount(root, source) {
  const loader = makeLoader(source);
  const passing = { token: null, cell: null, head: null };
  let state = readHash(location.hash);
  let shown = null;
  let scene = null;
  let sentence = null;
  let grid = null;
  let look = readLook();
  let turn = 0;
  let hashTimer = null;

  const actions = {
    run: (name) => change({ run: name, against: state.against === name ? null : state.against }),
    step: (index) => change({ step: stepOf(index) }),
    frame: (by) => {
      shell.film.stop();
      change({ step: stepOf(clamp(shown.index + by, shown.view.frames.length)) });
    },
    compare: (name, at) => change(comparison(name, at)),
    toggleComparison: () => change(state.against === null ? comparison(nextRun(), null) : { against: null, at: null }),
    lock: (token) => choose({ token: token === state.token ? null : token }),
    hover: (token) => pass({ token }),
    choose: (layer, head) => choose({ layer, head, mode: "head" }),
    preview: (head) => pass({ head }),
    direction: (direction) => choose({ direction: direction ?? other(DIRECTIONS, state.direction) }),
    mode: (mode) => choose({ mode: mode ?? other(MODES, state.mode) }),
    point: (cell) => pass({ cell }),
    pick: ({ query, key }) => choose({ token: state.direction === "to" ? query : key }),
    pickCell: () => passing.cell && actions.pick(passing.cell),
    resized: () => paint(),
    savePicture: () => exportPicture(scene, shell.stage.pictures()),
    saveTable: () => exportTable(scene),
    help: () => shell.help.showModal(),
    play: () => shell.film.toggle(),
    clear: () => (passing.cell ? pass({ cell: null }) : choose({ token: null })),
    token: (by) => {
      const from = state.token ?? sentence.focused() ?? (by > 0 ? -1 : shown.view.tokens.length);
      moveTo(clamp(from + by, shown.view.tokens.length));
    },
    tokenEnd: (last) => moveTo(last ? shown.view.tokens.length - 1 : 0),
    head: (layers, heads) => {
      const { n_layers, n_heads } = shown.view;
      choose({ layer: clamp(state.layer + layers, n_layers), head: clamp(state.head + heads, n_heads) });
      if (grid.contains(document.activeElement)) grid.focus(state.layer, state.head);
    },
    cell: (rows, columns) => {
      const last = shown.view.tokens.length;
      const block = scene.plane.pool;
      const { query, key } = passing.cell ?? { query: state.token ?? last - 1, key: 0 };
      const row = passing.cell ? clamp(query + rows * block, last) : query;
      pass({ cell: { query: row, key: clamp(passing.cell ? key + columns * block : key, row + 1) } });
    },
  };
  const shell = makeShell(root, actions);

  function clamp(value, count) {
    return Math.min(Math.max(value, 0), count - 1);
  }
  function other(choices, value) {
    const values = choices.map(([name]) => name);
    return values[(values.indexOf(value) + 1) % values.length];
  }
  function stepOf(index) {
    return index === shown.view.frames.length - 1 ? null : shown.view.frames[index].step;
  }
  // The run that the comparison key stands for: the other one of a pair, else this run itself.
  function nextRun() {
    const names = source.names();
    return names.length === 2 ? names.find((name) => name !== shown.view.name) : shown.view.name;
  }
  function comparison(name, at) {
    const against = name === undefined ? state.against : name;
    if (against === null) return { against: null, at: null };
    return { against, at: at ?? (against === shown.view.name ? shown.view.frames[0].step : SAME_STEP) };
  }
  function moveTo(token) {
    const follow = document.activeElement === document.body || sentence.focused() !== null;
    choose({ token });
    if (follow) sentence.focus(token);
  }

  // What needs no new frame is drawn at once.
  function choose(changes) {
    Object.assign(state, changes);
    paint();
    saveHash();
  }
  function pass(changes) {
    if (Object.entries(changes).every(([name, value]) => passing[name] === value)) return;
    Object.assign(passing, changes);
    paint();
  }
  async function change(changes) {
    Object.assign(state, changes);
    saveHash();
    await show();
  }

  async function show() {
    const mine = ++turn;
    try {
      const next = await fetchShown();
      if (mine !== turn) return;
      if (next.view !== shown?.view) rebuild(next.view);
      shown = next;
      shell.alert(next.problem);
      paint();
    } catch (error) {
      if (mine === turn) shell.alert(`This cannot be shown: ${error.message}.`);
    }
  }
  async function fetchShown() {
    const names = source.names();
    if (!names.includes(state.run)) state.run = names[0] ?? null;
    if (state.run === null) throw new Error("no run has recorded attention yet");
    if (fresh() && source.paired) Object.assign(state, { against: names[1], at: SAME_STEP });
    const view = await source.open(state.run);
    if (view.frames.length === 0) throw new Error(`${view.name} has recorded no attention yet`);
    state = fitState(state, view, fresh());
    const index = nearestFrame(view, state.step);
    const frame = await loader.load(view, index);
    return { view, index, frame, ...(await fetchReference(view, index)) };
  }
  async function fetchReference(view, index) {
    if (state.against === null || !source.names().includes(state.against)) return { reference: null };
    const other = await source.open(state.against);
    const problem = whyIncomparable(view, other);
    if (problem) return { reference: null, problem };
    const at = nearestFrame(other, state.at === SAME_STEP ? view.frames[index].step : state.at);
    return { reference: { view: other, index: at, frame: await loader.load(other, at) } };
  }
  // A first visit: nothing stands in the address.
  function fresh() {
    return shown === null && location.hash.length < 2;
  }

  function rebuild(view) {
    const sameSentence =
      shown &&
      JSON.stringify([shown.view.tokens, shown.view.n_layers, shown.view.n_heads, shown.view.prompt_length]) ===
        JSON.stringify([view.tokens, view.n_layers, view.n_heads, view.prompt_length]);
    if (sameSentence) return;
    sentence = makeSentence(view, actions);
    grid = makeGrid(view, actions);
    shell.sentencePlace.replaceChildren(sentence.element);
    shell.gridPlace.replaceChildren(grid.element);
    shell.main.classList.toggle("deep", view.n_layers > 3);
    Object.assign(passing, { token: null, cell: null, head: null });
  }

  function paint() {
    if (!shown) return;
    scene = makeScene(shown, state, passing, look);
    shell.main.hidden = false;
    paintHeader();
    sentence.update(scene);
    shell.direction.update(state.direction);
    shell.mode.update(state.mode);
    setText(shell.words, readout(scene));
    shell.prediction.update(scene);
    const reference = shown.reference && { name: state.against, at: state.at, view: shown.reference.view };
    shell.film.update(
      shown.view,
      shown.index,
      source.names().filter((name) => name !== shown.view.name),
      reference,
    );
    shell.main.classList.toggle("comparing", scene.signed);
    setText(shell.title, scene.name);
    shell.stage.update(scene);
    shell.legend.update(scene);
    grid.update(scene);
    shell.scores.update(scene);
  }
  function paintHeader() {
    const { view, index } = shown;
    const names = source.names();
    setText(shell.heading, names.length > 1 ? "Attention of" : view.name);
    shell.runs.hidden = names.length < 2;
    fillSelect(
      shell.runs,
      names.map((name) => [JSON.stringify(name), name]),
      JSON.stringify(view.name),
    );
    const counts = [
      [view.n_layers, "layer"],
      [view.n_heads, "head"],
      [view.tokens.length, "token"],
    ];
    const facts = counts.map(([count, noun]) => `${count} ${noun}${count === 1 ? "" : "s"}`);
    setText(shell.facts, [...facts, stepText(view.frames[index].step)].join(" · "));
  }
  function readLook() {
    const theme = document.documentElement.dataset.theme;
    return { tables: colourTables(theme), page: pageColours(document.documentElement) };
  }

  function saveHash() {
    clearTimeout(hashTimer);
    hashTimer = setTimeout(() => history.replaceState(null, "", writeHash(state)), HASH_MILLISECONDS);
  }
  window.addEventListener("hashchange", () => {
    state = readHash(location.hash);
    show();
  });
  new MutationObserver(() => {
    look = readLook();
    paint();
  }).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  listenToKeys(document, (target) => placeOf(target, shell, grid), {
    ...actions,
    compare: actions.toggleComparison,
    direction: () => actions.direction(),
    mode: () => actions.mode(),
  });
  await show();
  return { refresh: show, forget: loader.forget };
}

function placeOf(target, shell, grid) {
  if (shell.help.open || shell.main.hidden) return null;
  if (target.matches("select, input")) return "field";
  if (target.matches("canvas.map")) return "map";
  if (grid?.contains(target)) return "heads";
  return target.matches("button") ? "button" : "page";
}
