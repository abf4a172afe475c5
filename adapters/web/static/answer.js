// One turn on the page: the question, and the answer from its first draft to its last line.

import { getJson } from "./api.js";
import { colouredRuns } from "./colours.js";
import { copyButton, duration, el, icon, pathOf, serverHtml } from "./dom.js";
import { markQuote, quoted } from "./quote.js";

const LONG_OUTPUT_LINES = 20;
const WORKING = { ask: "Looking it up", run: "Starting the sandbox" };

/** Give a clock time for a message. */
function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** A turn's place in the conversation. `doIt` holds what its buttons do: `retry(turnId, view)`, `decide(…)`. */
export class TurnView {
  constructor({ turnId, author, text, kind, at }, sessionId, doIt) {
    Object.assign(this, { turnId, sessionId, doIt, kind, text, command: null });
    this.question = this.#question(author, text, kind, at);
    this.draft = el("div", { className: "draft" });
    this.live = el("div", { className: "live" });
    this.body = el("div", { className: "answer-body" });
    this.meta = el("span", { className: "meta" });
    this.reply = el(
      "article",
      { className: "answer", "aria-label": "Duet" },
      el("div", { className: "speaker" }, el("span", { className: "name" }, "Duet"), this.meta),
      this.body,
    );
    this.node = el("section", { className: "turn", "data-turn": turnId }, this.question, this.reply);
    this.working();
  }

  #question(author, text, kind, at) {
    const shown = kind === "run" ? el("code", { className: "own-command" }, text) : text;
    return el(
      "article",
      { className: `question ${kind === "run" ? "is-command" : ""}`, "aria-label": author },
      el("div", { className: "speaker" }, el("span", { className: "name" }, author), el("span", { className: "meta" }, clock(at))),
      el("div", { className: "said" }, shown),
    );
  }

  working() {
    this.isDone = false;
    this.command = null;
    this.reply.setAttribute("aria-busy", "true");
    this.wait = el("p", { className: "working" }, WORKING[this.kind] ?? WORKING.ask, el("span", { className: "dots", "aria-hidden": "true" }));
    this.draft.textContent = "";
    this.live.replaceChildren();
    this.body.replaceChildren(this.draft, this.live, this.wait);
    this.meta.textContent = "";
  }

  /** Take one event of the stream. */
  take(name, data) {
    if (name === "draft") this.#drafted(data);
    else if (name === "command") this.#commandStarted(data.command);
    else if (name === "output") this.#commandSaid(data.text);
    else if (name === "result") this.#commandEnded(data);
    else if (name === "done") this.show(data.answer);
  }

  #drafted({ text, replace }) {
    this.draft.textContent = replace ? text : this.draft.textContent + text;
    this.wait.hidden = true;
  }

  #commandStarted(command) {
    this.wait.hidden = true;
    this.running = { output: el("pre", { tabIndex: 0, role: "group", "aria-label": "Output so far" }), command };
    this.live.append(
      el(
        "figure",
        { className: "command is-running" },
        el("figcaption", {}, el("code", {}, command), el("span", { className: "badge" }, "running")),
        this.running.output,
      ),
    );
    this.running.node = this.live.lastElementChild;
  }

  #commandSaid(text) {
    if (!this.running) return;
    this.running.output.textContent += text;
    this.running.output.scrollTop = this.running.output.scrollHeight;
  }

  #commandEnded(result) {
    this.running?.node.replaceWith(commandCard(result));
    this.running = null;
    this.wait.hidden = false;
    this.wait.firstChild.textContent = "Reading the output";
  }

  /** Show the finished answer. */
  show(answer) {
    this.isDone = true;
    this.answer = answer;
    this.turnId = answer.turnId || this.turnId;
    this.reply.removeAttribute("aria-busy");
    const parts = [];
    if (answer.outcome === "failed" || answer.outcome === "refused") parts.push(this.#fault(answer));
    else if (answer.html) parts.push(linked(serverHtml(answer.html), answer.sources, this.turnId));
    parts.push(...answer.commands.map(commandCard));
    if (answer.ticket) parts.push(this.#ticket(answer.ticket));
    if (answer.notes.length) parts.push(el("ul", { className: "notes" }, answer.notes.map((note) => el("li", {}, quoted(note)))));
    if (answer.sources.length) parts.push(sourcesPanel(answer.sources, this.turnId));
    if (answer.outcome === "answered" && answer.text && !answer.ticket) {
      parts.push(el("div", { className: "actions" }, copyButton(() => answer.text, "Copy the answer", "Copy")));
    }
    this.body.replaceChildren(...parts);
    this.meta.textContent = [answer.model, answer.totalMs ? duration(answer.totalMs) : ""].filter(Boolean).join(" · ");
  }

  /** Say why there is no answer, and offer to try again. */
  #fault(answer) {
    const again = el("button", { type: "button", className: "mini-button again", onclick: () => this.doIt.retry(this) }, icon("again"), "Try again");
    return el(
      "div",
      { className: "fault" },
      serverHtml(answer.html),
      answer.incident ? el("p", { className: "incident" }, "Incident ", el("code", {}, answer.incident)) : null,
      answer.outcome === "failed" ? again : null,
    );
  }

  #ticket(ticket) {
    const decide = (verdict) => () => this.doIt.decide(this, ticket.id, verdict);
    const waiting = ticket.state === "waiting";
    const buttons = el(
      "div",
      { className: "ticket-buttons" },
      el("button", { type: "button", className: "primary", onclick: decide("approve") }, "Run it"),
      el("button", { type: "button", onclick: decide("deny") }, "Don’t"),
    );
    return el(
      "div",
      { className: "ticket" },
      el("p", {}, waiting ? "This command waits for your yes:" : `${ticket.state} by ${ticket.decidedBy}:`),
      el("pre", { tabIndex: 0 }, ticket.command),
      waiting ? buttons : null,
    );
  }

  /** What a screen reader is told once, when it is finished. */
  get spoken() {
    const { answer } = this;
    const commands = answer.commands.map((one) => `Command ${one.command} ended ${ending(one)}.`);
    const sources = answer.sources.length ? [`${answer.sources.length} sources.`] : [];
    return ["Duet:", this.body.querySelector(".prose")?.textContent ?? "", ...commands, ...sources].join(" ");
  }
}

// ── Commands ─────────────────────────────────────────────────────────────────────────────────────────────────────

const ENDINGS = { timeout: "timed out", memory: "out of memory", killed: "killed", not_started: "not started" };

function ending(result) {
  return ENDINGS[result.ended] ?? `exit ${result.exitCode}`;
}

/** Give the card of a finished command. Output is text, whatever it holds. */
export function commandCard(result) {
  const badge = el("span", { className: `badge ${result.success ? "good" : "bad"}` }, ending(result));
  const text = [result.stdout, result.stderr].filter(Boolean).join("\n");
  const streams = [stream(result, "stdout"), stream(result, "stderr")].filter(Boolean);
  const lines = text.replace(/\n$/, "").split("\n").length;
  const body = el("div", { className: "command-body" }, streams);
  const notes = [result.note, result.truncated ? "The output was cut." : "", text || result.note ? "" : "No output"];
  const card = el(
    "figure",
    { className: "command" },
    el(
      "figcaption",
      {},
      el("code", {}, result.command),
      badge,
      result.ended === "not_started" ? null : el("span", { className: "meta" }, duration(result.duration)),
      text ? copyButton(() => text, "Copy the output") : null,
    ),
    body,
    notes.filter(Boolean).map((note) => el("p", { className: "command-note" }, quoted(note))),
  );
  if (lines > LONG_OUTPUT_LINES) collapse(card, body, lines);
  return card;
}

/** Give one stream of a result, with the colours it came with: both streams' stand in one text, joined by a line's end. */
function stream(result, name) {
  const text = result[name];
  if (!text) return null;
  const before = name === "stderr" ? trimmed(result.stdout) : "";
  const shown = result.painted ? colouredRuns(result.painted, before && before.length + 1, trimmed(text).length) : text;
  return el("pre", { tabIndex: 0, role: "group", className: name, "aria-label": name === "stderr" ? name : "Output" }, shown);
}

function trimmed(text) {
  return text.replace(/\n+$/, "");
}

function collapse(card, body, lines) {
  body.classList.add("is-long");
  const button = el("button", { type: "button", className: "mini-button more", "aria-expanded": "false" }, `Show all ${lines} lines`);
  button.addEventListener("click", () => {
    const open = body.classList.toggle("is-open");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show less" : `Show all ${lines} lines`;
  });
  card.append(button);
}

// ── Sources ──────────────────────────────────────────────────────────────────────────────────────────────────────

function sourceAnchor(turnId, number) {
  return `source-${turnId}-${number}`;
}

/** Make `[1]` in the answer's words lead to its source. Code is left alone. */
function linked(block, sources, turnId) {
  const known = new Set(sources.map((source) => String(source.number)));
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest("code, pre, a") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
  );
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const pieces = text.data.split(/\[(\d{1,2})\]/);
    if (pieces.length < 3) continue;
    // A marker never begins a line: the space before it does not break.
    const words = (piece, n) => (n + 1 < pieces.length ? piece.replace(/ $/, "\u00a0") : piece);
    text.replaceWith(...pieces.map((piece, n) => (n % 2 === 0 ? words(piece, n) : marker(piece, known, turnId))));
  }
  return block;
}

function marker(number, known, turnId) {
  if (!known.has(number)) return `[${number}]`;
  const go = (event) => {
    event.preventDefault();
    const source = document.getElementById(sourceAnchor(turnId, number));
    source?.querySelector("summary").focus();
    source?.scrollIntoView({ block: "nearest" });
  };
  return el("a", { className: "marker", href: `#${sourceAnchor(turnId, number)}`, "aria-label": `Source ${number}`, onclick: go }, number);
}

function sourcesPanel(sources, turnId) {
  return el(
    "div",
    { className: "sources" },
    el("h2", {}, sources.length === 1 ? "Source" : "Sources"),
    el("ol", {}, sources.map((source) => el("li", {}, sourceItem(source, turnId)))),
  );
}

/** Give one source: where it stands, the verbatim line, and the section itself once it is opened. */
function sourceItem(source, turnId) {
  const opened = el("div", { className: "section-text" });
  const item = el(
    "details",
    { className: "source", id: sourceAnchor(turnId, source.number) },
    el(
      "summary",
      {},
      el("span", { className: "source-number", "aria-hidden": "true" }, String(source.number)),
      el(
        "span",
        { className: "source-where" },
        el("span", { className: "source-path" }, el("b", {}, source.document), source.heading ? ` › ${pathOf(source.heading)}` : "", el("span", { className: "meta" }, ` line ${source.line}`)),
        source.quote ? el("q", { className: "source-quote" }, quoted(source.quote)) : null,
      ),
    ),
    opened,
  );
  item.addEventListener("toggle", () => item.open && !opened.firstChild && openSection(opened, source));
  return item;
}

async function openSection(place, source) {
  place.replaceChildren(el("p", { className: "working" }, "Opening the section"));
  try {
    const section = await getJson("/v1/codex/section", { id: source.sectionId });
    const text = serverHtml(section.html, { level: 4 });
    markQuote(text, source.quote);
    const away = source.url ? el("p", {}, el("a", { href: source.url, target: "_blank", rel: "noopener noreferrer" }, "Open the document")) : null;
    place.replaceChildren(el("h3", {}, pathOf(section.heading)), text, ...[away].filter(Boolean));
  } catch (error) {
    place.replaceChildren(el("p", { className: "fault" }, error.message));
  }
}
