// backstop: what a page does beyond what it does without script. Nothing here is needed to use it.
"use strict";

(() => {
  const base = document.body.dataset.base;
  const find = (id) => document.getElementById(id);
  const say = (text) => {
    find("said").textContent = text;
  };
  const remember = (name, value) => {
    document.cookie = `${name}=${value}; Path=${base || "/"}; Max-Age=31536000; SameSite=Strict`;
  };
  // Typing into a field is no shortcut.
  const isField = (node) =>
    node instanceof HTMLElement && (node.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(node.tagName));

  themes();
  keys();
  copies();
  picks();
  live();

  // Light, dark, or as the system says: the server writes the choice into the page, so that nothing flashes.
  function themes() {
    const button = find("theme");
    const names = ["system", "light", "dark"];
    const current = () => document.documentElement.dataset.theme || "system";
    const show = () => {
      button.textContent = `Theme: ${current()}`;
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = names[(names.indexOf(current()) + 1) % names.length];
      if (next === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      remember("backstop_theme", next);
      show();
      say(`Theme: ${next}`);
    });
    show();
  }

  // g and a letter goes somewhere, / to the filter, ? to the list of keys.
  function keys() {
    const button = find("keys");
    const links = [...document.querySelectorAll(".sections a[data-key]")];
    let isGoing = false;
    button.hidden = links.length === 0;
    button.addEventListener("click", sheet);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      if (isGoing) {
        isGoing = false;
        const link = links.find((each) => each.dataset.key === event.key);
        if (link) {
          event.preventDefault();
          location.assign(link.href);
        }
        return;
      }
      if (event.key === "g") {
        isGoing = true;
        setTimeout(() => {
          isGoing = false;
        }, 1500);
      } else if (event.key === "/") {
        const field = document.querySelector("[data-filter]");
        if (field) {
          event.preventDefault();
          field.focus();
          field.select?.();
        }
      } else if (event.key === "?") {
        event.preventDefault();
        sheet();
      } else if (event.key === "p") {
        find("pause")?.click();
      } else if (event.key === "j" || event.key === "k") {
        step(event.key === "j" ? 1 : -1);
      } else if (event.key === "x") {
        document.activeElement?.closest?.("tr")?.querySelector("input[name=id]")?.click();
      } else if (event.key === "n" || event.key === "N") {
        document.querySelector(event.key === "n" ? "a[rel=next]" : "a[rel=prev]")?.click();
      }
    });

    // The first link of the next row, or of the one before.
    function step(by) {
      const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a"));
      const at = rows.indexOf(document.activeElement?.closest?.("tr"));
      const row = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
      row?.querySelector("a")?.focus();
    }

    function sheet() {
      let dialog = find("sheet");
      if (!dialog) {
        dialog = document.createElement("dialog");
        dialog.id = "sheet";
        dialog.setAttribute("aria-labelledby", "sheet-title");
        const title = document.createElement("h2");
        title.id = "sheet-title";
        title.textContent = "Keys";
        const list = document.createElement("dl");
        const row = (key, text) => {
          const term = document.createElement("dt");
          for (const part of key.split(" ")) {
            const cap = document.createElement("kbd");
            cap.textContent = part;
            term.append(cap, " ");
          }
          const said = document.createElement("dd");
          said.textContent = text;
          list.append(term, said);
        };
        for (const link of links) row(`g ${link.dataset.key}`, link.textContent.trim());
        row("/", "Filter");
        row("j k", "Next row, row before");
        row("x", "Select the row");
        row("n N", "Next page, page before");
        row("p", "Stop or go on with live updates");
        row("?", "This list");
        const form = document.createElement("form");
        form.method = "dialog";
        const close = document.createElement("button");
        close.textContent = "Close";
        form.append(close);
        dialog.append(title, list, form);
        document.body.append(dialog);
      }
      dialog.showModal();
    }
  }

  // Copies what [data-copy] names; on plain HTTP, where the clipboard is closed, by selecting it.
  function copies() {
    const reveal = (root) => {
      for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
    };
    reveal(document);
    document.addEventListener("backstop:refreshed", () => reveal(document));
    document.addEventListener("click", async (event) => {
      const button = event.target.closest?.("button[data-copy]");
      const source = button && find(button.dataset.copy);
      if (!source) return;
      const text = source.textContent;
      let isDone = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        isDone = document.execCommand("copy");
        area.remove();
      }
      say(isDone ? "Copied" : "Not copied: select it and copy it by hand");
      const word = button.textContent;
      button.textContent = isDone ? "Copied" : "Not copied";
      setTimeout(() => {
        button.textContent = word;
      }, 1500);
    });
  }

  // A box that picks all rows of the page, and how many are picked.
  function picks() {
    const boxes = () => [...document.querySelectorAll("input[name=id][type=checkbox]")];
    const show = () => {
      const all = boxes();
      const picked = all.filter((box) => box.checked).length;
      for (const box of document.querySelectorAll("input[data-pick-all]")) {
        box.hidden = false;
        box.checked = picked > 0 && picked === all.length;
        box.indeterminate = picked > 0 && picked < all.length;
      }
      for (const place of document.querySelectorAll("[data-picked]")) place.textContent = picked ? `${picked} selected` : "";
    };
    document.addEventListener("change", (event) => {
      if (event.target.matches?.("input[data-pick-all]")) {
        for (const box of boxes()) box.checked = event.target.checked;
      }
      show();
    });
    document.addEventListener("backstop:refreshed", show);
    show();
  }

  // Fetches the part of the page that changes, when told that something did: at most once a second, never while the
  // tab is hidden, and not at all once it is paused.
  function live() {
    const address = document.body.dataset.events;
    const button = find("pause");
    if (!address || !button || !window.EventSource) return;
    const least = 1000;
    let source = null;
    let isPaused = sessionStorage.getItem("backstop-paused") === "yes";
    let isDue = false;
    let timer = 0;
    let last = 0;
    let fetching = null;

    button.hidden = false;
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      sessionStorage.setItem("backstop-paused", isPaused ? "yes" : "no");
      apply();
      say(isPaused ? "Live updates stopped" : "Live updates on");
    });
    document.addEventListener("visibilitychange", apply);
    addEventListener("pagehide", close);
    addEventListener("pageshow", apply);
    apply();

    function apply() {
      button.setAttribute("aria-pressed", String(isPaused));
      find("pause-word").textContent = isPaused ? "Paused" : "Live";
      if (isPaused || document.hidden) close();
      else open();
    }

    function open() {
      if (source) return;
      source = new EventSource(address);
      source.addEventListener("changed", due);
      source.addEventListener("tick", due);
      source.addEventListener("open", () => lost(false));
      source.addEventListener("error", () => {
        lost(true);
        // A browser comes back by itself unless it was turned away.
        if (source && source.readyState === EventSource.CLOSED) {
          source = null;
          setTimeout(apply, 10000);
        }
      });
    }

    function close() {
      source?.close();
      source = null;
      clearTimeout(timer);
      timer = 0;
      isDue = false;
      fetching?.abort();
      lost(false);
    }

    function lost(is) {
      find("offline").hidden = !is;
      if (is) button.dataset.state = "lost";
      else delete button.dataset.state;
    }

    function due() {
      isDue = true;
      if (!timer && !fetching) timer = setTimeout(refresh, Math.max(0, last + least - Date.now()));
    }

    async function refresh() {
      timer = 0;
      // What somebody is filling in is not pulled from under them.
      const inside = find("live");
      if (!source || (isField(document.activeElement) && inside.contains(document.activeElement))) {
        if (source) timer = setTimeout(refresh, least);
        return;
      }
      isDue = false;
      fetching = new AbortController();
      try {
        const answer = await fetch(location.href, { headers: { "backstop-fragment": "1" }, signal: fetching.signal });
        if (answer.redirected || answer.status === 401) location.reload();
        else put(await answer.text());
      } catch {
        // The source says whether the server is there; the next event tries again.
      }
      fetching = null;
      last = Date.now();
      if (isDue && source) due();
    }

    function put(html) {
      const place = find("live");
      const picked = new Set([...place.querySelectorAll("input[type=checkbox]:checked")].map((box) => `${box.name}=${box.value}`));
      const opened = new Set([...place.querySelectorAll("details[open][id]")].map((each) => each.id));
      const focused = place.contains(document.activeElement) ? mark(document.activeElement) : null;
      const scrolled = [...place.querySelectorAll(".scroll, .code")].map((each) => [each.scrollLeft, each.scrollTop]);
      const fresh = new DOMParser().parseFromString(html, "text/html");
      place.replaceChildren(...fresh.body.childNodes);
      for (const box of place.querySelectorAll("input[type=checkbox]")) {
        if (picked.has(`${box.name}=${box.value}`)) box.checked = true;
      }
      for (const each of place.querySelectorAll("details[id]")) {
        if (opened.has(each.id)) each.open = true;
      }
      [...place.querySelectorAll(".scroll, .code")].forEach((each, at) => {
        if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
      });
      if (focused) place.querySelector(focused)?.focus({ preventScroll: true });
      document.dispatchEvent(new Event("backstop:refreshed"));
    }

    // How what has the focus is found again.
    function mark(node) {
      if (node.id) return `#${CSS.escape(node.id)}`;
      const href = node.getAttribute("href");
      if (href) return `a[href="${CSS.escape(href)}"]`;
      return node.name ? `[name="${CSS.escape(node.name)}"][value="${CSS.escape(node.value)}"]` : null;
    }
  }
})();
