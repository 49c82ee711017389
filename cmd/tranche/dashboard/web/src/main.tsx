import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { apply, empty, settle, waits, type Me, type State } from "./model";
import { ReleasePage, Releases, Sources, Waiting } from "./pages";
import { Stream, whoReads, type Live } from "./stream";
import { useRoute } from "./route";
import "./style.css";

const liveText: Record<Live, string> = { connecting: "Connecting", live: "Live", cut: "Reconnecting", ended: "Signed out" };

/** oldText says why and since when what is shown may be old; empty: it is not. */
function oldText(live: Live, { loaded, stale, skew }: State, heardAt: number): string {
  if (!loaded || live === "connecting" || (live === "live" && !stale)) return "";
  const at = stale ? Date.parse(stale.since) - skew : heardAt;
  const reason = live === "live" ? stale!.reason : "The dashboard does not answer.";
  return `What is shown is of ${new Date(at).toLocaleString()} and may be old. ${reason}`;
}

function SignIn({ me }: { me: Me }) {
  const [error, set] = useState("");
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const token = new FormData(e.currentTarget as HTMLFormElement).get("token");
    const answer = await fetch("/api/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
    if (answer.ok) return location.reload();
    set(((await answer.json()) as { error: string }).error);
  };
  return (
    <main class="sign-in">
      <div class="card">
        <h1>Tranche</h1>
        <p>{me.error}</p>
        {me.mode === "token" && (
          <form onSubmit={submit}>
            <label for="token">Bearer token</label>
            <input id="token" name="token" type="password" autocomplete="off" required />
            <button class="primary">Sign in</button>
            <p class="warn" role="alert">{error}</p>
          </form>
        )}
      </div>
    </main>
  );
}

function App() {
  const route = useRoute();
  const [me, setMe] = useState<Me>();
  const [live, setLive] = useState<Live>("connecting");
  const [state, setState] = useState<State>(empty);
  const stream = useMemo(
    () =>
      new Stream(
        (m) => setState((s) => apply(s, m, Date.now())),
        setLive,
        (now) => setState((s) => settle(s, now, Date.now())),
      ),
    [],
  );
  useEffect(() => {
    let timer: number;
    const ask = () =>
      whoReads().then(setMe, () => {
        setLive("cut");
        timer = window.setTimeout(ask, 2000);
      });
    void ask();
    return () => window.clearTimeout(timer);
  }, [live === "ended"]);
  useEffect(() => {
    if (!me?.user) return;
    setState((s) => ({ ...s, release: undefined }));
    stream.open(route.release);
  }, [me?.user, route.release]);
  const count = waits(state).length;
  const title = { waiting: "Waiting", releases: "Releases", sources: "Sources", release: route.release ?? "" }[route.page];
  useEffect(() => {
    document.title = `${route.page === "waiting" && count ? `(${count}) ` : ""}${title} · Tranche`;
  }, [title, count]);
  if (me && !me.user) return <SignIn me={me} />;
  const stale = live === "live" ? state.stale : undefined;
  const old = oldText(live, state, stream.heardAt);
  const link = (to: string, page: string, text: string) => (
    <a href={to} aria-current={route.page === page || (page === "releases" && route.page === "release") ? "page" : undefined}>
      {text}
      {page === "waiting" && count > 0 && (
        <>
          {" "}
          <span class="bubble-count">{count}</span>
        </>
      )}
    </a>
  );
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header>
        <a class="brand" href="/">
          <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
            <rect width="32" height="32" rx="8" />
            <path d="M8.500 18v6M16 12.500v11.500M23.500 8v16" stroke="#fff" stroke-width="5" stroke-linecap="round" />
          </svg>
          Tranche
        </a>
        <nav aria-label="Pages">
          {link("/", "waiting", "Waiting")}
          {link("/releases", "releases", "Releases")}
          {link("/sources", "sources", "Sources")}
        </nav>
        <span class={`live ${stale ? "cut" : live}`}>
          <i aria-hidden="true" />
          {stale ? "Not live" : liveText[live]}
        </span>
      </header>
      <main id="main" data-loaded={state.loaded}>
        <div role="status">
          {old && <p class="warn">{old}</p>}
          {state.still && <p class="warn">{state.still}</p>}
        </div>
        {state.problem && !stale && <p class="warn">{state.problem}</p>}
        {route.page === "waiting" && <Waiting state={state} />}
        {route.page === "releases" && <Releases state={state} query={route.query} />}
        {route.page === "release" && <ReleasePage name={route.release!} state={state} />}
        {route.page === "sources" && <Sources state={state} />}
      </main>
      <footer class="faint">
        {me?.mode === "local" ? "read with your kubeconfig" : me?.user ? `signed in as ${me.user}` : ""} · {me?.version}
      </footer>
    </>
  );
}

const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);
