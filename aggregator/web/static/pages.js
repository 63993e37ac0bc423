// What every page does: sign in where a token is needed, follow the cluster part by part, and sort its tables in place.

const KEY = "kilowatch.token";
const OLD = 10000; // milliseconds without a word after which a page is old

function ask(url, more) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(url, { credentials: "omit", ...more, headers: { ...headers, ...more?.headers } });
}

const parse = (text) => new DOMParser().parseFromString(text, "text/html");

async function load(url = location.href) {
  const answer = await ask(url);
  return { status: answer.status, page: parse(await answer.text()) };
}

// Makes one element what another is, piece by piece: what has not changed stays, with the focus, and what moves goes on.
// `apart`: what is replaced whole.
function renew(now, next, apart = "svg[aria-hidden]") {
  if (now.isEqualNode(next)) return;
  if (steady && now.matches?.(POINTED) && keysOf(now) !== keysOf(next)) return hold(now, next);
  if (now.nodeName !== next.nodeName || now.matches?.(apart)) return now.replaceWith(next);
  if (now.nodeType !== 1) return void (now.data = next.data);
  for (const { name } of [...now.attributes]) if (!next.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of next.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  const [old, fresh] = [[...now.childNodes], [...next.childNodes]];
  fresh.forEach((each, place) => (old[place] ? renew(old[place], each, apart) : now.append(each)));
  for (const each of old.slice(fresh.length)) each.remove();
}

// Rows stay where they are while a person points at one of them or has the focus there: each by its first link.
const POINTED = ":is(tbody, ul.incidents):is(:hover, :focus-within)";
let steady = false; // whether nobody asked for another order
const keyOf = (row) => row.querySelector("a[href]")?.getAttribute("href") ?? "";
const keysOf = (rows) => [...rows.children].map(keyOf).join("\n");

function hold(now, next) {
  const fresh = new Map([...next.children].map((row) => [keyOf(row), row]));
  for (const row of [...now.children]) {
    const its = fresh.get(keyOf(row));
    if (its) renew(row, its);
  }
  document.body.classList.add("held");
}

function place(page, apart) {
  document.title = page.title;
  for (const part of [".skip", "header", "main"]) renew(document.querySelector(part), page.querySelector(part), apart);
  document.dispatchEvent(new Event("kilowatch:placed"));
}

// Puts in the parts that have changed; that without a key is the page itself.
function change(parts) {
  steady = true;
  if (parts[""]) place(parse(parts[""]));
  else {
    const made = document.createElement("template");
    made.innerHTML = Object.values(parts).map((html) => `<template>${html}</template>`).join("");
    Object.keys(parts).forEach((key, place) => {
      const now = document.querySelector(`[data-k="${CSS.escape(key)}"]`);
      if (now) renew(now, made.content.childNodes[place].content.firstChild);
    });
  }
  steady = false;
  document.dispatchEvent(new Event("kilowatch:placed"));
}

// Shows another page in place of this one.
function arrive(page, apart) {
  place(page, apart);
  hangUp(page.querySelector("main").dataset.live);
}

let line = null; // what ends the following of this page
let base = document.querySelector("main").dataset.live ?? ""; // which page this is; "" is an old one
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
  if (answer?.status >= 400 && answer.status < 500) location.reload(); // it says why
  const reader = answer?.ok && answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", got; reader && (got = await reader.read().catch(() => null)) && !got.done && line === own; ) {
    const events = (rest + got.value).split("\n\n");
    rest = events.pop();
    if (events.length) heard = tried = performance.now();
    watch();
    for (const each of line === own ? events : []) change(JSON.parse(each.slice("data: ".length)));
  }
  if (line === own) hangUp(); // and asks again at the next look
}

// A tab that nobody sees is silent, and who selects or answers a dialog is not disturbed.
function busy() {
  return document.hidden || document.querySelector("dialog[open]") !== null || !getSelection().isCollapsed;
}

function watch() {
  const now = performance.now();
  const wanted = document.querySelector("main[data-live]") && !busy();
  heard = wanted ? heard || now : 0;
  document.body.classList.toggle("stale", wanted && now - heard > OLD);
  const left = document.body.matches(".held") && !document.querySelector(POINTED);
  if (left) document.body.classList.remove("held");
  if (!wanted || left || now - tried > OLD) hangUp();
  if (wanted && !line) follow();
}

const modified = (event) => event.ctrlKey || event.metaKey || event.altKey;
const here = () => location.pathname + location.search;
let shown = here();

const AHEAD = 2000; // milliseconds that a page is good for which was asked for before it was wanted
let ahead = {};

// The link of the head of a column under an event: it leads to this page in another order.
function headOf(event) {
  const link = event.target.closest?.("main thead a[href]");
  return link && new URL(link.href).pathname === location.pathname ? link : null;
}

// Asks for what a person is about to click: the answer is half of the time until the picture.
function prepare(event) {
  const url = headOf(event)?.href;
  if (!url || (ahead.url === url && performance.now() - ahead.at < AHEAD)) return;
  ahead = { url, at: performance.now(), found: load(url).catch(() => null) };
}

for (const kind of ["pointerdown", "focusin"]) document.addEventListener(kind, prepare);
document.addEventListener("pointerover", (event) => {
  setTimeout(() => headOf(event)?.matches(":hover") && prepare(event), 50); // no longer on its way across
});

// Returns the page of the URL, once: what was asked for ahead, or asked for now.
async function wanted() {
  const { url, at, found } = ahead;
  ahead = {};
  const ready = url === location.href && performance.now() - at < AHEAD && (await found);
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
  arrive(found.page, "svg, tbody"); // in another order hardly a row is where it was
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
  document.querySelector(".find input").focus();
});

async function signIn(form) {
  const status = form.querySelector(".status");
  const found = await load().catch(() => null);
  if (found === null) status.textContent = "The aggregator does not answer.";
  else if (found.status === 401) {
    if (sessionStorage.getItem(KEY)) status.textContent = "This token is wrong or has expired.";
    sessionStorage.removeItem(KEY);
    form.elements.token.focus();
  } else arrive(found.page);
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
