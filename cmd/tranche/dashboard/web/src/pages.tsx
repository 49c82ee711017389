import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { byName, filterOf, keyOf, matches, person, queryOf, short, tag, waits, type Filter, type Problem, type Release, type Row, type Source, type State } from "./model";
import { Decide } from "./act";
import { Analysis } from "./analysis";
import { Ago, Badge, Command, Empty, reasonText, Share, Status, Track, useClock } from "./parts";
import { Ahead, Pods, Steps, Timeline } from "./pictures";
import { go, releasePath } from "./route";

const asks: Record<string, (r: Row) => string> = {
  approval: (r) => `Approve step ${r.step}`,
  resume: () => "Resume the plan",
  revert: () => "Take back the commit that failed",
  attention: () => "See what is wrong",
};

function Problems({ list }: { list: Problem[] }) {
  return (
    <ul class="problems">
      {list.map((p) => (
        <li key={p.message}>
          <p>{p.message}</p>
          <dl>
            {p.file && (
              <>
                <dt>file</dt>
                <dd><code>{p.file}</code></dd>
              </>
            )}
            {p.object && (
              <>
                <dt>object</dt>
                <dd><code>{p.object}</code></dd>
              </>
            )}
            {p.field && (
              <>
                <dt>field</dt>
                <dd><code>{p.field}</code></dd>
              </>
            )}
          </dl>
        </li>
      ))}
    </ul>
  );
}

export function Waiting({ state }: { state: State }) {
  const now = useClock() + state.skew;
  const list = waits(state);
  const moving = [...state.releases.values()].filter((r) => r.tone === "busy");
  return (
    <>
      <h1 tabIndex={-1}>Waiting</h1>
      <p class="lead">What needs a person, oldest first.</p>
      {state.loaded && list.length === 0 && (
        <Empty title="Nothing waits for you.">
          {state.releases.size === 0 ? "There is no release that you may see." : `${state.releases.size} ${state.releases.size === 1 ? "release" : "releases"}, ${moving.length || "none"} of them moving.`}
        </Empty>
      )}
      <ol class="wait-list">
        {list.map((w) =>
          w.row ? (
            <li key={"r" + w.key} class={`card wait ${w.row.tone}`}>
              <a class="cover" href={releasePath(w.row)}>
                <span class="name">{w.row.name}</span>
                <span class="faint"> {w.row.namespace}</span>
              </a>
              <div class="what">
                <Status row={w.row} />
                <span class="since faint">
                  <Ago at={w.since} now={now} />
                </span>
              </div>
              <p class="ask">{asks[w.row.needs ?? ""]?.(w.row)}</p>
              <p class="faint clamp">{w.row.message}</p>
              <div class="foot">
                <Track row={w.row} />
                <Share row={w.row} />
                {w.row.author && <span class="faint">by {person(w.row.author)}</span>}
              </div>
            </li>
          ) : (
            <li key={"s" + w.key} class="card wait bad">
              <a class="cover" href="/sources">
                <span class="name">{w.source!.name}</span>
                <span class="faint"> {w.source!.namespace}</span>
              </a>
              <div class="what">
                <Badge tone="bad">{reasonText(w.source!.problems![0].reason)}</Badge>
                <span class="since faint">
                  <Ago at={w.since} now={now} />
                </span>
              </div>
              <p class="ask">Correct the branch {w.source!.branch}</p>
              <Problems list={w.source!.problems!} />
            </li>
          ),
        )}
      </ol>
    </>
  );
}

const statuses: [Filter["status"], string][] = [
  ["", "All"],
  ["needs", "Needs a person"],
  ["moving", "Moving"],
  ["failed", "Failed"],
  ["complete", "Complete"],
];

/** shownAtOnce bounds the rows of the table, so that thousands of releases cost nothing. */
const shownAtOnce = 200;

export function Releases({ state, query }: { state: State; query: string }) {
  const now = useClock(5000) + state.skew;
  const filter = filterOf(query);
  const [more, setMore] = useState(1);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (e: KeyboardEvent) => {
      if (e.key !== "/" || (e.target as Element).matches("input, select, textarea")) return;
      e.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const set = (f: Partial<Filter>) => {
    setMore(1);
    go("/releases" + queryOf({ ...filter, ...f }), true);
  };
  const all = useMemo(() => [...state.releases.values()].sort(byName), [state.releases]);
  const found = useMemo(() => all.filter((r) => matches(r, filter)), [all, query]);
  const shown = found.slice(0, shownAtOnce * more);
  const namespaces = useMemo(() => [...new Set(all.map((r) => r.namespace))], [all]);
  return (
    <>
      <h1 tabIndex={-1}>Releases</h1>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          <span class="visually-hidden">Filter releases</span>
          <input ref={input} type="search" placeholder="Filter by name, image, commit, author …" value={filter.q} onInput={(e) => set({ q: e.currentTarget.value })} />
        </label>
        <label>
          <span class="visually-hidden">Namespace</span>
          <select value={filter.namespace} onChange={(e) => set({ namespace: e.currentTarget.value })}>
            <option value="">All namespaces</option>
            {namespaces.map((n) => (
              <option key={n} value={n}>
                {n}
              </option>
            ))}
          </select>
        </label>
        <div class="chips" role="group" aria-label="Status">
          {statuses.map(([value, text]) => (
            <button type="button" key={value} aria-pressed={filter.status === value} onClick={() => set({ status: value })}>
              {text}
            </button>
          ))}
        </div>
      </form>
      {state.loaded && found.length === 0 ? (
        <Empty title={all.length ? "No release matches." : "There is no release that you may see."} />
      ) : (
        <div class="card flush scroll" tabIndex={0} role="region" aria-label="Table of releases">
          <table class="releases">
            <caption class="visually-hidden">Releases</caption>
            <thead>
              <tr>
                <th scope="col">Release</th>
                <th scope="col">Status</th>
                <th scope="col">Steps</th>
                <th scope="col">New pods</th>
                <th scope="col">Image</th>
                <th scope="col">Commit</th>
                <th scope="col">Since</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((r) => (
                <tr key={keyOf(r)}>
                  <th scope="row">
                    <a href={releasePath(r)}>{r.name}</a>
                    <span class="faint">{r.namespace}</span>
                  </th>
                  <td data-label="Status"><Status row={r} /></td>
                  <td data-label="Steps"><Track row={r} /></td>
                  <td data-label="New pods"><Share row={r} /></td>
                  <td data-label="Image"><code>{tag(r.image)}</code></td>
                  <td data-label="Commit">
                    <code>{short(r.commit)}</code> <span class="faint">{person(r.author)}</span>
                  </td>
                  <td data-label="Since"><Ago at={r.since} now={now} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="faint count">
        {shown.length} of {found.length} {found.length === 1 ? "release" : "releases"}{" "}
        {found.length > shown.length && (
          <button type="button" class="quiet" onClick={() => setMore(more + 1)}>
            Show {Math.min(shownAtOnce, found.length - shown.length)} more
          </button>
        )}
      </p>
    </>
  );
}

const missingText: Record<string, string> = { source: "the source", workload: "the Deployment and its pods", events: "the events" };

function Next({ release }: { release: Release }) {
  const { head, command, byHand } = release.next;
  const inClone = release.actions?.inClone;
  if (!head && !release.actions?.list?.length) return null;
  return (
    <section class={`card next ${release.needs ? "needs" : ""}`} aria-labelledby="next">
      <h2 id="next">{release.needs ? asks[release.needs](release) : "Decide"}</h2>
      {head && !inClone && (
        <>
          <p class="pre">{head}</p>
          {command && <Command text={command} />}
        </>
      )}
      <Decide release={release} />
      {inClone && command && (
        <details>
          <summary>At the terminal</summary>
          <Command text={command} />
        </details>
      )}
      {byHand && (
        <details>
          <summary>With git alone</summary>
          <pre tabIndex={0} aria-label="commands of git"><code>{byHand}</code></pre>
        </details>
      )}
    </section>
  );
}

function Remaining({ until, now }: { until: string; now: number }) {
  const left = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  return <span class="number">goes on in {left >= 120 ? `${Math.ceil(left / 60)} min` : `${left} s`}</span>;
}

export function ReleasePage({ name, state }: { name: string; state: State }) {
  const now = useClock() + state.skew;
  const r = state.release;
  if (r === undefined) return <h1 tabIndex={-1}>{name}</h1>;
  if (r === null) {
    return (
      <>
        <h1 tabIndex={-1}>{name}</h1>
        <Empty title="There is no such release, or you may not see it." />
      </>
    );
  }
  const pause = r.plan.find((s) => s.waitsFor === "pause" && s.until);
  return (
    <>
      <p class="crumbs">
        <a href="/releases">Releases</a> <span aria-hidden="true">/</span> <a href={`/releases?namespace=${encodeURIComponent(r.namespace)}`}>{r.namespace}</a>
      </p>
      <div class="title">
        <h1 tabIndex={-1}>{r.name}</h1>
        <Status row={r} />
        <span class="faint">
          <Ago at={r.since} now={now} />
        </span>
      </div>
      <p class="message" aria-live="polite">
        {r.message}
        {pause ? " " : ""}
      </p>
      {pause && <p class="faint"><Remaining until={pause.until!} now={now} /></p>}
      {r.deletion && <p class="warn">This release is {r.deletion}.</p>}
      {r.newerCommit && <p class="warn">Commit {short(r.newerCommit)} has come; its release has not begun yet.</p>}
      {r.missing && <p class="warn">You may not see {r.missing.map((m) => missingText[m] ?? m).join(", ")} of this release.</p>}
      <section class="card hero" aria-label="Steps and pods">
        <Steps release={r} />
        {!r.missing?.includes("workload") && <Pods release={r} />}
      </section>
      {r.analysis && r.analysis.metrics.length > 0 && <Analysis analysis={r.analysis} />}
      <div class="columns">
        <div>
          <Next release={r} />
          <Ahead release={r} />
        </div>
        <div>
          <section class="card" aria-labelledby="change">
            <h2 id="change">The change</h2>
            <dl class="facts">
              {(r.images ?? []).map((i) => (
                <>
                  <dt key={i.container}>{i.container}</dt>
                  <dd>
                    {i.from && (
                      <>
                        <code class="faint">{tag(i.from)}</code> <span aria-label="becomes">→</span>{" "}
                      </>
                    )}
                    <code title={i.to}>{tag(i.to)}</code>
                  </dd>
                </>
              ))}
              <dt>commit</dt>
              <dd>
                {r.commit ? <code title={r.commit}>{short(r.commit)}</code> : "none"} {r.author && <span>by {person(r.author)}</span>}
              </dd>
              <dt>revision</dt>
              <dd>
                {r.stable && r.stable !== r.update && (
                  <>
                    <code class="faint">{r.stable}</code> <span aria-label="becomes">→</span>{" "}
                  </>
                )}
                <code>{r.update || "–"}</code>
              </dd>
              {r.failed && (
                <>
                  <dt>failed</dt>
                  <dd><code>{r.failed}</code></dd>
                </>
              )}
              <dt>Deployment</dt>
              <dd>
                {r.deployment}, {r.replicas} {r.replicas === 1 ? "replica" : "replicas"}
                {r.held ? ", held" : ""}
              </dd>
              {r.git && (
                <>
                  <dt>source</dt>
                  <dd>
                    <a href="/sources">{r.git.name}</a>, {r.git.ref}
                    {r.git.path ? `, ${r.git.path}` : ""} at <code>{short(r.git.applied)}</code>
                  </dd>
                </>
              )}
              {r.start && r.phase !== "Completed" && (
                <>
                  <dt>began</dt>
                  <dd><Ago at={r.start} now={now} /></dd>
                </>
              )}
            </dl>
            {r.git?.problems && <Problems list={r.git.problems} />}
          </section>
        </div>
      </div>
      {r.history && r.history.length > 0 && (
        <section class="card" aria-labelledby="history">
          <h2 id="history">The last releases</h2>
          <Timeline history={r.history} now={now} />
        </section>
      )}
      {r.events && r.events.length > 0 && (
        <section class="card" aria-labelledby="events">
          <h2 id="events">Events</h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="Events of the release">
            <table class="events">
              <thead>
                <tr>
                  <th scope="col">When</th>
                  <th scope="col">Reason</th>
                  <th scope="col">Message</th>
                </tr>
              </thead>
              <tbody>
                {r.events.map((e, i) => (
                  <tr key={i} class={e.type === "Warning" ? "warning" : ""}>
                    <td><Ago at={e.time} now={now} /></td>
                    <td>
                      {e.type === "Warning" ? "⚠ " : ""}
                      {e.reason}
                    </td>
                    <td>
                      {e.message}
                      {e.count > 1 ? ` (${e.count} times)` : ""}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}

export function Sources({ state }: { state: State }) {
  const now = useClock(5000) + state.skew;
  const list = [...state.sources.values()].sort(
    (a, b) => Number(!!b.problems) - Number(!!a.problems) || byName(a, b),
  );
  const count = (s: Source) => [...state.releases.values()].filter((r) => r.source === keyOf(s)).length;
  return (
    <>
      <h1 tabIndex={-1}>Sources</h1>
      {state.loaded && list.length === 0 && <Empty title="There is no GitSource that you may see." />}
      {list.length > 0 && (
        <div class="card flush scroll" tabIndex={0} role="region" aria-label="Table of sources">
          <table class="sources">
            <caption class="visually-hidden">GitSources</caption>
            <thead>
              <tr>
                <th scope="col">Source</th>
                <th scope="col">Status</th>
                <th scope="col">Branch</th>
                <th scope="col">Applied</th>
                <th scope="col">Releases</th>
                <th scope="col">As of</th>
              </tr>
            </thead>
            <tbody>
              {list.map((s) => (
                <>
                  <tr key={keyOf(s)} class={s.problems ? "has-problem" : ""}>
                    <th scope="row">
                      {s.name}
                      <span class="faint">{s.namespace}</span>
                    </th>
                    <td data-label="Status"><Badge tone={s.tone}>{reasonText(s.reason ?? "")}</Badge></td>
                    <td data-label="Branch">
                      {s.ref}
                      <span class="faint url">
                        {s.url}
                        {s.path ? ` · ${s.path}` : ""}
                      </span>
                    </td>
                    <td data-label="Applied">
                      <code>{short(s.applied) || "–"}</code>
                      {s.observed && s.observed !== s.applied && <span class="faint"> of {short(s.observed)}</span>}
                    </td>
                    <td data-label="Releases">
                      <a href={`/releases?q=${encodeURIComponent(keyOf(s))}`}>{count(s)}</a>
                    </td>
                    <td data-label="As of"><Ago at={s.asOf} now={now} /></td>
                  </tr>
                  {s.problems && (
                    <tr key={keyOf(s) + "p"} class="problem-row">
                      <td colSpan={6}><Problems list={s.problems} /></td>
                    </tr>
                  )}
                </>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
