import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import render from "preact-render-to-string";
import { apply, empty, filterOf, matches, queryOf, settle, spans, waits, type Release, type Row } from "./model";
import { ReleasePage, Releases, Sources, Waiting } from "./pages";

const noon = Date.parse("2026-07-01T12:00:00Z");
const fixtures = new Map(
  readdirSync("fixtures").map((f) => [f.replace(".json", ""), JSON.parse(readFileSync("fixtures/" + f, "utf8")) as Release]),
);

test("every document of a release can be shown", () => {
  for (const [name, release] of fixtures) {
    const state = apply(empty(), { now: "2026-07-01T12:00:00Z", reset: true, releases: [release], sources: release.git ? [release.git] : [], release }, noon);
    const html = render(<ReleasePage name="shop/web" state={state} />);
    assert.match(html, /<h1[^>]*>web<\/h1>/, name);
    assert.ok(render(<Waiting state={state} />) && render(<Releases state={state} query="" />) && render(<Sources state={state} />), name);
  }
});

test("ages are by the clock of the server, also if this one is wrong or is set", () => {
  const at = { now: "2026-07-01T12:00:00Z", reset: true };
  const hour = 3600_000;
  const wrong = apply(empty(), at, noon + hour);
  assert.equal(noon + hour + wrong.skew, noon);
  const right = settle(wrong, "2026-07-01T12:00:05Z", noon + 5000);
  assert.equal(noon + 5000 + right.skew, noon + 5000);
  assert.equal(settle(right, "2026-07-01T12:00:11Z", noon + 10000), right); // on its way
});

test("a release at its gate says what opens it", () => {
  const release = fixtures.get("waiting")!;
  const html = render(<ReleasePage name="shop/web" state={{ ...empty(), release }} />);
  for (const text of ["Approve step 1", "tranche approve web -n shop --push", "5 of 5 pods available", "step 1, at its gate", "Ada"]) {
    assert.ok(html.includes(text), text);
  }
});

test("a gate that measures shows both revisions, and a gap where there is no value", () => {
  const release = fixtures.get("measured")!;
  const html = render(<ReleasePage name="shop/web" state={{ ...empty(), release }} />);
  for (const text of ["Analysis of step 1", "fails", "new 4.0 % (82/2044)", "stable 0.1 % (24/18420)", "max 2%", "Windows 1 to 4 of 5", "unknown: provider unavailable",
    "The next window has no answer yet", "errors passes", "errors fails"]) {
    assert.ok(html.includes(text), text);
  }
  const line = html.match(/<path d="([^"]*)" class="update"/)![1];
  assert.match(line, /^M[\d. ]+L[\d. ]+M[\d. ]+$/); // the third window of four has no point
  assert.ok(!/NaN|Infinity|undefined/.test(html));
});

test("any values can be drawn", () => {
  const release = structuredClone(fixtures.get("measured")!);
  const metric = release.analysis!.metrics[0];
  const draw = (edit: (m: typeof metric) => void) => {
    const m = structuredClone(metric);
    edit(m);
    const html = render(<ReleasePage name="shop/web" state={{ ...empty(), release: { ...release, analysis: { ...release.analysis!, metrics: Array.from({ length: 30 }, (_, i) => ({ ...m, name: m.name + i })) } } }} />);
    assert.ok(!/NaN|Infinity|undefined/.test(html));
    return html;
  };
  const windows = (n: number, update?: number, stable?: number) =>
    Array.from({ length: n }, (_, i) => ({ n: i + 1, to: "2026-07-01T12:00:00Z", update, stable }));
  draw((m) => (m.windows = windows(100, 0, 0)));
  draw((m) => (m.windows = windows(1, 1e300, -1e300)));
  draw((m) => (m.windows = windows(3)));
  draw((m) => ((m.windows = windows(3, -5, -7)), (m.max = undefined)));
  draw((m) => ((m.windows = windows(2)), (m.max = m.min = undefined)));
  draw((m) => ((m.windows = []), (m.max = { text: "-1", value: -1 })));
  assert.ok(!draw((m) => ((m.name = "<img src=x>"), (m.windows[2].message = "<script>"))).includes("<img"));
});

test("a state follows its messages", () => {
  const row = fixtures.get("waiting") as Row;
  const id = { kind: "releases" as const, namespace: "shop", name: "web" };
  let state = apply(empty(), { now: "2026-07-01T12:00:00Z", reset: true, releases: [row, { ...row, name: "api" }] }, noon);
  state = apply(state, { now: "2026-07-01T12:00:00Z", gone: [id] }, noon);
  assert.deepEqual([...state.releases.keys()], ["shop/api"]);
  state = apply(state, { now: "2026-07-01T12:00:00Z", reset: true }, noon);
  assert.equal(state.releases.size, 0);
});

test("what waits is sorted by age", () => {
  const row = fixtures.get("waiting") as Row;
  const of = (name: string, since: string) => ({ ...row, name, since });
  const state = apply(empty(), { now: "2026-07-01T12:00:00Z", releases: [of("b", "2026-07-01T11:00:00Z"), of("a", "2026-07-01T11:30:00Z")] }, noon);
  assert.deepEqual(waits(state).map((w) => w.key), ["shop/b", "shop/a"]);
});

test("a release has its time in steps and at gates", () => {
  const noonOf = (m: number) => new Date(noon - m * 60000).toISOString();
  const parts = (r: object, now = noon) => spans({ revision: "r", outcome: "", ...r }, now).map((p) => [p.step, p.gate, (p.to - p.from) / 60000]);
  const stepTimes = [{ step: 0, availableTime: noonOf(50), openTime: noonOf(30) }, { step: 1, availableTime: noonOf(30), openTime: noonOf(10) }];
  assert.deepEqual(parts({ start: noonOf(60), end: noonOf(5), stepTimes }), [[0, false, 10], [0, true, 20], [1, true, 20], [2, false, 5]]);
  assert.deepEqual(parts({ start: noonOf(60), stepTimes: [{ step: 0, availableTime: noonOf(50) }] }), [[0, false, 10], [0, true, 50]]);
  assert.deepEqual(parts({ start: noonOf(60) }), []);
  assert.deepEqual(parts({ stepTimes }), []);
  assert.deepEqual(parts({ start: noonOf(20), end: noonOf(15), stepTimes }), [[1, true, 5]]); // the clock has jumped
  const html = render(<ReleasePage name="shop/web" state={{ ...empty(), release: fixtures.get("waiting")! }} />);
  assert.ok(html.includes("15 min in steps, 45 min at gates"), html.match(/[^>]*at gates[^<]*/g)?.join());
});

test("a filter survives in the URL", () => {
  const filter = { q: "web v2", status: "needs" as const, namespace: "shop" };
  assert.deepEqual(filterOf(queryOf(filter)), filter);
  const row = fixtures.get("waiting") as Row;
  assert.ok(matches(row, filter));
  assert.ok(!matches(row, { ...filter, namespace: "bank" }));
});
