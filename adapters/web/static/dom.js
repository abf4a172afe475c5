// Making elements. Text is always text; the one door for HTML is `serverHtml`, whose argument the server sanitised.

const policy = globalThis.trustedTypes?.createPolicy("duet", { createHTML: (html) => html });

/** Give an element; `props` are properties, `aria-…`/`data-…` and the like are attributes, null children are left out. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** Give one of the page's own icons. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/**
 * Give a block of HTML that came sanitised from the server, its code blocks and tables made usable.
 * Its headings begin at `level` and leave none out, whatever the text had.
 */
export function serverHtml(html, { level = 2 } = {}) {
  const block = el("div", { className: "prose" });
  block.innerHTML = policy ? policy.createHTML(html) : html;
  orderHeadings(block, level);
  for (const link of block.querySelectorAll("a")) aim(link);
  for (const pre of block.querySelectorAll("pre")) frameCode(pre);
  for (const table of block.querySelectorAll("table")) {
    const scroll = el("div", { className: "table-scroll", tabIndex: 0, role: "group", "aria-label": "Table" });
    table.replaceWith(scroll);
    scroll.append(table);
  }
  return block;
}

/** Open an address beside the page; a link that leads nowhere from here (`other.md#part`) is only its words. */
function aim(link) {
  if (/^(https?|mailto):/.test(link.getAttribute("href") ?? "")) link.target = "_blank";
  else link.replaceWith(...link.childNodes);
}

function orderHeadings(block, first) {
  const open = [];
  for (const heading of block.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const rank = Number(heading.tagName[1]);
    while (open.length && open.at(-1) >= rank) open.pop();
    open.push(rank);
    heading.replaceWith(el(`h${Math.min(6, first + open.length - 1)}`, {}, [...heading.childNodes]));
  }
}

function frameCode(pre) {
  const frame = el("div", { className: "code-frame" });
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  frame.append(pre, copyButton(() => pre.textContent, "Copy code"));
}

/** Give a button that copies what `text()` gives and says so. */
export function copyButton(text, label, visible = "") {
  const button = el(
    "button",
    {
      type: "button",
      className: visible ? "mini-button" : "icon-button copy",
      "aria-label": visible ? null : label,
      title: label,
      onclick: async () => {
        const said = (await copyText(text())) ? "Copied" : "Not copied";
        button.replaceChildren(icon(said === "Copied" ? "check" : "close"), visible ? said : "");
        announce(said);
        setTimeout(() => button.replaceChildren(icon("copy"), visible), 1600);
      },
    },
    icon("copy"),
    visible,
  );
  return button;
}

/** Copy, also where the clipboard is closed to us (plain http from another machine); say whether it went. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

/** Say something once to screen readers. */
export function announce(text) {
  const region = document.getElementById("announce");
  region.textContent = "";
  setTimeout(() => (region.textContent = text), 50);
}

/** Give a heading's path as people read it. */
export function pathOf(heading) {
  return heading.replaceAll(" > ", " › ");
}

/** Give a duration as people read it. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}
