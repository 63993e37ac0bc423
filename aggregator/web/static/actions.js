// Acknowledge and silence, by the API's own operations. Each needs a token: it is typed into a dialog, kept in
// this tab's sessionStorage alone, and sent in the Authorization header; no cookie, so no other site can act.

const KEY = "kilowatch.token";
const root = new URL(document.querySelector("base")?.href ?? "./", location.href);

function element(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

function field(label, input) {
  return element("label", {}, `${label} `, input);
}

const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

// Opens a dialog; resolves with the values of its fields, or null when it is left.
function ask(title, note, fields, button) {
  return new Promise((done) => {
    const dialog = element("dialog", { className: "act" });
    const form = element("form", { method: "dialog" });
    const status = element("p", { role: "status", className: "status" });
    const heading = element("h2", { textContent: title, id: "act-title" });
    dialog.setAttribute("aria-labelledby", "act-title");
    const inputs = {};
    form.append(heading, element("p", { textContent: note }));
    for (const [name, label, options] of fields) {
      inputs[name] = element("input", { name, autocomplete: "off", required: true, ...options });
      form.append(field(label, inputs[name]));
    }
    const leave = element("button", { type: "button", textContent: "Cancel" });
    form.append(status, element("p", {}, element("button", { textContent: button }), " ", leave));
    dialog.append(form);
    document.body.append(dialog);
    let result = null;
    leave.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    form.addEventListener("submit", () => {
      result = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
    });
    dialog.showModal();
  });
}

const TOKEN = ["token", "Token", { type: "password", spellcheck: false }];
const NOTE = "A token with the scope that is needed: kilowatch token add NAME. It stays in this tab.";

async function send(method, path, body, scope) {
  const answer = await fetch(new URL(path, root), {
    method,
    headers: { Authorization: `Bearer ${token.get()}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    credentials: "omit",
    cache: "no-store",
  });
  if (answer.ok) return;
  const fault = (await answer.json().catch(() => ({}))).error ?? {};
  if (answer.status === 401) token.set("");
  const needed = answer.status === 403 ? ` (the scope needed is ${scope})` : "";
  throw new Error(`${fault.what ?? answer.statusText}${needed}. ${fault.cure ?? ""}`);
}

const ACTS = {
  acknowledge: {
    title: "Acknowledge this incident", button: "Acknowledge", scope: "ack",
    fields: [["why", "Why", { value: "I am on it", maxLength: 500 }], ["for", "For how long (empty: until it is over)", { required: false, placeholder: "2h" }]],
    run: (data, got) => send("POST", `api/v1/incidents/${encodeURIComponent(data.incident)}/ack`,
      { why: got.why, ...(got.for ? { for: got.for } : {}) }, "ack"),
  },
  unacknowledge: {
    title: "Withdraw the acknowledgement", button: "Withdraw", scope: "ack",
    fields: [["why", "Why", { maxLength: 500 }]],
    run: (data, got) => send("DELETE", `api/v1/incidents/${encodeURIComponent(data.incident)}/ack`, { why: got.why }, "ack"),
  },
  silence: {
    title: "Silence alerts", button: "Silence", scope: "silence",
    fields: [["matchers", "Alerts that match all of", { spellcheck: false }], ["for", "For how long", { value: "2h" }], ["why", "Why", { maxLength: 500 }]],
    run: (data, got) => send("POST", "api/v1/silences",
      { matchers: got.matchers.split(/\s+/).filter(Boolean), for: got.for, why: got.why }, "silence"),
  },
  unsilence: {
    title: "End this silence", button: "End it", scope: "silence",
    fields: [["why", "Why", { value: "no longer needed", maxLength: 500 }]],
    run: (data, got) => send("DELETE", `api/v1/silences/${encodeURIComponent(data.silence)}`, { why: got.why }, "silence"),
  },
};

function say(button, words, failed) {
  const line = button.closest(".actions");
  let shown = line.querySelector(".status");
  if (!shown) line.append((shown = element("span", { className: "status" })));
  shown.setAttribute("role", failed ? "alert" : "status");
  shown.textContent = words;
}

async function act(button) {
  const what = ACTS[button.dataset.act];
  const data = { ...button.closest("[data-incident]")?.dataset, ...button.dataset };
  const fields = what.fields.map(([name, label, options]) =>
    name === "matchers" ? [name, label, { ...options, value: data.matchers }] : [name, label, options]);
  const known = token.get() !== "";
  const got = await ask(what.title, known ? "" : NOTE, known ? fields : [TOKEN, ...fields], what.button);
  if (!got) return button.focus();
  if (got.token) token.set(got.token);
  button.disabled = true;
  try {
    await what.run(data, got);
    say(button, "done", false);
    location.reload();
  } catch (error) {
    say(button, error.message, true);
  } finally {
    button.disabled = false;
  }
}

function show(within = document) {
  for (const line of within.querySelectorAll(".actions[hidden]")) line.hidden = false;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-act]");
  if (button) act(button);
});
show();
document.addEventListener("kilowatch:placed", () => show());
