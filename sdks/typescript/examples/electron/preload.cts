/** The page's only way to the fleet. Sandboxed preload scripts are CommonJS. */

import electron = require("electron");

import type { FleetBridge } from "./messages.js" with { "resolution-mode": "import" };

const { contextBridge, ipcRenderer } = electron;

const bridge: FleetBridge = {
  async generate(prompt, onText) {
    const listener = (_event: unknown, piece: unknown) => onText(String(piece));
    ipcRenderer.on("text", listener);
    try {
      await ipcRenderer.invoke("generate", prompt);
    } finally {
      ipcRenderer.off("text", listener);
    }
  },
  async stop() {
    await ipcRenderer.invoke("stop");
  },
};

contextBridge.exposeInMainWorld("fleet", bridge);
