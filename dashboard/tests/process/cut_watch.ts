import { once } from "node:events";
import { connect } from "node:http2";

import { create, toBinary } from "@bufbuild/protobuf";
import { WatchNodeRequestSchema } from "@kakeya/runtime/contract";

/** Bytes that a node may send before they are read: fewer than its history takes. */
const WINDOW_BYTES = 1024;
/** Bytes before each gRPC message: a flag, and the message's length. */
const PREFIX_BYTES = 5;

/** Watches the node at `address`, and cuts the connection while the node waits to send on. */
export async function cutWatch(address: string): Promise<void> {
  const connection = connect(`http://${address}`, {
    settings: { initialWindowSize: WINDOW_BYTES },
  });
  const call = connection.request({
    ":method": "POST",
    ":path": "/kakeya.v1.CapabilityService/WatchNode",
    "content-type": "application/grpc+proto",
    te: "trailers",
    "grpc-timeout": "86400S",
  });
  const request = toBinary(
    WatchNodeRequestSchema,
    create(WatchNodeRequestSchema, { historySeconds: 900 }),
  );
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(request.length, 1);
  call.end(Buffer.concat([prefix, request]));
  await once(call, "response");
  connection.destroy();
  await once(connection, "close");
}
