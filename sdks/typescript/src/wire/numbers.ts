/** Numbers and names of the contract. */

import { create, toBinary, type DescEnum, type DescMessage } from "@bufbuild/protobuf";
import type { MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import { BadRequest } from "../errors.js";

/**
 * The name of an enum's `number` among the `known` ones; "unknown" for 0 and for
 * numbers newer than this client. The contract's ROLE_VERIFIER is "verifier".
 */
export function enumName<T extends string>(
  descriptor: DescEnum,
  number: number,
  known: readonly T[],
): T | "unknown" {
  const name = descriptor.value[number]?.localName.toLowerCase();
  return known.find((each) => each === name) ?? "unknown";
}

/**
 * The enum's number that `name` stands for; throws BadRequest for one that is not
 * among the `known` ones. `what` names the parameter.
 */
export function enumNumber(
  descriptor: DescEnum,
  name: string,
  known: readonly string[],
  what: string,
): number {
  const value = known.includes(name)
    ? descriptor.values.find((each) => each.localName.toLowerCase() === name)
    : undefined;
  if (value === undefined) {
    throw new BadRequest(`${what} is one of ${known.join(", ")}, not ${JSON.stringify(name)}`, {
      metadata: { field: what },
    });
  }
  return value.number;
}

/** The message; throws BadRequest for a number that its field cannot hold. */
export function build<Desc extends DescMessage>(
  schema: Desc,
  fields: MessageInitShape<Desc>,
): MessageShape<Desc> {
  try {
    const message = create(schema, fields);
    toBinary(schema, message);
    return message;
  } catch (error) {
    throw new BadRequest(error instanceof Error ? error.message : String(error));
  }
}
