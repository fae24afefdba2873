// The one connection for live numbers. It notifies the rest of the page by events:
//   console:tick   a frame came, once a second; `detail` is the frame
//   console:stale  no frame for a while; `detail` is the time of the last one in ms
//
// The page is marked <html data-stale> while the numbers on it are old.

const STALE_MS = 5000;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 15000;
// Closed for good: signed out, or no longer permitted. Reconnecting would not help.
const SIGNED_OUT = 4401;
const NOT_ALLOWED = 4403;

const root = document.documentElement;
const note = document.querySelector("[data-live]");
let retryMs = FIRST_RETRY_MS;
let lastMs = Date.now();
let told = "";

function tell(text) {
    if (note && text !== told) {
        told = text;
        note.textContent = text;
    }
}

function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/console/live`);
    socket.addEventListener("message", (event) => {
        const frame = JSON.parse(event.data);
        retryMs = FIRST_RETRY_MS;
        lastMs = Date.now();
        root.removeAttribute("data-stale");
        tell("live");
        document.dispatchEvent(new CustomEvent("console:tick", { detail: frame }));
    });
    socket.addEventListener("close", (event) => {
        if (event.code === SIGNED_OUT) {
            old("signed out: reload the page");
        } else if (event.code === NOT_ALLOWED) {
            old("not allowed any more");
        } else {
            // Half to one and a half times: consoles of a restarted site do not all reconnect at once.
            setTimeout(connect, retryMs * (0.5 + Math.random()));
            retryMs = Math.min(2 * retryMs, MAX_RETRY_MS);
        }
    });
}

function old(text) {
    tell(text);
    if (!root.hasAttribute("data-stale")) {
        root.setAttribute("data-stale", "");
        document.dispatchEvent(new CustomEvent("console:stale", { detail: lastMs }));
    }
}

setInterval(() => {
    const ageS = Math.round((Date.now() - lastMs) / 1000);
    if (ageS * 1000 >= STALE_MS && !told.includes("signed out") && !told.includes("allowed")) {
        old(`no news for ${ageS < 120 ? `${ageS} s` : `${Math.floor(ageS / 60)} min`}, trying again`);
    }
}, 1000);

connect();
