import { Verdicts } from "./analysis";
import { lasts, person, short, spans, tag, type PodSet, type Release, type ReleaseRecord, type Step } from "./model";

const gateText = (s: Step) => (s.gate === "pause" ? `pause ${lasts((s.pauseSeconds ?? 0) * 1000)}` : s.gate === "none" ? "" : s.gate);

function Gate({ step }: { step: Step }) {
  const passed = step.state === "done"; // a rollback and a first install pass the gates without an approval
  const open = passed && (step.gate === "pause" || step.gate === "analysis" || !!step.approval);
  const closed = step.state === "waiting";
  return (
    <li class={`gate ${open ? "open" : closed ? "closed" : "ahead"}`}>
      <svg viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
        {step.gate === "pause" ? (
          <>
            <circle cx="12" cy="12" r="8.5" />
            <path d="M12 7.5V12l3 2" />
          </>
        ) : open ? (
          <path d="M6.5 12.5l3.5 3.5 7.5-8" />
        ) : (
          <>
            <rect x="6" y="11" width="12" height="8.5" rx="2" />
            <path d="M8.5 11V8.5a3.5 3.5 0 0 1 7 0V11" />
          </>
        )}
      </svg>
      <span class="gate-text">
        {open && step.approval ? (
          <>
            {step.approval.override ? (
              <span title={step.approval.reason}>override: </span>
            ) : (
              <span class="visually-hidden">approved by </span>
            )}
            {step.approval.by === "cluster" ? "in the cluster" : person(step.approval.by)}
          </>
        ) : passed && step.gate === "approval" ? (
          "not needed"
        ) : (
          gateText(step)
        )}
      </span>
    </li>
  );
}

const stateText = { done: "done", moving: "under way", waiting: "at its gate", ahead: "to come", unknown: "rolled back" };

/** Steps is the release as a line of its steps, with the gates between them. */
export function Steps({ release }: { release: Release }) {
  return (
    <ol class="steps" tabIndex={0} aria-label={release.rollingBack ? "Steps of the rollback" : "Steps of the plan"}>
      {release.plan.map((s) => (
        <>
          <li class={`step ${s.state}`} key={s.index} aria-current={s.state === "moving" || s.state === "waiting" ? "step" : undefined}>
            <span class="bubble">
              {s.state === "done" ? (
                <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
                  <path d="M3.5 8.5l3 3 6-7" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />
                </svg>
              ) : (
                s.index
              )}
            </span>
            <span class="step-size">{s.replicas}</span>
            <span class="step-text">
              {s.target} {s.target === 1 ? "pod" : "pods"}
              <span class="visually-hidden">
                , step {s.index}, {stateText[s.state]}
              </span>
            </span>
          </li>
          {s.gate !== "none" && <Gate step={s} key={`g${s.index}`} />}
        </>
      ))}
    </ol>
  );
}

const most = 60;

function PodRow({ set, title, image, slots }: { set?: PodSet; title: string; image: string; slots: number }) {
  const want = Math.max(set?.want ?? 0, set?.pods ?? 0);
  const text = `${set?.available ?? 0} of ${want} pods available`;
  return (
    <div class={`pods ${set?.role ?? "none"}`}>
      <div class="pods-name">
        <strong>{title}</strong> {image && <span class="tag">{image}</span>}
        {set && <code class="faint">{set.revision}</code>}
      </div>
      {slots <= most ? (
        <div class="dots" role="img" aria-label={text}>
          {Array.from({ length: slots }, (_, i) => (
            <i key={i} class={i < (set?.available ?? 0) ? "up" : i < want ? "coming" : "none"} />
          ))}
        </div>
      ) : (
        <svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label={text}>
          <rect width="100" height="12" class="none" />
          <rect width={(100 * want) / slots} height="12" class="coming" />
          <rect width={(100 * (set?.available ?? 0)) / slots} height="12" class="up" />
        </svg>
      )}
      <span class="pods-number">
        {set?.available ?? 0}
        <span class="faint">/{want}</span>
      </span>
    </div>
  );
}

/** Pods are those of both revisions, as two rows. */
export function Pods({ release }: { release: Release }) {
  const update = release.sets.find((s) => s.role === "update");
  const stable = release.sets.find((s) => s.role === "stable");
  const others = release.sets.filter((s) => s.role === "other" && s.pods > 0);
  const shown = [update, stable, ...others].filter(Boolean) as PodSet[];
  const slots = Math.max(release.replicas, ...shown.map((s) => Math.max(s.want, s.pods)), 1);
  const image = release.images?.[0];
  const settled = !stable && release.phase === "Completed";
  return (
    <div class="pod-rows">
      {(update || !settled) && (
        <PodRow set={update} title={settled ? "running" : "new"} image={stable?.revision === release.update ? "" : tag(image?.to)} slots={slots} />
      )}
      {stable && <PodRow set={stable} title={update ? "stable" : "running"} image={tag(image?.from)} slots={slots} />}
      {others.map((s) => (
        <PodRow key={s.name} set={s} title="other" image="" slots={slots} />
      ))}
    </div>
  );
}

const outcomes: Record<string, string> = { UnderWay: "under way", Completed: "complete", RolledBack: "rolled back", Superseded: "superseded" };

/** Timeline is the last ten releases: the time in steps and at gates, who opened these, and the end. */
export function Timeline({ history, now }: { history: ReleaseRecord[]; now: number }) {
  const time = (t?: string) => (t ? Date.parse(t) : NaN);
  const length = (r: ReleaseRecord) => Math.max(0, (r.end ? time(r.end) : now) - time(r.start)) || 0;
  const longest = Math.max(1000, ...history.map(length));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Last releases">
      <table class="timeline">
        <thead>
          <tr>
            <th scope="col">Release</th>
            <th scope="col">Time in steps (bars) and at gates (lines), with the gates that were opened</th>
            <th scope="col">Took</th>
            <th scope="col">End</th>
          </tr>
        </thead>
        <tbody>
          {history.map((r, i) => {
            const took = length(r);
            const width = 12 + (288 * took) / longest;
            const parts = spans(r, now);
            const place = (t: number) => (width * (t - time(r.start))) / Math.max(1, took);
            const sum = (gate: boolean) => lasts(parts.reduce((s, p) => s + (p.gate === gate ? p.to - p.from : 0), 0));
            const gates = (r.approvals ?? []).map((a) => ({ ...a, x: Math.min(width - 4, Math.max(4, (width * (time(a.time) - time(r.start))) / Math.max(1, took))) || 4 }));
            return (
              <tr key={i}>
                <td>
                  <code>{r.revision}</code>
                  {r.commit && <span class="faint"> {short(r.commit)}</span>}
                </td>
                <td>
                  <svg viewBox="0 0 304 22" width="304" height="22" class={`took ${r.outcome}`} aria-hidden="true">
                    {parts.length === 0 ? (
                      <rect y="6" width={width} height="10" rx="5" />
                    ) : (
                      parts.map((p) => (
                        <rect class={p.gate ? "at-gate" : ""} x={place(p.from)} y={p.gate ? 9.5 : 6} width={Math.max(1, place(p.to) - place(p.from))} height={p.gate ? 3 : 10} />
                      ))
                    )}
                    {gates.map((g) => (
                      <circle cx={g.x} cy="11" r="4" />
                    ))}
                  </svg>
                  {parts.length > 0 && (
                    <span class="faint gates-by">
                      {sum(false)} in steps, {sum(true)} at gates
                    </span>
                  )}
                  {gates.length > 0 && (
                    <span class="faint gates-by">
                      {gates.map((g) => `step ${g.step}: ${g.override ? "override, " : ""}${g.by === "cluster" ? "in the cluster" : person(g.by)}${g.commit ? " " + short(g.commit) : ""}`).join(" · ")}
                    </span>
                  )}
                </td>
                <td class="number">{r.start ? lasts(took) : "–"}</td>
                <td>
                  <span class={`outcome ${r.outcome}`}>
                    {outcomes[r.outcome] ?? r.outcome}
                    {r.rollback ? ", a rollback" : ""}
                  </span>
                  {r.end && (
                    <span class="faint">
                      {" "}
                      <time dateTime={r.end}>{new Date(r.end).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}</time>
                    </span>
                  )}
                  {r.analysis && <Verdicts list={r.analysis} />}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Ahead is what the simulation says the release will do next. */
export function Ahead({ release }: { release: Release }) {
  const ahead = release.ahead;
  if (!ahead?.moments?.length) return null;
  const from = release.updated;
  const total = Math.max(1, ...ahead.moments.map((m) => m.seconds));
  const x = (s: number) => 40 + (520 * s) / total;
  const n = Math.max(release.replicas, 1);
  const y = (pods: number) => 100 - (80 * pods) / n;
  let path = `M40 ${y(from)}`;
  for (const m of ahead.moments) path += ` L${x(m.seconds)} ${y(Math.min(m.updated, n))}`;
  const after = (m: (typeof ahead.moments)[number]) => {
    const time = `+${lasts(m.seconds * 1000)}`;
    return m.approvals ? `${time} and ${m.approvals} ${m.approvals === 1 ? "approval" : "approvals"}` : time;
  };
  return (
    <section class="card" aria-labelledby="ahead">
      <h2 id="ahead">What comes next</h2>
      <svg class="ahead" viewBox="0 0 600 120" role="img" aria-label="Pods of the new revision over the time to come">
        <line x1="40" x2="560" y1="100" y2="100" class="rail" />
        <line x1="40" x2="560" y1="20" y2="20" class="rail dashed" />
        <text x="32" y="24" text-anchor="end">{n}</text>
        <text x="32" y="104" text-anchor="end">0</text>
        <path d={path + ` L${x(total)} 100 L40 100 Z`} class="area" />
        <path d={path} class="line" />
        <circle cx="40" cy={y(from)} r="4" class="now" />
        {ahead.moments.map((m) => (
          <circle key={m.step} cx={x(m.seconds)} cy={y(Math.min(m.updated, n))} r="4" class={m.complete ? "end" : "gate"} />
        ))}
        <text x="40" y="117">now</text>
      </svg>
      <ol class="ahead-list">
        {ahead.moments.map((m) => (
          <li key={m.step}>
            <strong>{m.complete ? "Complete" : `Step ${m.step}`}</strong> {m.complete ? "" : `with ${m.updated} of ${release.replicas} pods `}
            <span class="faint">{after(m)}</span>
          </li>
        ))}
      </ol>
      <p class="faint small">
        Simulated with the controller’s own decisions; {ahead.measured ? "a batch of this release takes" : "a pod is taken to need"} {lasts(ahead.podSeconds * 1000)}.
      </p>
    </section>
  );
}
