// A token in marks for the eye and in words for the ear, where its characters cannot be seen.

const MARKS = {
  " ": "·",
  "\n": "↵",
  "\t": "⇥",
  "\r": "‹CR›",
  "\0": "‹NUL›",
  "\u001b": "‹ESC›",
  "\u007f": "‹DEL›",
  "\u00a0": "‹NBSP›",
};
const WORDS = {
  0x00: "NUL",
  0x09: "tab",
  0x0a: "newline",
  0x0d: "carriage return",
  0x1b: "escape",
  0x20: "space",
  0x7f: "delete",
  0xa0: "no-break space",
  0xad: "soft hyphen",
  0x200b: "zero-width space",
  0x200c: "zero-width non-joiner",
  0x200d: "zero-width joiner",
  0x200e: "left-to-right mark",
  0x200f: "right-to-left mark",
  0x2028: "line separator",
  0x2029: "paragraph separator",
  0x202a: "left-to-right embedding",
  0x202b: "right-to-left embedding",
  0x202c: "end of direction",
  0x202d: "left-to-right override",
  0x202e: "right-to-left override",
  0x2066: "left-to-right isolate",
  0x2067: "right-to-left isolate",
  0x2068: "isolate",
  0x2069: "end of isolate",
  0xfeff: "byte order mark",
  0x3000: "ideographic space",
};
const INVISIBLE = /[\p{C}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/u;
const JOINED_EMOJI = /^\p{Extended_Pictographic}[\p{Extended_Pictographic}\p{Emoji_Modifier}\u200d\ufe0f]*$/u;
const STARTS_WITH_MARK = /^\p{M}/u;
const SHOWN_CHARACTERS = 48;

function codePoint(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function markOf(character) {
  if (character in MARKS) return MARKS[character];
  return INVISIBLE.test(character) ? `‹${codePoint(character)}›` : character;
}

function wordOf(character) {
  return WORDS[character.codePointAt(0)] ?? codePoint(character);
}

// The first characters of a text; a cut never parts the two halves of a character.
function start(text) {
  return Array.from(text.slice(0, 4 * SHOWN_CHARACTERS)).slice(0, SHOWN_CHARACTERS);
}

// The text with a mark for every character that cannot be seen; the text itself where all can.
export function markedText(text) {
  if (text === "") return "∅";
  if (JOINED_EMOJI.test(text) || !(INVISIBLE.test(text) || STARTS_WITH_MARK.test(text))) return text;
  const characters = start(text);
  const cut = characters.join("").length < text.length ? "…" : "";
  return (STARTS_WITH_MARK.test(text) ? "◌" : "") + characters.map(markOf).join("") + cut;
}

// As markedText, and never longer than `length` characters.
export function shortText(text, length) {
  const marked = markedText(text);
  const characters = start(marked);
  if (characters.length <= length && characters.join("").length === marked.length) return marked;
  return characters.slice(0, length - 1).join("") + "…";
}

// A name that can be heard: "space the", "newline ×2", "right-to-left override".
export function spokenName(token) {
  if (token.text === "") return "empty token";
  const parts = [];
  let invisible = false;
  for (const character of JOINED_EMOJI.test(token.text) ? [token.text] : start(token.text)) {
    const hidden = character.length <= 2 && INVISIBLE.test(character);
    const last = parts[parts.length - 1];
    if (hidden && invisible && last.word === wordOf(character)) last.count += 1;
    else if (!hidden && parts.length && !invisible) last.word += character;
    else parts.push({ word: hidden ? wordOf(character) : character, count: 1 });
    invisible = hidden;
  }
  const words = parts.map(({ word, count }) => (count > 1 ? `${word} ×${count}` : word)).join(" ");
  const cut = token.text.length > 4 * SHOWN_CHARACTERS ? ` … ${token.text.length} characters` : "";
  return (token.special ? "special token " : token.bytes ? "bytes " : "") + words + cut;
}

// A token inside a sentence of the page.
export function quoted(token) {
  return `“${shortText(token.text, 24)}”`;
}
