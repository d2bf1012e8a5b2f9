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
  const recall = (name) => {
    const found = document.cookie.split("; ").find((pair) => pair.startsWith(`${name}=`));
    return found?.slice(name.length + 1);
  };
  // Typing into a field is no shortcut.
  const isField = (node) =>
    node instanceof HTMLElement && (node.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(node.tagName));

  themes();
  times();
  keys();
  questions();
  copies();
  picks();
  live();
  // Where the sections are a strip, the one that is shown may be out of sight.
  document.querySelector(".sections a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

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

  // How long ago, or exactly when: in UTC, or where the reader is. A touch on an instant changes it as well.
  function times() {
    const button = find("times");
    const names = ["ago", "UTC", "local"];
    let current = names.includes(recall("backstop_times")) ? recall("backstop_times") : names[0];
    const two = (number) => String(number).padStart(2, "0");
    const local = (at) =>
      `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
      `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    const told = (time) => {
      const at = new Date(time.dateTime);
      if (current === "ago" || Number.isNaN(at.getTime())) return time.dataset.ago;
      return current === "local" ? local(at) : time.dateTime.replace("T", " ").replace("Z", " UTC");
    };
    const show = () => {
      button.textContent = `Times: ${current}`;
      for (const time of document.querySelectorAll("time[data-ago]")) time.textContent = told(time);
    };
    const next = () => {
      current = names[(names.indexOf(current) + 1) % names.length];
      remember("backstop_times", current);
      show();
      say(`Times: ${current}`);
    };
    button.hidden = false;
    button.addEventListener("click", next);
    document.addEventListener("click", (event) => {
      if (event.target.matches?.("time[data-ago]") && !event.target.closest("a, button, summary")) next();
    });
    document.addEventListener("backstop:refreshed", show);
    show();
  }

  // g and a letter goes somewhere, / to the filter, ? to the list of keys. Who dictates, or has other tools on these
  // letters, switches them off in the list.
  function keys() {
    const button = find("keys");
    const links = [...document.querySelectorAll(".sections a[data-key]")];
    let isGoing = false;
    let areOff = recall("backstop_keys") === "off";
    button.hidden = links.length === 0;
    button.addEventListener("click", sheet);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
      if (areOff || document.querySelector("dialog[open]")) return;
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
        row("Esc", "Close a question, or this list");
        const letters = document.createElement("label");
        const box = document.createElement("input");
        box.type = "checkbox";
        box.checked = !areOff;
        box.addEventListener("change", () => {
          areOff = !box.checked;
          remember("backstop_keys", areOff ? "off" : "on");
        });
        letters.append(box, " Letters are shortcuts");
        const form = document.createElement("form");
        form.method = "dialog";
        const close = document.createElement("button");
        close.textContent = "Close";
        form.append(close);
        dialog.append(title, list, letters, form);
        document.body.append(dialog);
      }
      dialog.showModal();
    }
  }

  // A question goes away with Escape, and with a click beside it unless something was typed into it; one is asked at a time.
  function questions() {
    const opened = () => [...document.querySelectorAll("details.confirm[open]")];
    const put = (question) => {
      question.querySelector("form")?.reset();
      question.open = false;
    };
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
      for (const question of opened()) {
        const isInside = question.contains(document.activeElement);
        put(question);
        if (isInside) question.querySelector("summary").focus();
      }
    });
    document.addEventListener("click", (event) => {
      for (const question of opened()) {
        if (!question.contains(event.target) && !isAnswered(question)) put(question);
      }
    });
  }

  // Whether something was typed or ticked there that the page did not bring along.
  function isAnswered(place) {
    return [...place.querySelectorAll("input:not([type=hidden]), textarea")].some((field) =>
      /^(checkbox|radio)$/.test(field.type) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue,
    );
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
    let before = 0;
    const show = () => {
      const all = boxes();
      const picked = all.filter((box) => box.checked).length;
      if (picked !== before) say(`${picked} selected`);
      before = picked;
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

  // Fetches the parts of the page that change, when told that something did: at most once a second, never while the tab is
  // hidden or somebody is in the middle of something there, and not at all once it is paused.
  function live() {
    const address = document.body.dataset.events;
    const button = find("pause");
    if (!address || !button || !window.EventSource) return;
    const least = 1000;
    // A browser that lost its source comes back by itself within this.
    const patience = 5000;
    const silent = "the server does not answer";
    let source = null;
    let isPaused = sessionStorage.getItem("backstop-paused") === "yes";
    let isDue = false;
    let isWaiting = false;
    let isPressed = false;
    let timer = 0;
    let trouble = 0;
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
    document.addEventListener("pointerdown", (event) => (isPressed = event.isPrimary && event.button === 0));
    // A menu, another window and what is dragged take the end of a press for themselves.
    for (const end of ["pointerup", "pointercancel", "contextmenu", "dragend", "blur", "visibilitychange"]) {
      addEventListener(end, () => (isPressed = false));
    }
    addEventListener("pagehide", close);
    addEventListener("pageshow", apply);
    apply();

    function apply() {
      if (isPaused || document.hidden) close();
      else open();
      show();
    }

    function show() {
      button.setAttribute("aria-pressed", String(isPaused));
      find("pause-word").textContent = isPaused ? "Paused" : isWaiting ? "Waiting for you" : "Live";
      button.title = isWaiting && !isPaused ? "Updates wait while a question is open, or something is typed or selected" : "";
    }

    function open() {
      if (source) return;
      const opened = new EventSource(address);
      source = opened;
      source.addEventListener("changed", due);
      source.addEventListener("tick", due);
      source.addEventListener("open", () => lost(""));
      source.addEventListener("error", async () => {
        if (!trouble) trouble = setTimeout(() => lost(silent), patience);
        // A browser comes back by itself unless it was turned away.
        if (source !== opened || opened.readyState !== EventSource.CLOSED) return;
        source = null;
        setTimeout(apply, 10000);
        const why = await reason();
        if (why && !source && !isPaused) lost(why);
      });
    }

    // Why there are no events, which a source does not tell.
    async function reason() {
      const asking = new AbortController();
      try {
        const answer = await fetch(address, { signal: asking.signal });
        if (answer.status === 401) return "you are logged out; load this page again to log in";
        return answer.ok ? "" : (await answer.json()).detail;
      } catch {
        return silent;
      } finally {
        asking.abort();
      }
    }

    function close() {
      source?.close();
      source = null;
      clearTimeout(timer);
      timer = 0;
      isDue = false;
      isWaiting = false;
      isPressed = false;
      fetching?.abort();
      lost("");
    }

    function lost(why) {
      clearTimeout(trouble);
      trouble = 0;
      const text = why ? `No live updates: ${why}. What you see may be old; it is tried again by itself.` : "";
      find("offline").hidden = !why;
      if (find("offline").textContent !== text) find("offline").textContent = text;
      if (why) button.dataset.state = "lost";
      else delete button.dataset.state;
    }

    function due() {
      isDue = true;
      if (!timer && !fetching) timer = setTimeout(refresh, Math.max(0, last + least - Date.now()));
    }

    const places = () => [find("head"), find("live")];

    // Whether somebody is in the middle of something there: what they answer, type or select is not pulled from under them.
    function isBusy() {
      const field = document.activeElement;
      const selection = getSelection();
      return isPressed || places().some(
        (place) =>
          place.querySelector("details.confirm[open]") ||
          (place.contains(field) && isField(field) && field.type !== "checkbox") ||
          [...place.querySelectorAll("input, textarea")].some(
            (each) => each.type !== "checkbox" && each.value !== each.defaultValue && !each.closest("details:not([open])"),
          ) ||
          (!selection.isCollapsed && place.contains(selection.anchorNode)),
      );
    }

    function wait(is) {
      if (is && !isWaiting && !isPressed) say("Updates wait for you");
      isWaiting = is;
      show();
    }

    async function refresh() {
      timer = 0;
      if (!source) return;
      wait(isBusy());
      if (isWaiting) {
        timer = setTimeout(refresh, least);
        return;
      }
      isDue = false;
      fetching = new AbortController();
      try {
        const answer = await fetch(location.href, { headers: { "backstop-fragment": "1" }, signal: fetching.signal });
        if (answer.redirected || answer.status === 401) location.reload();
        else if (!answer.ok) lost(`this page could not be made again (${answer.status})`);
        else take(await answer.text());
      } catch {
        // The source says whether the server is there; the next event tries again.
      }
      fetching = null;
      last = Date.now();
      if (isDue && source) due();
    }

    // Somebody may have begun something while it was on its way; then it is fetched anew later.
    function take(html) {
      if (isBusy()) {
        isDue = true;
        return;
      }
      const fresh = new DOMParser().parseFromString(html, "text/html");
      if (places().every((place) => fresh.getElementById(place.id))) put(fresh);
      if (source?.readyState === EventSource.OPEN) lost("");
    }

    function put(fresh) {
      const all = (selector) => places().flatMap((place) => [...place.querySelectorAll(selector)]);
      const name = (box) => `${box.name}=${box.value}`;
      const picked = new Set(all("input[type=checkbox]:checked").map(name));
      const opened = new Set(all("details[open][id]").map((each) => each.id));
      const scrolls = ".scroll, .code, .chart-scroll, .chart-values";
      const scrolled = all(scrolls).map((each) => [each.scrollLeft, each.scrollTop]);
      const known = new Set(all("[data-news]").map((each) => each.dataset.news));
      const focused = mark(document.activeElement, all);
      for (const place of places()) place.replaceChildren(...fresh.getElementById(place.id).childNodes);
      for (const box of all("input[type=checkbox]")) if (picked.has(name(box))) box.checked = true;
      for (const each of all("details[id]")) if (opened.has(each.id)) each.open = true;
      all(scrolls).forEach((each, at) => {
        if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
      });
      if (focused) all(focused.selector)[focused.at]?.focus({ preventScroll: true });
      document.dispatchEvent(new Event("backstop:refreshed"));
      const news = all("[data-news]").filter((each) => !known.has(each.dataset.news));
      if (news.length) say(news.map((each) => each.textContent.trim()).join(" "));
    }

    // How what has the focus is found again.
    function mark(node, all) {
      if (!places().some((place) => place.contains(node))) return null;
      const is = (name, value) => `[${name}="${CSS.escape(value)}"]`;
      const owner = node.closest("details[id]");
      const form = node.closest("form[action]");
      let selector = node.tagName.toLowerCase();
      if (node.id) selector = `#${CSS.escape(node.id)}`;
      else if (selector === "summary" && owner) selector = `#${CSS.escape(owner.id)} > summary`;
      else if (node.getAttribute("href")) selector += is("href", node.getAttribute("href"));
      else if (node.name) selector += is("name", node.name) + is("value", node.value);
      else if (node.getAttribute("aria-label")) selector += is("aria-label", node.getAttribute("aria-label"));
      else if (form) selector = `form${is("action", form.getAttribute("action"))} ${selector}`;
      return { selector, at: all(selector).indexOf(node) };
    }
  }
})();
