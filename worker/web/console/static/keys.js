// Keys: search, go to a page, move between rows, and a list of all keys.
(() => {
  "use strict";
  const meta = document.querySelector('meta[name="interlock"]');
  if (!meta) return;
  const base = meta.dataset.base;
  const PAGES = { o: "", p: "pipelines", t: "timeline", e: "events", d: "deadletters", w: "workers", a: "alerts" };
  const HELP = [
    ["/", "search pipelines"],
    ["g o", "overview"], ["g p", "pipelines"], ["g t", "timeline"], ["g e", "events"],
    ["g d", "dead letters"], ["g w", "workers"], ["g a", "alerts"],
    ["j k", "next and previous row"],
    ["← →", "next and previous cell of a strip"],
    ["?", "this list"], ["Esc", "close"],
  ];
  let isGoing = 0;

  const help = () => {
    let dialog = document.getElementById("keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "keys";
      dialog.setAttribute("aria-labelledby", "keys-title");
      const title = document.createElement("h2");
      title.id = "keys-title";
      title.textContent = "Keys";
      const list = document.createElement("dl");
      for (const [key, meaning] of HELP) {
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        const shown = document.createElement("kbd");
        shown.textContent = key;
        text.textContent = meaning;
        term.append(shown);
        list.append(term, text);
      }
      const form = document.createElement("form");
      form.method = "dialog";
      const close = document.createElement("button");
      close.textContent = "Close";
      form.append(close);
      dialog.append(title, list, form);
      document.body.append(dialog);
    }
    dialog.showModal(); // the browser keeps the focus inside, and gives it back
  };

  const move = (by) => {
    const rows = [...document.querySelectorAll("main tr[id] a[href], main .list tbody tr td:first-child a[href]")];
    const firsts = rows.filter((each, number) => rows.findIndex((it) => it.closest("tr") === each.closest("tr")) === number);
    if (!firsts.length) return;
    const at = firsts.findIndex((each) => each.closest("tr").contains(document.activeElement));
    firsts[Math.min(firsts.length - 1, Math.max(0, at + by))].focus();
  };

  const along = (by) => {
    const cell = document.activeElement && document.activeElement.closest(".periods a");
    if (!cell) return false;
    const cells = [...cell.closest(".periods").querySelectorAll("a")];
    const next = cells[cells.indexOf(cell) + by];
    if (next) next.focus();
    return Boolean(next);
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() - isGoing < 1500 && event.key in PAGES) {
      location.assign(`${base}/${PAGES[event.key]}`);
      return;
    }
    isGoing = 0;
    if (event.key === "g") isGoing = Date.now();
    else if (event.key === "/") {
      event.preventDefault();
      const search = document.querySelector("main input[type=search]") || document.getElementById("search");
      if (search) {
        search.focus();
        search.select();
      }
    } else if (event.key === "?") help();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "ArrowRight" && along(1)) event.preventDefault();
    else if (event.key === "ArrowLeft" && along(-1)) event.preventDefault();
  });
})();
