// The colours of a command's output: text with SGR sequences, as the server lets through, to spans of our own palette.

import { el } from "./dom.js";

const SEQUENCE = /\x1b\[([0-9;]*)m/;
const STYLES = { 1: "is-bold", 2: "is-dim", 3: "is-italic", 4: "is-underlined" };
const ENDS = { 22: ["is-bold", "is-dim"], 23: ["is-italic"], 24: ["is-underlined"] };

/** Give the runs of `painted` that follow its first `from` visible characters, `count` characters in all, as nodes. */
export function colouredRuns(painted, from, count) {
  const pieces = painted.split(SEQUENCE);
  const style = { classes: new Set(), colour: "" };
  const nodes = [];
  let at = 0;
  pieces.forEach((piece, n) => {
    if (n % 2) return change(style, piece.split(";").map(Number));
    const shown = piece.slice(Math.max(0, from - at), Math.max(0, from + count - at));
    at += piece.length;
    if (!shown) return;
    const className = [...style.classes, style.colour].filter(Boolean).join(" ");
    nodes.push(className ? el("span", { className }, shown) : shown);
  });
  return nodes;
}

/** Take one sequence into the style. Backgrounds are left out: text stays readable on the page's own. */
function change(style, codes) {
  for (let n = 0; n < codes.length; n++) {
    const code = codes[n];
    if (code === 0) Object.assign(style, { classes: new Set(), colour: "" });
    else if (STYLES[code]) style.classes.add(STYLES[code]);
    else if (ENDS[code]) ENDS[code].forEach((name) => style.classes.delete(name));
    else if (code >= 30 && code <= 37) style.colour = named(code - 30);
    else if (code >= 90 && code <= 97) style.colour = code === 90 ? "is-dim" : named(code - 90);
    else if (code === 39) style.colour = "";
    else if (code === 38 || code === 48) {
      if (code === 38) style.colour = codes[n + 1] === 5 && codes[n + 2] < 16 ? named(codes[n + 2] % 8) : "";
      n += codes[n + 1] === 5 ? 2 : 4; // one of 256, or red, green and blue
    }
  }
}

/** Black and white are the page's own ink, whatever its theme. */
function named(number) {
  return number % 7 ? `is-colour-${number}` : "";
}
