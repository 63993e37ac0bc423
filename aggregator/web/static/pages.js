// What every page does: sign in where a token is needed, follow the cluster part by part, and sort its tables in place.

const KEY = "kilowatch.token";
const OLD = 10000; // milliseconds without a word after which a page is old

/**
 * @param {string} url
 * @param {{ signal?: AbortSignal, headers?: Record<string, string> }} [more]
 */
function ask(url, more) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...more?.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  return fetch(url, { credentials: "omit", ...more, headers });
}

/** @param {string} text */
const parse = (text) => new DOMParser().parseFromString(text, "text/html");

/** @returns {Promise<Loaded>} */
async function load(url = location.href) {
  const answer = await ask(url);
  const page = parse(await answer.text());
  const main = page.querySelector("main");
  if (!main) throw new Error("not a page of ours");
  return { status: answer.status, page, live: main.dataset.live };
}

/**
 * Makes one node what another is, piece by piece: what has not changed stays, with the focus, and what moves goes on.
 * @param {ChildNode} now
 * @param {ChildNode} next
 * @param {string} apart What is replaced whole: few paths of a picture are more work than a new one, but those of a rack stay as they are.
 */
function renew(now, next, apart = "svg[aria-hidden]:not(.rack > *)") {
  if (now.isEqualNode(next)) return;
  if (now instanceof Text && next instanceof Text) return void (now.data = next.data);
  if (!(now instanceof Element && next instanceof Element)) return now.replaceWith(next);
  if (steady && now.matches(POINTED) && keysOf(now) !== keysOf(next)) return hold(now, next);
  if (now.nodeName !== next.nodeName || now.matches(apart)) return now.replaceWith(next);
  // By names: each `Attr` of a map of 10,000 GPUs would be an object more to collect.
  for (const name of now.getAttributeNames()) if (!next.hasAttribute(name)) now.removeAttribute(name);
  for (const name of next.getAttributeNames()) {
    const value = next.getAttribute(name) ?? "";
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  const [old, fresh] = [[...now.childNodes], [...next.childNodes]];
  fresh.forEach((each, place) => (old[place] ? renew(old[place], each, apart) : now.append(each)));
  for (const each of old.slice(fresh.length)) each.remove();
}

// Rows stay where they are while a person points at one of them or has the focus there: each by its first link.
const POINTED = ":is(tbody, ul.incidents):is(:hover, :focus-within)";
let steady = false; // whether nobody asked for another order
/** @param {Element} row */
const keyOf = (row) => row.querySelector("a[href]")?.getAttribute("href") ?? "";
/** @param {Element} rows */
const keysOf = (rows) => [...rows.children].map(keyOf).join("\n");

/** @param {Element} now @param {Element} next */
function hold(now, next) {
  const fresh = new Map([...next.children].map((row) => [keyOf(row), row]));
  for (const row of [...now.children]) {
    const its = fresh.get(keyOf(row));
    if (its) renew(row, its);
  }
  document.body.classList.add("held");
}

/** @param {Document} page @param {string} [apart] */
function place(page, apart) {
  document.title = page.title;
  for (const part of [".skip", "header", "main"]) {
    const [now, next] = [document.querySelector(part), page.querySelector(part)];
    if (now && next) renew(now, next, apart);
  }
  document.dispatchEvent(new Event("kilowatch:placed"));
}

/**
 * Puts in the parts that have changed; that without a key is the page itself.
 * @param {Record<string, string>} parts
 */
function change(parts) {
  steady = true;
  if (parts[""]) place(parse(parts[""]));
  else {
    const made = document.createElement("template");
    made.innerHTML = Object.values(parts).map((html) => `<template>${html}</template>`).join("");
    const fresh = made.content.querySelectorAll("template");
    // One walk of the page for all keys: an update with the map of 10,000 GPUs has 280 of them.
    const all = new Map([...document.querySelectorAll("[data-k]")].map((each) => [each.getAttribute("data-k"), each]));
    Object.keys(parts).forEach((key, place) => {
      const now = all.get(key);
      const next = fresh[place]?.content.firstChild;
      if (now && next) renew(now, next);
    });
  }
  steady = false;
  document.dispatchEvent(new Event("kilowatch:placed"));
}

/**
 * Shows another page in place of this one.
 * @param {Loaded} found
 * @param {string} [apart]
 */
function arrive({ page, live }, apart) {
  place(page, apart);
  hangUp(live);
}

/** @type {AbortController | null} What ends the following of this page. */
let line = null;
let base = document.querySelector("main")?.dataset.live ?? ""; // which page this is; "" is an old one
let [heard, tried] = [0, 0]; // when the aggregator last said something, 0 while nobody listens; and when it was last asked

function hangUp(next = "") {
  line?.abort();
  [line, base] = [null, next];
}

// Follows this page while the connection lasts: each event has the parts that have changed.
async function follow() {
  const own = (line = new AbortController());
  const headers = { Accept: "text/event-stream", "Last-Event-ID": base };
  tried = performance.now();
  const answer = await ask(location.href, { signal: own.signal, headers }).catch(() => null);
  if (answer && answer.status >= 400 && answer.status < 500) location.reload(); // it says why
  const reader = answer?.ok && answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", got; reader && (got = await reader.read().catch(() => null)) && !got.done && line === own; ) {
    const events = (rest + got.value).split("\n\n");
    rest = events.pop() ?? "";
    if (events.length) heard = tried = performance.now();
    watch();
    for (const each of line === own ? events : []) change(JSON.parse(each.slice("data: ".length)));
  }
  if (line === own) hangUp(); // and asks again at the next look
}

// A tab that nobody sees is silent, and who selects or answers a dialog is not disturbed.
function busy() {
  return document.hidden || document.querySelector("dialog[open]") !== null || getSelection()?.isCollapsed === false;
}

function watch() {
  const now = performance.now();
  const wanted = document.querySelector("main[data-live]") !== null && !busy();
  heard = wanted ? heard || now : 0;
  document.body.classList.toggle("stale", wanted && now - heard > OLD);
  const left = document.body.matches(".held") && !document.querySelector(POINTED);
  if (left) document.body.classList.remove("held");
  if (!wanted || left || now - tried > OLD) hangUp();
  if (wanted && !line) follow();
}

/** @param {KeyboardEvent | MouseEvent} event */
const modified = (event) => event.ctrlKey || event.metaKey || event.altKey;
const here = () => location.pathname + location.search;
let shown = here();

const AHEAD = 2000; // milliseconds that a page is good for which was asked for before it was wanted
/** @type {Ahead | null} */
let ahead = null;

/**
 * The link of the head of a column under an event: it leads to this page in another order.
 * @param {Event} event
 */
function headOf(event) {
  const link = event.target?.closest?.("main thead a[href]");
  return link && new URL(link.href).pathname === location.pathname ? link : null;
}

/**
 * Asks for what a person is about to click: the answer is half of the time until the picture.
 * @param {Event} event
 */
function prepare(event) {
  const url = headOf(event)?.href;
  if (!url || (ahead?.url === url && performance.now() - ahead.at < AHEAD)) return;
  ahead = { url, at: performance.now(), found: load(url).catch(() => null) };
}

for (const kind of ["pointerdown", "focusin"]) document.addEventListener(kind, prepare);
document.addEventListener("pointerover", (event) => {
  setTimeout(() => headOf(event)?.matches(":hover") && prepare(event), 50); // no longer on its way across
});

// Returns the page of the URL, once: what was asked for ahead, or asked for now.
async function wanted() {
  const asked = ahead;
  ahead = null;
  const ready = asked?.url === location.href && performance.now() - asked.at < AHEAD && (await asked.found);
  return ready || load().catch(() => null);
}

// Shows this page as the URL has it now; a link that was followed meanwhile wins.
async function show() {
  const asked = here();
  hangUp();
  const found = await wanted();
  if (here() !== asked) return;
  if (found?.status !== 200) return location.reload();
  shown = asked;
  arrive(found, "svg, tbody"); // in another order hardly a row is where it was
}

// The head of a column leads to this page in another order: only its rows are loaded, but with a modifier or another button.
document.addEventListener("click", (event) => {
  const link = headOf(event);
  if (!link || event.button || event.shiftKey || modified(event)) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show();
});
addEventListener("popstate", () => {
  if (here() !== shown) show(); // else a place on this page
});

// `/` leads to the field that finds anything, unless somebody types elsewhere.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || modified(event)) return;
  if (document.activeElement?.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  document.querySelector(".find input")?.focus();
});

/** @param {SignIn} form */
async function signIn(form) {
  const status = form.querySelector(".status");
  const found = await load().catch(() => null);
  if (found === null) status?.replaceChildren("The aggregator does not answer.");
  else if (found.status === 401) {
    if (sessionStorage.getItem(KEY)) status?.replaceChildren("This token is wrong or has expired.");
    sessionStorage.removeItem(KEY);
    form.elements.token.focus();
  } else arrive(found);
}

const form = document.querySelector("#sign-in");
if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, form.elements.token.value.trim());
    signIn(form);
  });
  if (sessionStorage.getItem(KEY)) signIn(form);
}
setInterval(watch, 1000);
document.addEventListener("visibilitychange", watch);
watch();
