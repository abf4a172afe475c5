// A verbatim quotation: shown with its code as code, and marked where it stands in the section.

import { el } from "./dom.js";

// What Markdown writes and a page does not show, and what a line break may stand for.
const UNSEEN = /[\s`*_~\\]/;

/** Give the words of a quotation or a note, code between backticks as code. */
export function quoted(quote) {
  const pieces = quote.split(/`([^`]+)`/);
  return pieces.map((piece, n) => (n % 2 ? el("code", {}, piece) : piece));
}

/** Mark the quotation in a rendered section, over as many elements as it spans. */
export function markQuote(block, quote) {
  const wanted = seen(quote.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1"));
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const places = [];
  let text = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let at = 0; at < node.data.length; at++) {
      if (UNSEEN.test(node.data[at])) continue;
      text += node.data[at];
      places.push({ node, at });
    }
  }
  const start = wanted ? text.indexOf(wanted) : -1;
  if (start < 0) return;
  const ends = new Map();
  for (const { node, at } of places.slice(start, start + wanted.length)) {
    ends.set(node, [ends.get(node)?.[0] ?? at, at]);
  }
  for (const [node, [first, last]] of ends) {
    const found = node.splitText(first);
    found.splitText(last - first + 1);
    found.replaceWith(el("mark", {}, found.data));
  }
}

function seen(text) {
  return [...text].filter((one) => !UNSEEN.test(one)).join("");
}
