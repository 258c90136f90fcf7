const visible = (token) => token.replaceAll(" ", "\u00b7").replaceAll("\n", "\u23ce").replaceAll("\t", "\u21e5");
const quoted = (token) => `\u201c${visible(token)}\u201d`;
const percent = (share) => share === 0 ? "0" : share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function element(tag, kind, ...content) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...content);
  return made;
}

function heading(stage) {
  const cell = element("th", "", stage.name);
  cell.scope = "col";
  const banned = stage.banned ? `, bans ${stage.banned}: ${stage.examples.map(quoted).join(" ")}` : "";
  const moved = stage.name === "model" && stage.processor === null ? "" : `shifts ${percent(stage.moved)}, `;
  cell.append(element("small", "", `${moved}entropy ${stage.entropy.toFixed(2)} bits${banned}`));
  return cell;
}

function share(stage, earlier, nth) {
  const cell = element("td", stage.processor === null ? "builtin" : `hue${stage.processor % 8}`);
  const bar = element("span", "bar", element("i"));
  bar.firstChild.style.width = `${100 * stage.probabilities[nth]}%`;
  cell.append(bar, percent(stage.probabilities[nth]));
  const was = earlier ? earlier.ranks[nth] : stage.ranks[nth], is = stage.ranks[nth];
  if (was && !is) cell.append(element("span", "gone", " banned"));
  else if (was > is) cell.append(element("span", "up", ` \u2191${was - is}`));
  else if (was < is) cell.append(element("span", "down", was ? ` \u2193${is - was}` : " possible"));
  return cell;
}

function present(root) {
  const { names, prompt, steps, telling } = JSON.parse(root.querySelector("script").textContent);
  const panel = root.querySelector(".panel");
  const tokens = [...root.querySelectorAll(".token")];
  const [plot, marker] = root.querySelectorAll(".chart .plot, .chart .marker");

  function show(number, focus) {
    const step = steps[number];
    tokens.forEach((token, n) => {
      token.setAttribute("aria-pressed", n === number);
      token.tabIndex = n === number ? 0 : -1;
    });
    if (focus) tokens[number].focus();
    marker?.setAttribute("x", plot.x.baseVal.value + plot.width.baseVal.value * number / steps.length);
    const others = step.without.map((token, n) => [names[n], token]).filter(([, token]) => token !== step.token);
    const facts = step.batch ? [`${step.batch}.`] : [`Without processors, the same random numbers choose ${quoted(step.plain)}.`,
      ...others.map(([name, token]) => `With only ${name} left out: ${quoted(token)}.`)];
    const before = [...prompt, ...steps.slice(0, number).map((other) => other.token)].slice(-24).join(step.batch ? " " : "");
    const table = element("table", "", element("thead", "", element("tr", "", element("th", "", "token"), ...step.stages.map(heading))));
    const order = step.tokens.map((_, nth) => nth).sort((a, b) => step.stages[0].probabilities[b] - step.stages[0].probabilities[a]);
    table.append(element("tbody", "", ...order.map((nth) => element("tr", nth === 0 ? "chosen" : "",
      element("td", "", visible(step.tokens[nth])), ...step.stages.map((stage, at) => share(stage, step.stages[at - 1], nth))))));
    const scroll = element("div", "scroll", table);
    scroll.tabIndex = 0;
    panel.replaceChildren(element("h3", "", `Token ${number + 1} of ${steps.length}: ${quoted(step.token)}`),
      element("p", "", facts.join(" ")), element("p", "before", before && `\u2026${before}`), scroll);
  }

  tokens.forEach((token, number) => {
    token.onclick = () => {
      show(number, false);
      if (matchMedia("(max-width: 700px)").matches) panel.scrollIntoView({ block: "nearest" });
    };
    token.onkeydown = (event) => {
      const to = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: steps.length - 1 }[event.key];
      if (to === undefined || !steps[to]) return;
      event.preventDefault();
      show(to, true);
    };
  });
  if (plot) root.querySelector(".chart").onclick = (event) => {
    const { left, width } = plot.getBoundingClientRect();
    const number = Math.floor((event.clientX - left) / width * steps.length);
    show(Math.min(Math.max(number, 0), steps.length - 1), false);
    panel.scrollIntoView({ block: "nearest" });
  };
  show((telling ?? steps.length) - 1, false);
}

document.querySelectorAll(".shown").forEach(present);
