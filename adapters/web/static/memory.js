// What this browser keeps: which sessions there are, and which turns were asked and not seen to their end.
// A session's id is the key to it, so it is 128 random bits, and lives nowhere else.

const SESSIONS = "duet.sessions";
const CURRENT = "duet.current";
const THEME = "duet.theme"; // read by theme.js
const MAX_SESSIONS = 100;

const local = storage("localStorage");
const tab = storage("sessionStorage");

/** Give a storage of the browser; where that is closed to us or full, what is kept lives as long as the page. */
function storage(name) {
  const here = new Map();
  return {
    get(key) {
      if (here.has(key)) return here.get(key);
      try {
        return globalThis[name].getItem(key);
      } catch {
        return null;
      }
    },
    set(key, value) {
      try {
        globalThis[name].setItem(key, value);
        here.delete(key);
      } catch {
        here.set(key, value);
      }
    },
  };
}

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Give every known session, the latest first: `{id, title, at, pending: [{turnId, text, kind}]}`. */
export function sessions() {
  try {
    const kept = JSON.parse(local.get(SESSIONS) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one?.id === "string") : [];
  } catch {
    return [];
  }
}

function keep(all) {
  local.set(SESSIONS, JSON.stringify(all.slice(0, MAX_SESSIONS)));
}

export function session(id) {
  return { title: "", at: 0, pending: [], ...sessions().find((one) => one.id === id), id };
}

/** Change what is kept of a session, and put it first. */
export function change(id, changes) {
  const changed = { ...session(id), ...changes, at: Date.now() };
  keep([changed, ...sessions().filter((one) => one.id !== id)]);
  return changed;
}

export function forget(id) {
  keep(sessions().filter((one) => one.id !== id));
}

export function addPending(id, turn) {
  const before = session(id).pending.filter((one) => one.turnId !== turn.turnId);
  change(id, { pending: [...before, turn] });
}

export function dropPending(id, turnId) {
  const kept = session(id);
  if (kept.pending.some((one) => one.turnId === turnId)) {
    change(id, { pending: kept.pending.filter((one) => one.turnId !== turnId) });
  }
}

/** Give the session this tab shows: from the address, else the tab's last, else the browser's last, else a new one. */
export function currentId() {
  return namedId() || tab.get(CURRENT) || sessions()[0]?.id || newId();
}

export function setCurrent(id) {
  tab.set(CURRENT, id);
}

export function setTheme(theme) {
  local.set(THEME, theme);
}

function namedId() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // half an escape: no id of ours
  }
}
