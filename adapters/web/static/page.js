// The chat page: sessions, the conversation, and what the keys do.

import * as api from "./api.js";
import { TurnView } from "./answer.js";
import { announce, el, icon } from "./dom.js";
import * as memory from "./memory.js";
import { openCodex, openPromptHistory, sidePanel } from "./panels.js";

const $ = (id) => document.getElementById(id);
const log = $("log");
const scroller = $("scroller");
const message = $("message");

const STARTERS = [
  "What is our branch naming convention?",
  "Who has to approve a pull request?",
  "A build on main is red. What do I do first?",
];
// What the server calls whoever gave no name.
const OWN_NAMES = new Set(["Local user", "Web user"]);
const RUN = /^\/run\s+/;
const NEAR_THE_END_PX = 90;
const TRIES = 6;
const LOST = "The server cannot be reached. Trying again takes the answer up where it is; nothing is asked twice.";

const tabs = new BroadcastChannel("duet");
const narrow = matchMedia("(max-width: 860px)");
let sessionId = "";
let views = new Map();
let streams = new AbortController();

// ── Sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────

async function showSession(id, { focus = true } = {}) {
  streams.abort();
  streams = new AbortController();
  sessionId = id;
  views = new Map();
  memory.setCurrent(id);
  if (location.hash) history.replaceState(null, "", location.pathname);
  log.replaceChildren();
  drawSessions();
  closeSidebar();
  if (sidePanel.opener === $("open-log")) sidePanel.close(); // it shows another session, or one from before a reset
  if (focus) message.focus();
  await loadTranscript(id);
}

async function loadTranscript(id) {
  let transcript = { turns: [] };
  try {
    transcript = await api.getJson(`/v1/sessions/${encodeURIComponent(id)}`);
  } catch (error) {
    if (id === sessionId) log.append(el("p", { className: "fault" }, error.message));
  }
  if (id !== sessionId) return;
  for (const turn of transcript.turns) drawTurn(turn);
  for (const turn of memory.session(id).pending) {
    const view = views.get(turn.turnId);
    if (view?.isDone) memory.dropPending(id, turn.turnId);
    else if (view) run(view, (signal) => api.follow(id, turn.turnId, signal));
    else run(addTurn({ ...turn, author: "You", at: Date.now() }), asking(id, turn)); // perhaps it never arrived
  }
  drawEmpty();
  if (views.size) toEnd();
}

/** Show a turn of the transcript. One that is still open is followed once all are drawn. */
function drawTurn(turn) {
  const author = OWN_NAMES.has(turn.author) ? "You" : turn.author;
  const pending = memory.session(sessionId).pending.find((one) => one.turnId === turn.turnId);
  const view = addTurn({ ...turn, ...pending, author, at: turn.ts });
  if (turn.answer) view.show(turn.answer);
  else if (!pending) memory.addPending(sessionId, { turnId: turn.turnId, text: turn.text, kind: turn.kind });
}

function plainAnswer({ turnId, text, html }) {
  return { turnId, outcome: "answered", text, html, sources: [], commands: [], ticket: null, notes: [], model: "", incident: "", totalMs: 0 };
}

function drawSessions() {
  const kept = memory.sessions();
  const shown = kept.some((one) => one.id === sessionId) ? kept : [memory.session(sessionId), ...kept];
  $("sessions").replaceChildren(...shown.map(sessionItem));
  const name = memory.session(sessionId).title || "New session";
  $("title").textContent = name;
  document.title = name === "New session" ? "Duet" : `${name} · Duet`;
}

function sessionItem({ id, title }) {
  const name = title || "New session";
  const current = id === sessionId;
  return el(
    "li",
    { className: current ? "is-current" : "" },
    el("button", { type: "button", className: "session", "aria-current": current ? "true" : null, title: name, onclick: () => showSession(id) }, name),
    el("button", { type: "button", className: "icon-button remove", "aria-label": `Take “${name}” off the list`, title: "Take off the list", onclick: () => removeSession(id) }, icon("close")),
  );
}

function removeSession(id) {
  memory.forget(id);
  tabs.postMessage({ what: "sessions" });
  if (id === sessionId) showSession(memory.sessions()[0]?.id ?? memory.newId());
  else drawSessions();
  $("new-session").focus();
}

// ── Turns ────────────────────────────────────────────────────────────────────────────────────────────────────────

function addTurn(turn) {
  const view = new TurnView(turn, sessionId, { retry, decide });
  if (!turn.text) view.question.remove();
  views.set(turn.turnId, view);
  log.append(view.node);
  drawEmpty();
  return view;
}

function send(text) {
  const kind = RUN.test(text) ? "run" : "ask";
  const words = kind === "run" ? text.replace(RUN, "") : text;
  const turn = { turnId: memory.newId(), text: words, kind };
  if (!memory.session(sessionId).title) memory.change(sessionId, { title: words.replace(/\s+/g, " ").slice(0, 80) });
  memory.addPending(sessionId, turn);
  drawSessions();
  const id = sessionId;
  const view = addTurn({ ...turn, author: "You", at: Date.now() });
  toEnd();
  // The other tabs follow what the server has heard: before, there is nothing to follow.
  run(view, asking(id, turn), () => tabs.postMessage({ what: "asked", sessionId: id, turn }));
}

function asking(id, { turnId, text, kind }) {
  return (signal) => api.ask({ sessionId: id, message: text, kind, turnId }, signal);
}

/**
 * Follow a turn to its end. What breaks is taken up again by the turn's id, since it goes on without us; until the
 * server is known to have heard it, it is opened anew, so that nothing is lost while the server cannot be reached.
 */
async function run(view, open, onHeard = () => {}) {
  const { signal } = streams;
  const { sessionId: id, turnId } = view;
  const follow = (signal) => api.follow(id, view.turnId, signal);
  let isHeard = false;
  let refusal = "";
  let isRefused = false; // for good
  drawStop();
  for (let tries = 0; tries < TRIES && !view.isDone && !refusal; tries++) {
    try {
      for await (const [name, data] of (isHeard ? follow : open)(signal)) {
        if (!isHeard) onHeard();
        isHeard = true;
        if (name === "heard") view.turnId = data.turnId;
        const stuck = isAtEnd();
        view.take(name, data);
        if (stuck) toEnd();
      }
    } catch (error) {
      if (error instanceof api.ApiError) [refusal, isRefused] = [error.message, error.isFinal];
    }
    if (signal.aborted) return;
    if (!view.isDone && !refusal && tries > 0) await new Promise((done) => setTimeout(done, 300 * 2 ** tries));
    if (signal.aborted) return;
    view.draft.textContent = "";
    view.live.replaceChildren();
  }
  const isSettled = view.isDone;
  if (!isSettled) {
    view.resend = isHeard ? follow : open;
    view.show(failure(view.turnId, refusal || LOST));
  }
  // What was lost on the way is taken up again after a reload or a login too.
  if (isSettled || isRefused) for (const known of [turnId, view.turnId]) memory.dropPending(id, known);
  announce(view.spoken);
  drawStop();
}

function failure(turnId, text) {
  const html = el("p", {}, text).outerHTML;
  return { ...plainAnswer({ turnId, text, html }), outcome: "failed" };
}

function retry(view) {
  const { turnId } = view;
  const newId = memory.newId();
  const open = view.resend ?? ((signal) => api.retry(view.sessionId, turnId, newId, signal));
  view.resend = null;
  view.working();
  message.focus();
  run(view, open);
}

function decide(view, ticketId, verdict) {
  view.working();
  message.focus();
  const newId = memory.newId();
  run(view, (signal) => api.decide(view.sessionId, ticketId, verdict, newId, signal));
}

function runningViews() {
  return [...views.values()].filter((view) => !view.isDone && view.reply.hasAttribute("aria-busy"));
}

async function stopLatest() {
  const view = runningViews().at(-1);
  if (!view) return;
  try {
    await api.postJson(`/v1/turns/${encodeURIComponent(view.turnId)}/stop`, { sessionId });
  } catch (error) {
    tell(error.message);
  }
}

// ── Reset ────────────────────────────────────────────────────────────────────────────────────────────────────────

function askReset() {
  const dialog = $("confirm-reset");
  dialog.returnValue = "keep";
  dialog.onclose = () => dialog.returnValue === "reset" && reset();
  dialog.showModal();
}

async function reset() {
  const id = sessionId;
  drawResetting(true);
  try {
    const done = await api.postJson("/reset", { sessionId: id });
    memory.change(id, { title: "", pending: [] });
    tabs.postMessage({ what: "reset", sessionId: id });
    if (id === sessionId) await showSession(id);
    else drawSessions();
    const left = done.errors ?? [];
    for (const error of left) log.append(el("p", { className: "fault" }, error));
    announce(["The session was reset.", ...left].join(" "));
  } catch (error) {
    tell(error.message);
  }
  drawResetting(false);
}

/** A reset waits for what is under way, and for the sandbox to be gone. */
function drawResetting(isOn) {
  $("reset").disabled = isOn;
  $("reset").lastElementChild.textContent = isOn ? "Resetting …" : "Reset";
}

// ── What answers ─────────────────────────────────────────────────────────────────────────────────────────────────

async function showModel() {
  try {
    const { model, documents } = await api.getJson("/health");
    $("model").textContent = `${model} · ${documents} document${documents === 1 ? "" : "s"}`;
  } catch (error) {
    $("model").textContent = error.message;
  }
}

// ── The other tabs ───────────────────────────────────────────────────────────────────────────────────────────────

tabs.onmessage = ({ data }) => {
  drawSessions();
  if (data.sessionId !== sessionId) return;
  if (data.what === "reset") showSession(sessionId, { focus: false });
  if (data.what === "asked" && !views.has(data.turn.turnId)) {
    const view = addTurn({ ...data.turn, author: "You", at: Date.now() });
    toEnd();
    run(view, (signal) => api.follow(view.sessionId, view.turnId, signal));
  }
};

// ── What is drawn ────────────────────────────────────────────────────────────────────────────────────────────────

function drawEmpty() {
  $("welcome").hidden = views.size > 0;
}

/** Say at the end of the conversation what went wrong with a button. */
function tell(fault) {
  log.append(el("p", { className: "fault", role: "alert" }, fault));
  toEnd();
}

function drawStop() {
  $("stop").hidden = runningViews().length === 0;
}

function isAtEnd() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_THE_END_PX;
}

function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
}

function grow() {
  message.style.height = "auto";
  message.style.height = `${Math.min(message.scrollHeight, innerHeight * 0.4)}px`;
}

function drawTheme() {
  const theme = document.documentElement.dataset.theme ?? "system";
  $("theme-name").textContent = `Theme: ${theme}`;
}

function nextTheme() {
  const root = document.documentElement;
  const next = { system: "light", light: "dark", dark: "system" }[root.dataset.theme ?? "system"];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  memory.setTheme(next);
  drawTheme();
}

function openSidebar() {
  document.body.classList.add("has-sidebar");
  $("open-sidebar").setAttribute("aria-expanded", "true");
  $("close-sidebar").focus();
}

function closeSidebar({ focus = true } = {}) {
  if (!document.body.classList.contains("has-sidebar")) return;
  document.body.classList.remove("has-sidebar");
  $("open-sidebar").setAttribute("aria-expanded", "false");
  if (focus) $("open-sidebar").focus();
}

/** The drawer is no dialog: it goes when the focus or a tap goes elsewhere. */
function leaveSidebar(event) {
  const to = event.relatedTarget ?? event.target;
  if (to instanceof Element && !$("sidebar").contains(to) && !to.closest("#open-sidebar")) closeSidebar({ focus: false });
}

// ── Keys and buttons ─────────────────────────────────────────────────────────────────────────────────────────────

function submit() {
  const text = message.value.trim();
  if (!text) return;
  message.value = "";
  grow();
  send(text);
}

function escape() {
  if (document.body.classList.contains("has-sidebar")) closeSidebar();
  else if ($("panel").contains(document.activeElement)) sidePanel.close();
  else if (runningViews().length) stopLatest();
  else sidePanel.close();
}

function lastQuestion() {
  const view = [...views.values()].filter((one) => one.text).at(-1);
  return view ? (view.kind === "run" ? `/run ${view.text}` : view.text) : "";
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
message.addEventListener("input", grow);
message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  } else if (event.key === "ArrowUp" && !message.value) {
    event.preventDefault();
    message.value = lastQuestion();
    grow();
  }
});
document.addEventListener("keydown", (event) => {
  if ($("confirm-reset").open) return;
  const typing = event.target.closest("input, textarea");
  if (event.key === "Escape") escape();
  else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    message.focus();
  }
});
scroller.addEventListener("scroll", () => ($("to-end").hidden = isAtEnd()));
addEventListener("hashchange", () => location.hash && showSession(memory.currentId()));
$("to-end").addEventListener("click", toEnd);
$("stop").addEventListener("click", stopLatest);
$("new-session").addEventListener("click", () => showSession(memory.newId()));
$("reset").addEventListener("click", askReset);
$("open-log").addEventListener("click", ({ currentTarget }) => openPromptHistory(currentTarget, sessionId));
$("open-codex").addEventListener("click", ({ currentTarget }) => {
  closeSidebar();
  openCodex(currentTarget);
});
$("close-panel").addEventListener("click", () => sidePanel.close());
$("theme").addEventListener("click", nextTheme);
$("open-sidebar").addEventListener("click", openSidebar);
$("close-sidebar").addEventListener("click", () => closeSidebar());
$("sidebar").addEventListener("focusout", (event) => event.relatedTarget && leaveSidebar(event));
$("conversation").addEventListener("pointerdown", leaveSidebar);
narrow.addEventListener("change", () => closeSidebar({ focus: false }));

$("starters").append(...STARTERS.map((text) => el("button", { type: "button", className: "starter", onclick: () => send(text) }, text)));
drawTheme();
showSession(memory.currentId());
showModel();
