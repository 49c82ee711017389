// The documents of the server, as cmd/tranche/view makes them.

export type Tone = "good" | "waits" | "busy" | "bad";

export interface Row {
  namespace: string;
  name: string;
  deployment: string;
  source?: string;
  phase: string;
  reason: string;
  message?: string;
  tone: Tone;
  needs?: "approval" | "resume" | "revert" | "attention";
  step: number;
  steps: number;
  rollingBack?: boolean;
  paused?: boolean;
  replicas: number;
  updated: number;
  available: number;
  stable?: string;
  update?: string;
  image?: string;
  commit?: string;
  author?: string;
  since?: string;
  start?: string;
}

export interface Problem {
  reason: string;
  file?: string;
  object?: string;
  field?: string;
  message: string;
}

export interface Source {
  namespace: string;
  name: string;
  url: string;
  ref: string;
  branch: string;
  path?: string;
  applied?: string;
  observed?: string;
  suspended?: boolean;
  tone: Tone;
  reason?: string;
  asOf?: string;
  problems?: Problem[];
  since?: string;
}

export interface Approval {
  step: number;
  commit?: string;
  by?: string;
  time: string;
  override?: string[];
  reason?: string;
}

export interface Step {
  index: number;
  replicas: string;
  target: number;
  state: "done" | "moving" | "waiting" | "ahead" | "unknown";
  gate: "approval" | "analysis" | "pause" | "none";
  pauseSeconds?: number;
  approval?: Approval;
  updated?: number;
  available?: number;
  waitsFor?: "approval" | "analysis" | "remedy" | "pause" | "pods" | "resume";
  until?: string;
}

export interface PodSet {
  name: string;
  revision: string;
  role: "update" | "stable" | "other";
  want: number;
  pods: number;
  ready: number;
  available: number;
}

export interface ReleaseRecord {
  revision: string;
  commit?: string;
  outcome: string;
  rollback?: boolean;
  start?: string;
  end?: string;
  approvals?: Approval[];
  stepTimes?: { step: number; availableTime: string; openTime?: string }[];
  analysis?: Evidence[];
}

export interface Evidence {
  name: string;
  background?: boolean;
  step: number;
  verdict: string;
  reason?: string;
  update?: string;
  stable?: string;
}

export interface Window {
  n: number;
  from?: string;
  to: string;
  update?: number;
  stable?: number;
  updateText?: string;
  stableText?: string;
  reason?: string;
  message?: string;
}

export interface Metric {
  name: string;
  background?: boolean;
  verdict?: string;
  reason?: string;
  message?: string;
  tone: Tone;
  kind: "proportion" | "value" | "check";
  update?: string;
  stable?: string;
  p?: string;
  recorded?: boolean;
  max?: { text: string; value: number };
  min?: { text: string; value: number };
  compare?: string;
  planned?: number;
  count: number;
  unknown?: number;
  pending?: string;
  windows: Window[];
}

export interface Analysis {
  step: number;
  verdict?: string;
  reason?: string;
  message?: string;
  tone: Tone;
  observes?: boolean;
  metrics: Metric[];
  earlier?: Evidence[];
}

export interface ClusterEvent {
  time: string;
  type: string;
  kind: string;
  reason: string;
  message: string;
  count: number;
}

export interface Moment {
  step: number;
  seconds: number;
  updated: number;
  stable: number;
  approvals: number;
  complete?: boolean;
}

export interface Action {
  verb: "approve" | "rollback" | "pause" | "resume";
  step?: number;
  refused?: string;
  command: string;
}

export interface Release extends Row {
  actions?: { inClone: boolean; elsewhere?: string; forge?: string; list?: Action[] };
  images?: { container: string; from?: string; to: string }[];
  plan: Step[];
  sets: PodSet[];
  held?: boolean;
  next: { head?: string; command?: string; byHand?: string };
  failed?: string;
  deletion?: string;
  newerCommit?: string;
  missing?: string[];
  git?: Source;
  analysis?: Analysis;
  history?: ReleaseRecord[];
  events?: ClusterEvent[];
  ahead?: { podSeconds: number; measured: boolean; moments: Moment[] };
}

export interface Message {
  now: string;
  reset?: boolean;
  releases?: Row[];
  sources?: Source[];
  gone?: { kind: "releases" | "sources"; namespace: string; name: string }[];
  release?: Release | null;
  problem?: string;
  stale?: { since: string; reason: string };
  still?: string;
}

export interface Me {
  mode: "local" | "token" | "proxy";
  version: string;
  user?: string;
  error?: string;
}

export const keyOf = (o: { namespace: string; name: string }) => `${o.namespace}/${o.name}`;

/** compare orders text by its characters: thousands of rows are sorted at each change. */
const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

export const byName = (a: { namespace: string; name: string }, b: { namespace: string; name: string }) =>
  compare(a.namespace, b.namespace) || compare(a.name, b.name);

/** State is all that the page knows. */
export interface State {
  releases: Map<string, Row>;
  sources: Map<string, Source>;
  /** The release whose page is open; null: there is none to be seen; undefined: not known yet. */
  release?: Release | null;
  problem?: string;
  /** Since when and why all of it may be old. */
  stale?: Message["stale"];
  /** Says that no controller moves the releases. */
  still?: string;
  /** How far the clock of the server is ahead of this one, in milliseconds. */
  skew: number;
  loaded: boolean;
}

export const empty = (): State => ({ releases: new Map(), sources: new Map(), skew: 0, loaded: false });

/** apply returns the state after a message. */
export function apply(state: State, m: Message, clock: number): State {
  const releases = m.reset ? new Map() : new Map(state.releases);
  const sources = m.reset ? new Map() : new Map(state.sources);
  for (const r of m.releases ?? []) releases.set(keyOf(r), r);
  for (const s of m.sources ?? []) sources.set(keyOf(s), s);
  for (const g of m.gone ?? []) (g.kind === "sources" ? sources : releases).delete(keyOf(g));
  return {
    releases,
    sources,
    release: m.release === undefined ? state.release : m.release,
    problem: m.problem,
    stale: m.stale,
    still: m.still,
    skew: Date.parse(m.now) - clock,
    loaded: true,
  };
}

/** settle returns the state with the time of the server, if a clock has been set meanwhile. */
export function settle(state: State, now: string, clock: number): State {
  const skew = Date.parse(now) - clock;
  return Math.abs(skew - state.skew) < 3000 ? state : { ...state, skew };
}

/** Wait is something that needs a person. */
export interface Wait {
  kind: "release" | "source";
  key: string;
  since: string;
  row?: Row;
  source?: Source;
}

/** waits returns what needs a person, oldest first. */
export function waits(state: State): Wait[] {
  const found: Wait[] = [];
  for (const row of state.releases.values()) {
    if (row.needs) found.push({ kind: "release", key: keyOf(row), since: row.since ?? "", row });
  }
  for (const source of state.sources.values()) {
    if (source.problems?.length) found.push({ kind: "source", key: keyOf(source), since: source.since ?? "", source });
  }
  return found.sort((a, b) => compare(a.since, b.since) || compare(a.key, b.key));
}

/** Filter is what the table of releases shows, as its URL has it. */
export interface Filter {
  q: string;
  status: "" | "needs" | "moving" | "failed" | "complete";
  namespace: string;
}

export function filterOf(query: string): Filter {
  const p = new URLSearchParams(query);
  return { q: p.get("q") ?? "", status: (p.get("status") ?? "") as Filter["status"], namespace: p.get("namespace") ?? "" };
}

export function queryOf(f: Filter): string {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(f)) if (v) p.set(k, v);
  const text = p.toString();
  return text ? "?" + text : "";
}

export function matches(r: Row, f: Filter): boolean {
  if (f.namespace && r.namespace !== f.namespace) return false;
  if (f.status === "needs" && !r.needs) return false;
  if (f.status === "moving" && r.tone !== "busy") return false;
  if (f.status === "failed" && r.tone !== "bad") return false;
  if (f.status === "complete" && r.tone !== "good") return false;
  const text = `${r.namespace}/${r.name} ${r.deployment} ${r.image ?? ""} ${r.commit ?? ""} ${r.reason} ${r.author ?? ""} ${r.source ?? ""}`;
  return f.q.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
}

/** ago says how long something takes or has taken, as kubectl does. */
export function lasts(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 120) return `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h} h`;
  return `${Math.floor(h / 24)} d`;
}

export const short = (commit?: string) => (commit ?? "").slice(0, 7);

/** tag returns the part of an image that changes. */
export function tag(image?: string): string {
  if (!image) return "";
  const at = image.indexOf("@");
  if (at >= 0) return image.slice(at + 1).replace("sha256:", "").slice(0, 12);
  const colon = image.lastIndexOf(":");
  return colon > image.lastIndexOf("/") ? image.slice(colon + 1) : image;
}

/** Span is a part of a release: its pods move, or it waits at the gate of a step. */
export interface Span {
  step: number;
  gate: boolean;
  from: number;
  to: number;
}

/** spans returns the parts of a release, oldest first; none: they are not known. */
export function spans(r: ReleaseRecord, now: number): Span[] {
  const end = r.end ? Date.parse(r.end) : now;
  let from = Date.parse(r.start ?? "");
  if (!r.stepTimes?.length || Number.isNaN(from)) return [];
  const found: Span[] = [];
  const add = (step: number, gate: boolean, until: number) => {
    const to = Math.min(Math.max(until, from), end);
    if (to > from) found.push({ step, gate, from, to });
    from = Math.max(from, to);
  };
  for (const t of r.stepTimes) {
    add(t.step, false, Date.parse(t.availableTime));
    add(t.step, true, t.openTime ? Date.parse(t.openTime) : end);
  }
  const last = r.stepTimes[r.stepTimes.length - 1];
  if (last.openTime) add(last.step + 1, false, end);
  return found;
}

/** person returns the name of an author without the address. */
export const person = (author?: string) => (author ?? "").replace(/\s*<.*>$/, "");
