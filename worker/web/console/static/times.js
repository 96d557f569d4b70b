// Ages that grow, and one switch for the zone of every time: the pipeline's, the browser's, or UTC.
(() => {
  "use strict";
  const meta = document.querySelector('meta[name="interlock"]');
  if (!meta) return;
  // The server's clock counts: the browser's may be minutes off.
  const offset = Date.parse(meta.dataset.now) - Date.now();
  const now = () => Date.now() + offset;
  const chooser = document.getElementById("zone");
  const STORED = "interlock-zone";
  const texts = new WeakMap(); // element -> the text that the server sent

  const span = (ms) => {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24];
    const [minutes, rest] = [Math.floor(seconds / 60) % 60, seconds % 60];
    const two = (number) => String(number).padStart(2, "0");
    if (days) return hours ? `${days}d ${hours}h` : `${days}d`;
    if (hours) return `${hours}h ${two(minutes)}m`;
    if (minutes) return minutes < 10 ? `${minutes}m ${two(rest)}s` : `${minutes}m`;
    return `${rest}s`;
  };

  const ages = () =>
    document.querySelectorAll("[data-since], [data-until]").forEach((each) => {
      const { since, until } = each.dataset;
      const text = span(since ? now() - Date.parse(since) : Date.parse(until) - now());
      if (each.textContent !== text) each.textContent = text;
    });

  const zoneOf = (choice) => (choice === "browser" ? undefined : choice);

  const partsOf = (at, choice) => {
    const style = {
      timeZone: zoneOf(choice), hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
      hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
    };
    return Object.fromEntries(new Intl.DateTimeFormat("en-GB", style).formatToParts(at).map((it) => [it.type, it.value]));
  };

  // The server's text shows how much of a time to write: with or without its date and its seconds.
  const written = (at, sample, choice) => {
    const it = partsOf(at, choice);
    const today = partsOf(now(), choice);
    const day = `${it.year}-${it.month}-${it.day}`;
    const isToday = day === `${today.year}-${today.month}-${today.day}`;
    const hasDate = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/.test(sample) || !isToday;
    const seconds = /\d\d:\d\d:\d\d/.test(sample) ? `:${it.second}` : "";
    if (/^\d\d:\d\d:\d\d$/.test(sample)) return `${it.hour}:${it.minute}:${it.second}`;
    const zone = /\d \S+$/.test(sample) ? ` ${it.timeZoneName}` : "";
    if (/^\d\d-\d\d$/.test(sample)) {
      // A mark at midnight stands at another hour of another zone.
      const isMidnight = it.hour === "00" && it.minute === "00";
      return `${it.month}-${it.day}${isMidnight ? "" : ` ${it.hour}:${it.minute}`}`;
    }
    if (/^\d\d:\d\d$/.test(sample)) return `${it.hour}:${it.minute}`;
    return `${hasDate ? `${day} ` : ""}${it.hour}:${it.minute}${seconds}${zone}`;
  };

  // Some places show only the name of the zone, or only the clock.
  const shownAs = (each, at, sample, choice) => {
    const it = partsOf(at, choice);
    if (each.dataset.shows === "zone") return it.timeZoneName;
    if (each.dataset.shows === "clock") {
      const name = / [A-Z]+$/.test(sample) ? ` ${it.timeZoneName}` : "";
      return sample.replace(/\d\d:\d\d/, `${it.hour}:${it.minute}`).replace(/ [A-Z]+$/, name);
    }
    return written(at, sample, choice);
  };

  const times = (root, choice) =>
    root.querySelectorAll("time[datetime], [data-at]").forEach((each) => {
      const at = Date.parse(each.dataset.at || each.getAttribute("datetime"));
      if (Number.isNaN(at)) return;
      if (!texts.has(each)) texts.set(each, each.textContent);
      const before = each.dataset.before || "";
      const sample = texts.get(each).slice(before.length);
      const text = choice ? before + shownAs(each, at, sample, choice) : texts.get(each);
      if (each.textContent !== text) each.textContent = text;
    });

  // A time that a person enters is meant in the zone that the page shows.
  const forms = (choice) => {
    const name = choice === "browser" ? Intl.DateTimeFormat().resolvedOptions().timeZone : choice;
    document.querySelectorAll("input[data-zone]").forEach((each) => (each.value = name || each.dataset.zone));
    document.querySelectorAll("[data-zone-name]").forEach((each) => (each.textContent = name || each.dataset.zoneName));
  };

  const read = () => {
    try {
      return localStorage.getItem(STORED) || "";
    } catch {
      return "";
    }
  };
  let choice = read();

  const show = (root) => {
    times(root, choice);
    forms(choice);
    ages();
  };

  if (chooser) {
    chooser.hidden = false;
    chooser.value = choice;
    chooser.addEventListener("change", () => {
      choice = chooser.value;
      try {
        localStorage.setItem(STORED, choice);
      } catch {
        // a private window: the choice holds for this page
      }
      show(document);
    });
  }
  document.addEventListener("interlock:shown", (event) => show(event.detail));
  document.addEventListener("htmx:after:swap", () => show(document));
  show(document);
  setInterval(() => document.hidden || ages(), 1000);
})();
