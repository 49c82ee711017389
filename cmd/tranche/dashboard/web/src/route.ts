import { useEffect, useState } from "preact/hooks";

export interface Route {
  page: "waiting" | "releases" | "release" | "sources";
  release?: string;
  query: string;
}

export function routeOf(path: string, query: string): Route {
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  if (parts[0] === "releases" && parts.length === 3) return { page: "release", release: `${parts[1]}/${parts[2]}`, query };
  if (parts[0] === "releases") return { page: "releases", query };
  if (parts[0] === "sources") return { page: "sources", query };
  return { page: "waiting", query };
}

const changed = new EventTarget();

export function go(to: string, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  changed.dispatchEvent(new Event("route"));
}

export function useRoute(): Route {
  const [route, set] = useState(routeOf(location.pathname, location.search));
  useEffect(() => {
    const update = () => set(routeOf(location.pathname, location.search));
    const click = (e: MouseEvent) => {
      const a = (e.target as Element).closest?.("a");
      if (!a || a.target || a.origin !== location.origin || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
      if (a.hash && a.pathname === location.pathname) return;
      e.preventDefault();
      go(a.pathname + a.search);
      window.scrollTo(0, 0);
      document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    };
    changed.addEventListener("route", update);
    addEventListener("popstate", update);
    document.addEventListener("click", click);
    return () => {
      changed.removeEventListener("route", update);
      removeEventListener("popstate", update);
      document.removeEventListener("click", click);
    };
  }, []);
  return route;
}

export const releasePath = (r: { namespace: string; name: string }) =>
  `/releases/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}`;
