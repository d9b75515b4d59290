/** What this example uses of Electron, for checking its types without it. */

declare module "electron" {
  interface WebContents {
    send(channel: string, ...values: unknown[]): void;
  }

  interface MainEvent {
    readonly sender: WebContents;
  }

  export const app: {
    whenReady(): Promise<void>;
    on(event: "window-all-closed" | "before-quit", listener: () => void): void;
    quit(): void;
  };

  export class BrowserWindow {
    constructor(options: {
      width: number;
      height: number;
      webPreferences: { preload: string; contextIsolation: boolean; sandbox: boolean };
    });
    loadFile(path: string): Promise<void>;
  }

  export const ipcMain: {
    handle(
      channel: string,
      listener: (event: MainEvent, ...values: unknown[]) => Promise<unknown>,
    ): void;
  };

  export const ipcRenderer: {
    invoke(channel: string, ...values: unknown[]): Promise<unknown>;
    on(channel: string, listener: (event: unknown, ...values: unknown[]) => void): void;
    off(channel: string, listener: (event: unknown, ...values: unknown[]) => void): void;
  };

  export const contextBridge: { exposeInMainWorld(name: string, api: object): void };
}
