import { defineConfig } from "vite";

// The same sources give the same bytes: no times, no names of folders.
export default defineConfig(({ isSsrBuild }) => ({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    copyPublicDir: !isSsrBuild,
    rollupOptions: isSsrBuild // of the unit tests
      ? { output: { entryFileNames: "[name].js" } }
      : { output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" } },
  },
}));
