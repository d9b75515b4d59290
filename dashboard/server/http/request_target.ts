import { Refused } from "../problem";

/**
 * The path of a request's target, which is in origin form (RFC 9112, section 3.2.1): browsers
 * send that alone. It names a route or a file as it stands, nothing in it is decoded.
 *
 * Throws Refused for any other: `//host` reads as another server's address wherever it is
 * taken for a URL.
 */
export function pathOf(target: string): string {
  const path = target.split("?", 1)[0] ?? "";
  if (!path.startsWith("/") || path.startsWith("//")) {
    throw new Refused(400, "BAD_REQUEST", "A request names a path, such as /index.html.");
  }
  return path;
}
