// The side panel: the prompt history of this session, and the Codex.

import { getJson } from "./api.js";
import { copyButton, duration, el, icon, pathOf, serverHtml } from "./dom.js";

const panel = document.getElementById("panel");
const title = document.getElementById("panel-title");
const body = document.getElementById("panel-body");
const back = document.getElementById("panel-back");

/** The panel. One thing is open at a time; closing gives the focus back to the button that opened it. */
export const sidePanel = {
  opener: null,
  shown: null, // changes with what is shown, so that what was asked for before and comes late can tell

  get isOpen() {
    return !panel.hidden;
  },

  open(opener, heading, content) {
    if (this.opener && this.opener !== opener) this.opener.setAttribute("aria-expanded", "false");
    this.opener = opener;
    opener.setAttribute("aria-expanded", "true");
    panel.hidden = false;
    document.body.classList.add("has-panel");
    this.show(heading, content);
    title.focus({ preventScroll: true });
  },

  /** Put something else into the open panel; `goBack` leads to what was there. */
  show(heading, content, goBack = null) {
    this.shown = {};
    title.textContent = heading;
    body.replaceChildren(...[content].flat());
    body.scrollTop = 0;
    back.hidden = !goBack;
    back.onclick = goBack;
  },

  close() {
    if (!this.isOpen) return;
    this.shown = null;
    panel.hidden = true;
    document.body.classList.remove("has-panel");
    this.opener?.setAttribute("aria-expanded", "false");
    this.opener?.focus();
    this.opener = null;
  },
};

/** Put what `load` gives, or why it could not, into the panel, if that is still open for it. */
async function fill(load) {
  const { shown } = sidePanel;
  const content = await load().catch((error) => el("p", { className: "fault" }, error.message));
  if (sidePanel.shown === shown) body.replaceChildren(...[content].flat());
}

// ── Prompt history ───────────────────────────────────────────────────────────────────────────────────────────────

export async function openPromptHistory(opener, sessionId) {
  sidePanel.open(opener, "Prompt history", el("p", { className: "working" }, "Reading the log"));
  await fill(async () => promptHistory(sessionId, await getJson("/prompt-history", { sessionId })));
}

function promptHistory(sessionId, log) {
  if (!log.calls.length) {
    return el("p", { className: "empty" }, "No model was asked in this session yet. Each call will stand here: what exactly was sent, what was found, what came back, and how long it took.");
  }
  const file = `/prompt-history?${new URLSearchParams({ sessionId, format: "md" })}`;
  return [
    el(
      "div",
      { className: "panel-tools" },
      el("a", { className: "mini-button", href: file, download: "prompt-history.md" }, "Download as Markdown"),
      copyButton(() => JSON.stringify(log, null, 2), "Copy as JSON", "Copy as JSON"),
    ),
    ...log.calls.map((call, n) => callCard(call, n + 1)),
  ];
}

function callCard(call, number) {
  const tokens = call.promptTokens || call.replyTokens ? `${call.promptTokens} + ${call.replyTokens} tokens` : "";
  const first = call.firstPieceMs === null ? "" : `first words after ${duration(call.firstPieceMs)}`;
  return el(
    "article",
    { className: "call" },
    el("h3", {}, `${number}. ${call.question || "A turn without words"}`),
    el("p", { className: "meta" }, [call.model, duration(call.latencyMs), first, tokens, `step ${call.step + 1}`].filter(Boolean).join(" · ")),
    call.error ? el("p", { className: "fault" }, call.error) : null,
    foldable(`Sent: ${counted(call.messages.length, "message")}`, call.messages.map(sentMessage)),
    foldable(`Found: ${counted(call.retrieved.length, "section")}, confidence ${Number(call.confidence).toFixed(2)} (${call.band})`, foundTable(call.retrieved)),
    foldable("Reply", el("pre", { tabIndex: 0, role: "group", "aria-label": "Reply" }, call.response), true),
  );
}

function counted(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function foldable(heading, content, open = false) {
  return el("details", { className: "fold", open }, el("summary", {}, heading), ...[content].flat());
}

function sentMessage(message) {
  return el(
    "div",
    { className: "sent" },
    el("div", { className: "sent-head" }, el("span", { className: "role" }, message.role), copyButton(() => message.content, `Copy the ${message.role} message`)),
    el("pre", { tabIndex: 0, role: "group", "aria-label": `${message.role} message` }, message.content),
  );
}

function foundTable(found) {
  if (!found.length) return el("p", { className: "empty" }, "Nothing was found.");
  const rows = found.map((one) => el("tr", {}, el("td", {}, el("b", {}, String(one.document)), ` › ${pathOf(String(one.heading))}`), el("td", { className: "score" }, Number(one.score ?? 0).toFixed(2))));
  return el("table", { className: "found" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Section"), el("th", { scope: "col", className: "score" }, "Score"))), el("tbody", {}, rows));
}

// ── The Codex ────────────────────────────────────────────────────────────────────────────────────────────────────

export async function openCodex(opener) {
  sidePanel.open(opener, "Codex", el("p", { className: "working" }, "Opening the Codex"));
  await fill(async () => codex(await getJson("/v1/codex/documents")));
}

function codex({ documents }) {
  const results = el("div", { className: "codex-list" }, documents.map(documentItem));
  const list = [...results.children];
  const input = el("input", { type: "search", id: "codex-search", placeholder: "Search the standards", autocomplete: "off" });
  const form = el(
    "form",
    { className: "codex-search", role: "search" },
    el("label", { className: "hidden", for: "codex-search" }, "Search the standards"),
    icon("search"),
    input,
  );
  const status = el("p", { className: "meta", role: "status" });
  const view = [form, status, results];
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    find(input.value.trim(), results, list, status, view);
  });
  input.addEventListener("input", () => {
    if (input.value) return;
    view.asked = null;
    results.replaceChildren(...list);
    status.textContent = "";
  });
  return view;
}

function documentItem(item) {
  const place = el("ul", { className: "section-list" });
  const count = counted(item.sections, "section");
  const node = el(
    "details",
    { className: "document" },
    el("summary", {}, el("span", { className: "document-title" }, item.title), el("span", { className: "meta" }, `${item.name} · ${count}`)),
    ...item.faults.map((fault) => el("p", { className: "fault" }, fault)),
    place,
  );
  node.addEventListener("toggle", () => node.open && !place.querySelector("button") && listSections(place, item.name));
  return node;
}

async function listSections(place, document) {
  try {
    const { sections } = await getJson("/v1/codex/sections", { document });
    place.replaceChildren(...sections.map(sectionLine));
  } catch (error) {
    place.replaceChildren(el("li", { className: "fault" }, error.message));
  }
}

function sectionLine(section) {
  const name = section.heading.split(" > ").at(-1);
  const button = el("button", { type: "button", className: "section-link", onclick: () => openSection(section, button) }, name);
  return el("li", { "data-depth": Math.min(section.depth, 4) }, button);
}

async function find(question, results, list, status, view) {
  if (!question) return;
  const asked = (view.asked = {});
  status.textContent = "Searching …";
  try {
    const { hits, band } = await getJson("/v1/codex/search", { q: question });
    if (view.asked !== asked) return; // a later search is what counts
    status.textContent = hits.length ? `${counted(hits.length, "section")}, confidence ${band}` : "Nothing found.";
    results.replaceChildren(...(hits.length ? hits.map((hit) => hitItem(hit, view)) : list));
  } catch (error) {
    status.textContent = error.message;
  }
}

function hitItem(hit) {
  const button = el(
    "button",
    { type: "button", className: "hit", onclick: () => openSection(hit, button) },
    el("span", { className: "hit-where" }, el("b", {}, hit.document), ` › ${pathOf(hit.heading)}`),
    el("span", { className: "hit-text" }, hit.excerpt),
    el("span", { className: "meta" }, `score ${hit.score.toFixed(2)}`),
  );
  return button;
}

async function openSection(line, opener) {
  const before = [...body.childNodes];
  const goBack = () => {
    sidePanel.show("Codex", before);
    opener.focus();
  };
  const { shown } = sidePanel;
  try {
    const section = await getJson("/v1/codex/section", { id: line.id });
    if (sidePanel.shown !== shown) return;
    const where = el("p", { className: "meta" }, `${section.document} · lines ${section.line}–${section.endLine}`);
    sidePanel.show(section.heading.split(" > ").at(-1), [where, serverHtml(section.html, { level: 3 })], goBack);
    title.focus({ preventScroll: true });
  } catch (error) {
    if (sidePanel.shown === shown) sidePanel.show("Codex", el("p", { className: "fault" }, error.message), goBack);
  }
}
