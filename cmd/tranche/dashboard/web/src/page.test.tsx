import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import render from "preact-render-to-string";
import { apply, empty, filterOf, matches, queryOf, waits, type Release, type Row } from "./model";
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

test("a release at its gate says what opens it", () => {
  const release = fixtures.get("waiting")!;
  const html = render(<ReleasePage name="shop/web" state={{ ...empty(), release }} />);
  for (const text of ["Approve step 1", "tranche approve web -n shop --push", "5 of 5 pods available", "step 1, at its gate", "Ada"]) {
    assert.ok(html.includes(text), text);
  }
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

test("a filter survives in the URL", () => {
  const filter = { q: "web v2", status: "needs" as const, namespace: "shop" };
  assert.deepEqual(filterOf(queryOf(filter)), filter);
  const row = fixtures.get("waiting") as Row;
  assert.ok(matches(row, filter));
  assert.ok(!matches(row, { ...filter, namespace: "bank" }));
});
