// What was found, in a few numbers at the head of the page.

function headlines(doc) {
  return [level(doc), gain(doc), leastSent(doc), progress(doc)]
    .filter(Boolean)
    .map(([number, text]) =>
      element("div", { class: "card headline" }, element("b", {}, number), element("span", {}, text)),
    );
}

function level(doc) {
  const method = best(doc);
  if (!method) return null;
  const soFar = method.runs.every((run) => run.status === "complete") ? "" : ", so far";
  return [percent(method.standing.accuracy_last.mean), `${method.name}, ${lately(method, doc.last)}${soFar}`];
}

// What the level of a method is a mean of; short runs have fewer evaluations than are asked for.
function lately({ course }, last) {
  const many = Math.min(last, course.evaluated);
  if (many === 1) return "the only evaluation";
  return `mean of ${many < last ? "all" : "the last"} ${many} evaluations`;
}

// Against the first method, at the hardest target that it reached: an easier one might flatter. If it reached none,
// between those that did.
function gain(doc) {
  const methods = sound(doc);
  const isFirst = ({ name }) => name === methods[0].name;
  const goals = doc.targets
    .map(({ accuracy }, place) => ({ accuracy, reached: inOrder(methods, place) }))
    .filter(({ reached }) => reached.length > 1)
    .sort((one, other) => other.accuracy - one.accuracy);
  if (!goals.length) return null;
  const { accuracy, reached } = goals.find((goal) => goal.reached.some(isFirst)) || goals[0];
  const [fast, slow] = [reached[0], reached.find(isFirst) || reached.at(-1)];
  const factor = slow.costs.round / fast.costs.round;
  if (factor <= 1) return null;
  const who = isFirst(slow) ? "it" : "several methods";
  const which = doc.targets.length > 1 ? ` (the hardest target that ${who} reached)` : "";
  return [
    `${factor.toFixed(1)}×`,
    `fewer rounds with ${fast.name} than with ${slow.name} to ${percent(accuracy)}${which}, ${inTime(fast, slow)}`,
  ];
}

const inOrder = (methods, place) =>
  methods
    .map(({ name, standing }) => ({ name, costs: standing.costs_to[place] }))
    .filter(({ costs }) => costs.round)
    .sort((one, other) => one.costs.round - other.costs.round);

// Rounds alone would favour long chains, whose clients wait for each other.
function inTime(fast, slow) {
  const [now, before] = [fast.costs.virtual_seconds, slow.costs.virtual_seconds];
  if (!now || !before) return "virtual time not noted";
  const factor = before / now;
  if (Math.abs(factor - 1) < 0.05) return "in the same virtual time";
  return factor > 1 ? `${factor.toFixed(1)}× less virtual time` : `but ${(1 / factor).toFixed(1)}× more virtual time`;
}

// What more rounds cost is no merit of fewer.
function leastSent(doc) {
  const methods = sound(doc);
  if (new Set(methods.map((method) => method.course.round.at(-1))).size !== 1) return null;
  const [least] = methods
    .filter((method) => method.standing.bytes)
    .sort((one, other) => one.standing.bytes - other.standing.bytes);
  if (!least) return null;
  return [bytes(least.standing.bytes), `sent by ${least.name}${methods.length > 1 ? ", the least of all" : " in all"}`];
}

function progress({ states, runs_in_all: all }) {
  if (!all) return null;
  const others = Object.entries(states)
    .filter(([name]) => name !== "complete")
    .map(([name, number]) => `, ${number} ${name}`);
  return [`${states.complete || 0} of ${all}`, `${all === 1 ? "run" : "runs"} complete${others.join("")}`];
}
