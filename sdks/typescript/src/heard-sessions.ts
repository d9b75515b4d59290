/** HTTP/2 sessions of which somebody always hears how they end. */

import type { createGrpcTransport } from "@connectrpc/connect-node";

/** What a transport needs of a manager of sessions. */
type Manager = NonNullable<Parameters<typeof createGrpcTransport>[0]["sessionManager"]>;

/**
 * `manager`, whose sessions end no process.
 *
 * A session that its manager has left while a ping was out is destroyed with an error once the
 * answer comes late, and the manager does not listen to it any more (connect-node 2.1.2): an
 * error that nobody hears ends the process. Calls hear of their streams' ends as before.
 */
export function heardSessions(manager: Manager): Manager {
  const heard = new WeakSet<object>();
  return {
    authority: manager.authority,
    async request(method, path, headers, options) {
      const stream = await manager.request(method, path, headers, options);
      const { session } = stream;
      if (session !== undefined && !heard.has(session)) {
        heard.add(session);
        session.on("error", () => undefined);
      }
      return stream;
    },
    notifyResponseByteRead(stream) {
      manager.notifyResponseByteRead(stream);
    },
  };
}
