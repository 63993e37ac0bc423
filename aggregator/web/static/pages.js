// What every page does: sign in where a token is needed, load a live page again every few seconds, and sort its
// tables in place.

const KEY = "kilowatch.token";
const EVERY = 5000;

async function load(url = location.href) {
  const token = sessionStorage.getItem(KEY);
  const answer = await fetch(url, {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    credentials: "omit",
  });
  return { status: answer.status, page: new DOMParser().parseFromString(await answer.text(), "text/html") };
}

const FOCUS = "a, button, input:not([type=hidden]), select, summary, svg[tabindex]";

// Puts one element in the place of another, piece by piece: what has not changed stays, so that ten thousand
// cells cost as little as those that are new, and the focus and the scroll position stay where they are.
// `apart`: what is replaced whole, because nothing or all of it has changed; in the power chain lines go on moving.
function renew(now, next, apart = "svg:not(.chain), dialog") {
  if (now.isEqualNode(next)) return;
  if (steady && now.matches?.(POINTED) && keysOf(now) !== keysOf(next)) return hold(now, next);
  const whole = now.nodeType !== 1 || now.nodeName !== next.nodeName || now.matches(apart) ||
    [...now.attributes].some((each) => next.getAttribute(each.name) !== each.value) ||
    now.attributes.length !== next.attributes.length;
  if (whole) return now.replaceWith(next);
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
  renew(document.querySelector(".skip"), page.querySelector(".skip")); // it has the page's URL
  const [now, next] = [document.querySelector("main"), page.querySelector("main")];
  if (!next || now.isEqualNode(next)) return;
  const focused = [...now.querySelectorAll(FOCUS)].indexOf(document.activeElement);
  now.toggleAttribute("data-live", next.hasAttribute("data-live"));
  renew(now, next, apart);
  document.title = page.title;
  renew(document.querySelector("header"), page.querySelector("header"));
  if (focused >= 0) now.querySelectorAll(FOCUS)[focused]?.focus({ preventScroll: true });
  document.dispatchEvent(new Event("kilowatch:placed"));
}

// A person who types, selects or answers a dialog is not disturbed.
function busy() {
  const at = document.activeElement;
  return document.hidden || document.querySelector("dialog[open]") !== null || !getSelection().isCollapsed ||
    (at !== null && at.matches("main input, main select"));
}

async function again() {
  if (document.querySelector("main[data-live]") && !busy()) {
    const wanted = here();
    const found = await load().catch(() => null);
    document.body.classList.toggle("stale", found === null || found.status >= 500);
    if (found?.status === 200 && here() === wanted && !busy()) {
      document.body.classList.remove("held");
      steady = true;
      place(found.page);
      steady = false;
    }
  }
  setTimeout(again, EVERY);
}

const here = () => location.pathname + location.search;
let shown = here();

const ROW = 32; // pixels, at least

// Takes the rows below the window out of a page that was loaded, and returns what puts them back once the others
// are on the screen: their layout is most of the work.
function cut(page) {
  const rows = page.querySelector("main tbody");
  if (!rows) return () => {};
  const [first, rest] = [Math.ceil(innerHeight / ROW), new DocumentFragment()];
  rest.append(...[...rows.children].slice(first));
  return () => requestAnimationFrame(() => setTimeout(() => {
    if (rows.isConnected && rows.children.length === first) rows.append(rest); // else all were loaded meanwhile
  }));
}

const AHEAD = 2000; // milliseconds that a page is good for which was asked for before it was wanted
const RESTS = 50; // milliseconds after which a pointer on a link is no longer on its way across
let ahead = { url: "", at: 0, found: null };

// The link of the head of a column under an event: it leads to this page in another order.
function headOf(event) {
  const link = event.target.closest?.("main thead a[href]");
  return link && new URL(link.href).pathname === location.pathname ? link : null;
}

// Asks for what a person is about to click: the answer is half of the time from a click to the picture.
function prepare(link) {
  const now = performance.now();
  if (ahead.url === link.href && now - ahead.at < AHEAD) return;
  ahead = { url: link.href, at: now, found: load(link.href).catch(() => null) };
}

for (const kind of ["pointerdown", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const link = headOf(event);
    if (link) prepare(link);
  });
}
document.addEventListener("pointerover", (event) => {
  const link = headOf(event);
  if (link) setTimeout(() => link.isConnected && link.matches(":hover") && prepare(link), RESTS);
});

// Returns the page of the URL, once: what was asked for ahead, or else asked for now.
async function wanted() {
  const { url, at, found } = ahead;
  ahead = { url: "", at: 0, found: null };
  const ready = url === location.href && performance.now() - at < AHEAD ? await found : null;
  return ready ?? load().catch(() => null);
}

// Shows this page as the URL has it now; a link that was followed meanwhile wins. `whole`: with all its rows at
// once, where the page may have been scrolled down to any.
async function follow(whole) {
  const asked = here();
  const found = await wanted();
  if (here() !== asked) return;
  if (found?.status !== 200) return location.reload();
  shown = asked;
  const complete = whole ? () => {} : cut(found.page);
  place(found.page, "svg, dialog, tbody"); // in another order hardly a row is where it was
  complete();
}

// The head of a column is a link to this page in another order: only its rows are loaded. With a modifier or
// another button it is a link as any other.
document.addEventListener("click", (event) => {
  const link = headOf(event);
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  follow(false);
});
addEventListener("popstate", () => {
  if (here() !== shown) follow(true); // else a place on this page
});

// `/` leads to the field that finds anything, as long as nobody types elsewhere.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
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
  } else place(found.page);
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
setTimeout(again, EVERY);
