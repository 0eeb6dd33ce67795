"use strict";
const rows = document.getElementById("events");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const session = rows.dataset.session;
const MOST = 500;
let waiting = [];
let paused = false;

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function show(event) {
  const row = document.createElement("tr");
  const link = document.createElement("a");
  link.href = "/sessions/" + encodeURIComponent(event.session_id) + (event.call_id ? "/calls/" + encodeURIComponent(event.call_id) : "");
  link.textContent = event.session_id;
  const named = document.createElement("td");
  named.append(link);
  row.append(cell(event.position, "number"), cell(event.recorded_at.replace("T", " ").slice(0, 19)), named, cell(event.sequence, "number"), cell(event.type, event.type === "context-aborted" ? "bad" : ""));
  rows.prepend(row);
  while (rows.children.length > MOST) rows.lastElementChild.remove();
}

const AGAIN_MS = 5000;
let last = "";

function connect() {
  const query = new URLSearchParams();
  if (session) query.set("session", session);
  if (last) query.set("after", last);
  const source = new EventSource("/v1/tail?" + query);
  source.addEventListener("appended", (message) => {
    last = message.lastEventId;
    const event = JSON.parse(message.data);
    if (paused) {
      waiting.push(event);
      if (waiting.length > MOST) waiting.shift();
      state.textContent = waiting.length + " events wait.";
    } else show(event);
  });
  source.addEventListener("open", () => { state.textContent = "Connected: events are shown as they come."; });
  source.addEventListener("error", () => {
    state.textContent = "The connection was lost; it is made again by itself.";
    // A refusal ends it for good, so that it has to be asked for anew.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_MS);
  });
}

connect();
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Go on" : "Pause";
  if (!paused) {
    waiting.forEach(show);
    waiting = [];
    state.textContent = "Connected: events are shown as they come.";
  }
});
