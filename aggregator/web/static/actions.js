// Acknowledge and silence, by the API's own operations. Each needs a token: it is typed into a dialog, kept in
// this tab's sessionStorage alone, and sent in the Authorization header; no cookie, so no other site can act.

const KEY = "kilowatch.token";
const root = new URL(document.querySelector("base")?.href ?? "./", location.href);

function element(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

// Opens a dialog; resolves with the values of its fields that are not empty, or null when it is left.
function ask({ title, button }, note, fields) {
  return new Promise((done) => {
    const dialog = element("dialog", { className: "act" });
    dialog.setAttribute("aria-labelledby", "act-title");
    const inputs = fields.map(([name, , options]) => element("input", { name, autocomplete: "off", required: true, ...options }));
    const leave = element("button", { type: "button", textContent: "Cancel" });
    const form = element("form", { method: "dialog" }, element("h2", { textContent: title, id: "act-title" }),
      element("p", { textContent: note }),
      ...inputs.map((input, place) => element("label", {}, `${fields[place][1]} `, input)),
      element("p", {}, element("button", { textContent: button }), " ", leave));
    dialog.append(form);
    document.body.append(dialog);
    let result = null;
    leave.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    form.addEventListener("submit", () => {
      result = Object.fromEntries(inputs.map(({ name, value }) => [name, value.trim()]).filter(([, value]) => value));
    });
    dialog.showModal();
  });
}

const TOKEN = ["token", "Token", { type: "password", spellcheck: false }];
const NOTE = "A token with the scope that is needed: kilowatch token add NAME. It stays in this tab.";

async function send({ method, path, scope }, data, body) {
  const answer = await fetch(new URL(path(data), root), {
    method,
    headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY)}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    credentials: "omit",
    cache: "no-store",
  });
  if (answer.ok) return;
  const fault = (await answer.json().catch(() => ({}))).error ?? {};
  if (answer.status === 401) sessionStorage.removeItem(KEY);
  const needed = answer.status === 403 ? ` (the scope needed is ${scope})` : "";
  throw new Error(`${fault.what ?? answer.statusText}${needed}. ${fault.cure ?? ""}`);
}

const why = (value) => ["why", "Why", { value, maxLength: 500 }];
const ackOf = ({ incident }) => `api/v1/incidents/${encodeURIComponent(incident)}/ack`;
const ACTS = {
  acknowledge: {
    title: "Acknowledge this incident", button: "Acknowledge", scope: "ack", method: "POST", path: ackOf,
    fields: () => [why("I am on it"), ["for", "For how long (empty: until it is over)", { required: false, placeholder: "2h" }]],
  },
  unacknowledge: {
    title: "Withdraw the acknowledgement", button: "Withdraw", scope: "ack", method: "DELETE", path: ackOf, fields: () => [why("")],
  },
  silence: {
    title: "Silence alerts", button: "Silence", scope: "silence", method: "POST", path: () => "api/v1/silences",
    fields: ({ matchers }) => [["matchers", "Alerts that match all of", { value: matchers, spellcheck: false }], ["for", "For how long", { value: "2h" }], why("")],
  },
  unsilence: {
    title: "End this silence", button: "End it", scope: "silence", method: "DELETE",
    path: ({ silence }) => `api/v1/silences/${encodeURIComponent(silence)}`, fields: () => [why("no longer needed")],
  },
};

function say(button, words, role) {
  const line = button.closest(".actions");
  line.querySelector(".status")?.remove();
  const shown = element("span", { className: "status" });
  shown.setAttribute("role", role);
  line.append(shown);
  shown.textContent = words; // read aloud, because it comes later
}

async function act(button) {
  const what = ACTS[button.dataset.act];
  const data = { ...button.closest("[data-incident]")?.dataset, ...button.dataset };
  const known = sessionStorage.getItem(KEY);
  const got = await ask(what, known ? "" : NOTE, [...(known ? [] : [TOKEN]), ...what.fields(data)]);
  if (!got) return button.focus();
  const { token, matchers, ...rest } = got;
  if (token) sessionStorage.setItem(KEY, token);
  button.disabled = true;
  try {
    await send(what, data, matchers ? { ...rest, matchers: matchers.split(/\s+/) } : rest);
    say(button, "done", "status");
    location.reload();
  } catch (error) {
    say(button, error.message, "alert");
  } finally {
    button.disabled = false;
  }
}

function show() {
  for (const line of document.querySelectorAll(".actions[hidden]")) line.hidden = false;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-act]");
  if (button) act(button);
});
show();
document.addEventListener("kilowatch:placed", show);
