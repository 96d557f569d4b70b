// Live updates. One tab of a browser holds the stream and relays it to the others; a stream for each tab would use up
// the browser's connections. News only name what changed: this file then fetches the HTML of what the page shows.
(() => {
  "use strict";
  const meta = document.querySelector('meta[name="interlock"]');
  if (!meta) return;
  const base = meta.dataset.base;
  const STREAM = `${base}/api/v1/stream`;
  const NEWS = `${base}/api/v1/news`;
  const POLL_MS = 10000;
  const AGAIN_MS = 1000; // between two fetches of one part
  const HIDDEN_MS = 60000;
  const RENEW_MS = 15000;
  const LOST_MS = 30000;
  const IDS_MAX = 100;
  const indicator = document.getElementById("live");
  const parts = () => document.querySelectorAll("[data-frag]");

  // --- what is shown ---------------------------------------------------------------------------------------------

  // The HTML that the server sent for an element: ages and zones change its text afterwards.
  const sent = new WeakMap();
  const remember = (root) => root.querySelectorAll("[id]").forEach((each) => sent.set(each, each.outerHTML));
  parts().forEach(remember);

  // What a person uses now. It is looked up once for each patch: between two changes of the page, the browser would
  // lay out all of it before it could answer.
  let used = [];
  const lookUpUsed = () => {
    const selection = document.getSelection();
    used = [...document.querySelectorAll("dialog[open]")];
    if (document.activeElement && document.activeElement !== document.body) used.push(document.activeElement);
    if (selection !== null && !selection.isCollapsed) used.push(selection.anchorNode);
  };
  const isBusy = (element) => used.some((each) => element.contains(each));

  const keepOpen = (old, fresh) => {
    const opened = old.querySelectorAll("details");
    fresh.querySelectorAll("details").forEach((each, number) => {
      if (opened[number]) each.open = opened[number].open;
    });
  };

  const replace = (old, fresh) => {
    const html = fresh.outerHTML;
    if (sent.get(old) === html) return;
    if (isBusy(old)) {
      // The part that a person uses stays as it is; the rows around it change.
      fresh.querySelectorAll("[id]").forEach((each) => {
        const inside = document.getElementById(each.id);
        if (inside && old.contains(inside) && !isBusy(inside)) replace(inside, each.cloneNode(true));
      });
      return;
    }
    keepOpen(old, fresh);
    old.replaceWith(fresh);
    sent.set(fresh, html);
    fresh.querySelectorAll("[id]").forEach((each) => sent.set(each, each.outerHTML));
  };

  const patchAll = (part, content) => {
    const fresh = [...content.children].filter((each) => each.id);
    const names = new Set(fresh.map((each) => each.id));
    for (const old of [...part.children]) if (old.id && !names.has(old.id) && !isBusy(old)) old.remove();
    let before = null;
    for (const each of fresh) {
      const old = document.getElementById(each.id);
      if (old && part.contains(old)) {
        replace(old, each);
        before = document.getElementById(each.id);
      } else {
        if (before) before.after(each);
        else part.prepend(each);
        remember(part);
        before = each;
      }
    }
  };

  const patchRows = (content) => {
    for (const each of [...content.querySelectorAll("[id]")]) {
      const old = document.getElementById(each.id);
      if (old) replace(old, each);
    }
  };

  // Rows that are shown change; new rows of a long list wait behind a button: what a person reads does not move.
  const holdNew = (part, content) => {
    for (const each of content.querySelectorAll("tr[id], section[id]:not(:has(tr))")) {
      const old = document.getElementById(each.id);
      if (old && part.contains(old)) replace(old, each.cloneNode(true)); // what is new stays whole, for the button
    }
    document.dispatchEvent(new CustomEvent("interlock:shown", { detail: part }));
    const fresh = [...content.querySelectorAll("tr[id]")].filter((each) => !document.getElementById(each.id));
    let button = part.previousElementSibling;
    if (!button || !button.classList.contains("new-rows")) button = null;
    if (!fresh.length) return;
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "new-rows";
      part.before(button);
    }
    button.textContent = `${fresh.length} new`;
    button.onclick = () => {
      button.remove();
      part.replaceChildren(...content.children);
      remember(part);
      shown(part);
    };
  };

  // A list that was shown while the server still read it is replaced as a whole: rows are missing anywhere in it.
  const isIncomplete = (part) => part.querySelector("[data-reading]") !== null;

  // How old the page is, and its title with the glyph of its run, are outside of what changes.
  const renewFrame = (part, content) => {
    const stamp = content.querySelector("#as-of");
    const old = document.getElementById("as-of");
    const page = document.getElementById("content");
    if (stamp && old && (part === page || !page.dataset.frag)) {
      old.replaceWith(stamp);
      document.dispatchEvent(new CustomEvent("interlock:shown", { detail: stamp }));
    } else if (stamp) stamp.remove();
    const title = content.querySelector("title");
    if (title && part === page) document.title = title.textContent;
  };

  const shown = (part) => {
    if (window.htmx) window.htmx.process(part);
    document.dispatchEvent(new CustomEvent("interlock:shown", { detail: part }));
    if (part.id === "overview") {
      const count = part.querySelector("#counts b");
      const name = document.title.replace(/^\(.*?\) /, "");
      if (count) document.title = count.textContent === "0" ? name : `(${count.textContent}) ${name}`;
    }
  };

  const fetchPart = async (part, url) => {
    let response;
    try {
      response = await fetch(url, { headers: { Accept: "text/html" } });
    } catch {
      return; // the stream says that there is no connection
    }
    if (!response.ok) return;
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    if (!part.isConnected) return;
    // A page is its own part: then the response is a whole page, which holds an element of the same id.
    const content = template.content.getElementById(part.id) || template.content;
    renewFrame(part, template.content);
    lookUpUsed();
    if (part.dataset.live === "hold") return holdNew(part, content);
    if (isIncomplete(part)) {
      part.replaceChildren(...content.children);
      remember(part);
    } else if (part.dataset.live === "rows") patchRows(content);
    else patchAll(part, content);
    shown(part);
  };

  // --- what changed ----------------------------------------------------------------------------------------------

  const waiting = new Map(); // part -> the pipelines whose rows changed, or null for everything
  let timer = 0;
  let lastAt = 0;

  const urlOf = (part, pipelines) => {
    if (part.dataset.live !== "rows" || isIncomplete(part)) return part.dataset.frag;
    const shownIds = [...part.querySelectorAll('[id^="p:"]')].map((each) => each.id.slice(2));
    const chosen = (pipelines ? shownIds.filter((each) => pipelines.has(each)) : shownIds).slice(0, IDS_MAX);
    return chosen.length ? `${part.dataset.rows}?ids=${encodeURIComponent(chosen.join(","))}` : "";
  };

  const flush = () => {
    timer = 0;
    if (document.hidden) return; // when it is shown again
    lastAt = Date.now();
    for (const [part, pipelines] of waiting) {
      const url = urlOf(part, pipelines);
      if (url) fetchPart(part, url);
    }
    waiting.clear();
  };

  const schedule = () => {
    if (!timer) timer = setTimeout(flush, Math.max(0, lastAt + AGAIN_MS - Date.now()));
  };

  const everything = () => {
    parts().forEach((part) => waiting.set(part, null));
    schedule();
  };

  const concerns = (part, news) => {
    const { live, run, pipeline } = part.dataset;
    if (live === "run") return news.runs.includes(run) || (pipeline && news.pipelines.includes(pipeline));
    if (live === "pipeline") return news.pipelines.includes(pipeline);
    if (live === "page") return !news.runs.length && !news.pipelines.length; // of workers, dead letters, the watchdog
    return true;
  };

  const apply = (news) => {
    if (news.many) return everything();
    parts().forEach((part) => {
      if (!concerns(part, news)) return;
      const known = waiting.get(part);
      if (known === null) return;
      waiting.set(part, part.dataset.live === "rows" ? new Set([...(known || []), ...news.pipelines]) : null);
    });
    schedule();
  };

  // The address follows a filter, so that a reload or a link shows the same list; so does what updates fetch.
  document.addEventListener("htmx:after:swap", () => {
    const form = document.querySelector("form.filter[hx-get]");
    if (!form) return;
    const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    const query = given ? `?${given}` : "";
    history.replaceState(history.state, "", form.action.split("?")[0] + query);
    const part = document.querySelector(form.getAttribute("hx-target"));
    if (part) part.dataset.frag = form.getAttribute("hx-get") + query;
  });

  // What changes only because time passes is no news: what is visible is fetched again now and then. Pages that read
  // the store itself are fetched half as often as those that read the server's memory.
  let turn = 0;
  setInterval(() => {
    turn += 1;
    if (document.hidden || lostAt) return;
    parts().forEach((part) => {
      const isCheap = !part.dataset.live || ["rows", "all"].includes(part.dataset.live);
      if (isCheap || turn % 2 === 0) waiting.set(part, null);
    });
    if (waiting.size) schedule();
  }, RENEW_MS);

  // --- the connection --------------------------------------------------------------------------------------------

  let lastId = meta.dataset.news; // what this page shows, so that nothing between it and the stream is missed
  let said = "";
  let lostAt = null;

  const say = (text) => {
    if (!indicator || said === text) return;
    said = indicator.textContent = text;
  };
  // A lost connection must not look like a quiet night: first the word changes its tone, then the page says so.
  let warning = 0;
  const warn = () => {
    const line = document.createElement("p");
    line.id = "lost";
    line.className = "notice bad";
    line.setAttribute("role", "alert");
    line.textContent = `No connection to the server since ${clock(lostAt)}: what you see may be out of date. The page tries again by itself.`;
    document.getElementById("banners").before(line);
  };
  const setLost = (at) => {
    const isNews = Boolean(at) !== Boolean(lostAt);
    lostAt = at;
    if (!isNews) return;
    if (indicator) indicator.classList.toggle("lost", Boolean(at));
    clearTimeout(warning);
    if (at) warning = setTimeout(warn, LOST_MS);
    else document.querySelectorAll("#lost").forEach((each) => each.remove());
  };
  const clock = (at) => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

  const hear = (message) => {
    const isBehind = message.type === "live" && message.id && message.id !== lastId;
    if (message.id) lastId = message.id;
    if (isBehind) everything();
    if (message.type === "news") apply(message.news);
    else if (message.type === "resync") everything();
    else if (message.type === "live") {
      setLost(null);
      say("live");
    } else if (message.type === "lost") {
      setLost(lostAt || new Date(message.at));
      say(`no connection since ${clock(lostAt)}`);
    }
  };

  const poll = async () => {
    if (!document.hidden) {
      try {
        const response = await fetch(`${NEWS}?after=${encodeURIComponent(lastId)}`);
        if (!response.ok) throw new Error(String(response.status));
        const news = await response.json();
        if (lastId && news.resync) everything();
        news.items.forEach(apply);
        lastId = news.last;
        setLost(null);
        say("every 10 s");
      } catch {
        hear({ type: "lost", at: Date.now() });
      }
    }
    setTimeout(poll, POLL_MS);
  };

  if (!navigator.locks || !window.BroadcastChannel || !window.EventSource) {
    poll();
    document.addEventListener("visibilitychange", () => !document.hidden && waiting.size && schedule());
    return;
  }

  const channel = new BroadcastChannel(`interlock-live${base}`);
  let isLeader = false;
  let leave = null; // ends this tab's part in the choice of a leader
  const tell = (message) => {
    channel.postMessage(message);
    hear(message);
  };

  const holdStream = () =>
    new Promise((release) => {
      let source = null;
      let again = 0;
      const open = () => {
        source = new EventSource(lastId ? `${STREAM}?after=${encodeURIComponent(lastId)}` : STREAM);
        source.addEventListener("hello", (event) => tell({ type: "live", id: lastId || event.lastEventId }));
        source.addEventListener("news", (event) =>
          tell({ type: "news", id: event.lastEventId, news: JSON.parse(event.data) }),
        );
        let isOver = false; // a server that starts over ends its streams: that is no lost connection
        source.addEventListener("resync", (event) => {
          isOver = true;
          tell({ type: "resync", id: event.lastEventId });
        });
        source.onerror = () => {
          if (isOver) {
            source.close();
            again = setTimeout(open, AGAIN_MS);
            return;
          }
          tell({ type: "lost", at: Date.now() });
          // The browser itself tries again only after some errors; a new stream continues after the last id.
          source.close();
          again = setTimeout(open, 3000);
        };
      };
      isLeader = true;
      open();
      leave = () => {
        clearTimeout(again);
        source.close();
        isLeader = false;
        release();
      };
    });

  const join = () => {
    if (leave) return;
    const waitingFor = new AbortController();
    leave = () => waitingFor.abort();
    navigator.locks.request(`interlock-live${base}`, { signal: waitingFor.signal }, holdStream).catch(() => {});
    channel.postMessage({ type: "ask" });
  };

  channel.onmessage = ({ data }) => {
    if (data.type !== "ask") hear(data);
    else if (isLeader && !lostAt) channel.postMessage({ type: "live", id: lastId });
  };

  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = setTimeout(() => {
        leave();
        leave = null;
      }, HIDDEN_MS);
    } else {
      if (!leave) everything();
      join();
      if (waiting.size) schedule();
    }
  });
  addEventListener("pagehide", () => leave && leave());
  if (!document.hidden) join();
})();
