/**
 * From so many nodes on the topology takes the whole width, and motion is left to
 * the node that is pointed at: fifty nodes that glide cost a frame more than it has.
 */
export const CROWD = 13;
